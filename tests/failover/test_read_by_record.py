"""What a job's place holds after a move, read by what is recorded: shown by the commands."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.places.registry import open_store
from tests.failover.planned import CONFIG, planned
from tests.golden.corpus import HEAD, OFFSETS, deliver, job, stored
from tests.golden.world import World
from tests.starting import with_state


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A job that was moved to b, where it was to resume at 6."""
    world = planned(tmp_path, monkeypatch)
    assert world.run("apply", "p.json", *CONFIG, "--yes").code == 0
    return world


def hook(world: World, *words: str) -> tuple[int, str]:
    ended = world.run("hook", *CONFIG, "--job", "clicks", "--plans", "plans", *words)
    return ended.code, " ".join((ended.out + ended.err).split())


def test_a_number_below_all_that_the_stay_has_stored_needs_a_decision(moved: World) -> None:
    moved.store(OFFSETS, "clicks", {("a.events", 0): StoredOffset(2)})
    code, said = hook(moved)
    assert code == 4
    assert "holds offset 2 for a.events-0. The journal of stay 2 on b has offset 6 of it" in said
    assert "--set TOPIC:PARTITION=OFFSET" in said
    assert hook(moved, "--set", "a.events:0=2", "--accept", "skips")[0] == 0
    assert hook(moved)[0] == 0


def test_a_bare_number_beyond_is_the_jobs_own_and_starts_as_stored(moved: World) -> None:
    moved.store(OFFSETS, "clicks", {("a.events", 0): StoredOffset(9)})
    code, said = hook(moved)
    assert code == 0, said
    with closing(open_store(f"sqlite:///{moved.folder}/offsets.db")) as store:
        assert {str(row.key): row.stored.offset for row in store.read("clicks")}["a.events-0"] == 9


def test_a_row_of_another_stays_name_does_not_hide_that_the_jobs_own_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job lives on a, and has been on b before: it would begin anew there, and say that nothing comes again."""
    world = World(tmp_path, monkeypatch)
    deliver(world, "a.events", range(20))
    world.store(OFFSETS, "clicks", {("a.events", 0): stored(5, base=0)})
    world.file("reconciler.toml", HEAD + job("clicks", ["events"], id="none"))
    with_state(world.folder / "reconciler.toml", to="b")
    code, said = hook(world)
    assert code == 4
    assert 'no rows of "events"' in said
