"""A job in memory that lives on a, and the plan that moves it to b."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.corpus import HEAD, OFFSETS, deliver, job, stored
from tests.golden.world import World
from tests.starting import with_state

CONFIG = ("-c", "reconciler.toml")


def planned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A job that is at 706 on a, and is to resume at 6 on b by the plan p.json."""
    world = World(folder, monkeypatch)
    deliver(world, "a.events", range(20))
    world.store(OFFSETS, "clicks", {("events", 0): stored(5)})
    world.file("reconciler.toml", HEAD + job("clicks", ["events"], id="none"))
    with_state(world.folder / "reconciler.toml")
    assert world.run("plan", *CONFIG, "-o", "p.json").code == 0
    return world
