"""A run whose batch another run finishes, undoes or begins again: files that count stay, and none counts too late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reconciler.core.errors import Changed
from reconciler.spark.ranges.hashed_files import HashNamedFiles
from reconciler.spark.ranges.output import BEGUN, STAGED, CatalogueEntry
from reconciler.spark.ranges.planning import Policy
from tests.spark.ranges.hashed_files.world import BATCH, ROWS, Killed, World, frame
from tests.spark.ranges.test_ranges_rivals import World as Runs
from tests.spark.ranges.test_ranges_rivals import world as runs

__all__ = ["runs"]


def after_put(sink: HashNamedFiles, kind: str, act: Callable[[], None]) -> None:
    """``act`` once, right after the sink has written a file of the catalogue."""
    put, left = sink._catalogue.put, [act]

    def putting(name: str, entry: CatalogueEntry) -> bool:
        found = put(name, entry)
        if name.endswith(kind) and left:
            left.pop()()
        return found

    sink._catalogue.put = putting  # type: ignore[method-assign]


def test_files_with_which_another_run_has_finished_the_batch_stay(world: World) -> None:
    """They were staged by this run, which then finds the batch no longer under way."""
    other, this = world.sink(), world.sink()

    def finishes() -> None:
        other.stage(frame(ROWS), BATCH)
        world.finish(other)

    after_put(this, STAGED, finishes)
    with pytest.raises(Changed):
        this.stage(frame([3, 2], [1, 0]), BATCH)
    assert world.settled() == ROWS


def test_files_of_a_batch_that_was_undone_do_not_count_for_the_one_begun_again(world: World) -> None:
    """The run that wrote them is killed once it has said so, too late: the files are gone."""
    killed = world.sink()

    def undone() -> None:
        assert killed._begun is not None
        killed._catalogue.folder.remove(BATCH.name + STAGED)
        for name in killed._files_of(BATCH.name):
            killed._opened().remove(name)
        killed._forget(BATCH.name)

    def staged(*_: Any) -> bool:
        undone()
        killed._mark(killed._begun, STAGED, ("gone.parquet",))  # type: ignore[arg-type]
        raise Killed

    killed._staged = staged  # type: ignore[method-assign]
    with pytest.raises(Killed):
        killed.stage(frame(ROWS), BATCH)
    again = HashNamedFiles(str(world.path))
    again.settle(None, "clicks", {})  # type: ignore[arg-type]
    entry = killed._begun
    assert entry is not None
    again._catalogue.put(BATCH.name + BEGUN, CatalogueEntry(BATCH.name, "clicks", (), entry.parts, 6))
    again._begun = again._catalogue.load(BATCH.name + BEGUN)
    again.stage(frame(ROWS), BATCH)
    world.finish(again)
    assert world.settled() == ROWS


def test_a_batch_that_vanishes_while_the_catalogue_is_read_is_none(world: World) -> None:
    world.sink()
    reader = HashNamedFiles(str(world.path))._catalogue
    names = reader.folder.names()
    reader.folder.remove(BATCH.name + BEGUN)
    reader.folder.names = lambda below="": names  # type: ignore[method-assign]
    assert reader.begun() == []


class Late(HashNamedFiles):
    """A sink that calls ``meanwhile`` between its last look at the catalogue and the save."""

    meanwhile: Callable[[], None]

    def commit(self, batch: Any, changes: Any, save: Callable[[], None]) -> None:
        def saving() -> None:
            self.meanwhile()
            save()

        super().commit(batch, changes, saving)


@pytest.mark.parametrize("first", [0, 10], ids=["the group's first batch", "a later one"])
def test_a_batch_that_was_undone_cannot_be_saved_any_more(runs: Runs, first: int) -> None:
    """The other run undoes it because compaction has removed its last record, and is killed then."""
    runs.policy = Policy()
    runs.produce(first)
    if first:
        runs.run()
    runs.produce(90)

    def killed() -> None:
        raise Killed

    def undoes() -> None:
        runs.log.partition("events", 0).compact([first + 89])
        with pytest.raises(Killed):
            runs.run(work=killed)

    late = Late(str(runs.path))
    late.meanwhile = undoes
    with pytest.raises(Changed):
        runs.run(late)
    runs.run()
    assert set(runs.counted) >= set(range(first + 89))
    assert len(runs.counted) == len(set(runs.counted))
