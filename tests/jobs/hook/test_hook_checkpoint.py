"""The hook before a query that keeps its offsets in a checkpoint: it starts on a copy, now and at every later start."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.places.checkpoint.reading import read_checkpoint
from tests.failover.checkpoint.checkpoint_files import Files
from tests.golden.corpus import tracked
from tests.golden.world import World

CONFIG = ("-c", "reconciler.toml")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The query has an anchor, and is moving to b."""
    world = World(tmp_path, monkeypatch)
    tracked(world, committed=True)
    assert world.run("track", *CONFIG, "--once").code == 0
    world.located(to="b")
    return world


def started_on(world: World) -> str:
    """The folder that the hook gives the query."""
    world.now_ms += 60_000
    ended = world.run("hook", *CONFIG, "--plans", "plans")
    assert ended.code == 0, ended.err
    names = dict(line.split("=", 1) for line in ended.out.splitlines())
    return names["RECONCILER_CHECKPOINT"].removeprefix("<TMP>/")


def test_a_query_starts_on_a_copy_that_is_made_once_and_checked_at_every_start(world: World) -> None:
    before = world.files("checkpoint")
    assert started_on(world) == "checkpoint-2"
    made = world.files("checkpoint-2")
    assert world.files("checkpoint") == before
    (source,) = read_checkpoint("checkpoint-2").positions
    assert source.start == {("a.events", 0): 4, ("a.events", 1): 5}
    assert started_on(world) == "checkpoint-2"
    assert world.files("checkpoint-2") == made, "it was right, and stays as it is"
    Files(world.folder / "checkpoint-2").batch(2, {"a.events": {0: 10, 1: 10}})  # the query goes on, and stops
    assert started_on(world) == "checkpoint-2"


def test_a_query_comes_back_in_a_third_checkpoint_with_what_it_did_there(world: World) -> None:
    """Its first one is where it was when it left: what it did on b would come again."""
    Files(world.folder / "checkpoint-3").batch(0, {"events": {0: 1, 1: 1}})  # somebody's: not taken for a copy
    assert started_on(world) == "checkpoint-2"
    Files.at(world.folder / "checkpoint-2").batch(2, {"a.events": {0: 10, 1: 9}})
    assert world.run("track", *CONFIG, "--once").code == 0
    ended = world.run("move", "--to", "a", *CONFIG, "--yes")
    assert (ended.code, "counts: starts exactly" in ended.out) == (0, True), ended.out + ended.err
    assert world.run("move", "--cancel", *CONFIG).code == 0
    assert started_on(world) == "checkpoint-2"
    assert world.run("move", "--to", "a", *CONFIG, "--yes").code == 0
    assert started_on(world) == "checkpoint-4"
    (source,) = read_checkpoint("checkpoint-4").positions
    assert source.start == {("events", 0): 14, ("events", 1): 13}
    assert started_on(world) == "checkpoint-4"
