"""Lives of a job of range batches into files, chosen by seeds: whatever happens in them, each record counts once.

More of them: python -m tests.spark.ranges.lives.life STORE rivals,moves,across FIRST_SEED COUNT
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.core.errors import Changed, NeedsPerson
from reconciler.spark.ranges import interrupted
from reconciler.spark.ranges.planning import Caps
from tests.sizes import sampled
from tests.spark.ranges.lives.actors import Actor
from tests.spark.ranges.lives.life import Kind, Life, Tally
from tests.spark.ranges.lives.world import World

EACH = 8
KINDS = {
    "one run at a time": Kind(),
    "one run at a time, failovers": Kind(moves=True),
    "rivals": Kind(rivals=True),
    "rivals, failovers": Kind(rivals=True, moves=True),
    "rivals, also at the other cluster": Kind(rivals=True, moves=True, across=True),
    "rivals on SQLite": Kind("sqlite", rivals=True, moves=True, across=True),
    "rivals on files": Kind("files", rivals=True, moves=True, across=True),
}
BLOCKS = [(kind, block) for kind in KINDS for block in range(12)]
FIRST = sampled(BLOCKS, keep=0, always=lambda case: case[1] == 0)


def lived(kind: Kind, seeds: range, folder: Path) -> Tally:
    tally = Tally()
    for seed in seeds:
        Life(seed, kind, folder, tally).live()
    return tally


@pytest.mark.parametrize(("kind", "block"), FIRST)
def test_each_record_counts_once_whatever_happens(tmp_path: Path, kind: str, block: int) -> None:
    each = 2 if KINDS[kind].store == "sqlite" else EACH  # it waits for the disk
    tally = lived(KINDS[kind], range(block * each, (block + 1) * each), tmp_path)
    assert not tally.faults, "\n".join(tally.faults)
    assert tally.lives == each
    assert tally.kills > 0 or block or each < EACH  # another block may have none


def broken_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupted, "holds_all", lambda others, entry: True)


@pytest.mark.parametrize(("breaking", "seeds"), [(broken_finish, range(40))])
def test_a_broken_promise_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaking: Callable[[pytest.MonkeyPatch], None], seeds: range
) -> None:
    breaking(monkeypatch)
    tally = Tally()
    for seed in seeds:
        Life(seed, Kind(), tmp_path, tally).live()
        if tally.faults:
            return
    raise AssertionError("no life shows it")


# ---------------------------------------------------------------- the run that stayed at the other cluster


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, "memory", random.Random(1), identity=False)
    with made.patched():
        yield made


def until(actor: Actor, at: str) -> Actor:
    while not actor.at.startswith(at):
        actor.go_on()
    return actor


def run(world: World) -> Actor:
    world.mirror()
    return Actor(world.side, world.job(world.side, Caps()))


@pytest.mark.parametrize("at", ["list", "publish", "write _", "write rows: batch"])
def test_a_run_that_stayed_at_the_source_saves_nothing_once_another_has_begun_at_the_destination(
    world: World, at: str
) -> None:
    world.produce(10)
    run(world).finish()
    world.produce(10)
    stayed = until(run(world), at)
    world.mirror()
    world.move()
    other = run(world)
    other.finish()
    assert other.error is None
    stayed.finish()
    assert isinstance(stayed.error, Changed)
    assert world.counted() == Counter(range(20))


def test_a_run_does_not_begin_at_the_destination_where_one_has_saved_at_the_source_since(world: World) -> None:
    """It had planned its batch before the hand-over, and dated it then."""
    world.produce(10)
    run(world).finish()
    world.produce(10)
    stayed = until(run(world), "write _")
    world.mirror()
    world.move()
    stayed.finish()
    other = run(world)
    other.finish()
    assert isinstance(other.error, NeedsPerson)
    assert "the job went on there and was not handed back" in other.error.message
    world.side = "a"
    world.move()
    run(world).finish()
    assert world.counted() == Counter(range(20))
