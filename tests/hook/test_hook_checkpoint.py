"""The hook before a query that keeps its offsets in a checkpoint: it starts on a copy, now and at every later start."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.checkpoints.reading import read_checkpoint
from tests.checkpoints.checkpoint_files import Files
from tests.golden.corpus import tracked
from tests.golden.world import World

CONFIG = ("-c", "reconciler.toml")


def test_a_query_starts_on_a_copy_that_is_made_once_and_checked_at_every_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    tracked(world, committed=True)
    assert world.run("track", *CONFIG, "--once").code == 0
    world.located(to="b")
    before = world.files("checkpoint")

    def starts_on_the_copy() -> str:
        """The files of the copy, on which the query is started."""
        ended = world.run("hook", *CONFIG, "--plans", "plans")
        assert ended.code == 0, ended.err
        names = dict(line.split("=", 1) for line in ended.out.splitlines())
        assert names["RECONCILER_CHECKPOINT"] == "<TMP>/checkpoint-2"
        return world.files("checkpoint-2")

    made = starts_on_the_copy()
    assert world.files("checkpoint") == before
    (source,) = read_checkpoint("checkpoint-2").positions
    assert source.start == {("a.events", 0): 4, ("a.events", 1): 5}
    assert starts_on_the_copy() == made, "it was right, and stays as it is"
    Files(tmp_path / "checkpoint-2").batch(2, {"a.events": {0: 10, 1: 10}})  # the query goes on, and stops
    starts_on_the_copy()
