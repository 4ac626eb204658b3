"""Two runs of one group, the second of which reads the stored rows while the first goes on. Without servers.

Spark's frames are lists of offsets here, and the log and the store are in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import Changed, NeedsPerson
from reconciler.kafka.memory import MemoryLog, MemoryPartition
from reconciler.ports import TopicPartition
from reconciler.spark.ranges import hashed_files, output, reading, runner
from reconciler.spark.ranges.hashed_files import HashNamedFiles
from reconciler.spark.ranges.planning import Policy
from reconciler.spark.ranges.runner import RangeBatches, exactly_once
from reconciler.stores.memory import MemoryStore
from tests.spark.ranges.hashed_files.world import Local, frame

OF_PARTITION = 1000
"""A record's number in the results is its offset, and this for each partition before its own."""


class Killed(BaseException):
    """The run ends here, without any further step."""


class World:
    """A log of one topic, a store, and an output; ``run`` is one batch of a run of its own."""

    def __init__(self, path: Path) -> None:
        self.path, self.log = path, MemoryLog("c", {"events": 1})
        self.policy = Policy(new="latest")  # so that a run stores where an added partition begins

    def produce(self, records: int, partition: int = 0) -> None:
        for _ in range(records):
            self.log.partition("events", partition).append(1, b"k", b"v")

    def store(self) -> MemoryStore:
        return MemoryStore(str(self.path))

    def job(self) -> RangeBatches:
        spark: Any = object()
        made = RangeBatches(
            spark, topics=["events"], group="g", bootstrap_servers="x:1", store=self.store(), policy=self.policy
        )
        made._reader = self.log
        return made

    def run(self, sink: HashNamedFiles | None = None, work: Callable[[], None] = lambda: None) -> None:
        def results(records: Any, ranges: Any) -> Any:
            work()
            return records

        self.job().run_once(exactly_once(results, into=sink or HashNamedFiles(str(self.path))))

    @property
    def counted(self) -> list[int]:
        return sorted(row for name in output.files(str(self.path)) for row in json.loads(Path(name).read_text()))

    @property
    def stored(self) -> list[int]:
        return [row.stored.offset for row in self.store().read("g")]


class Slow(HashNamedFiles):
    """A sink that calls ``meanwhile`` once, when it has settled."""

    meanwhile: Callable[[], None] | None = None

    def settle(self, *args: Any) -> None:
        super().settle(*args)
        if self.meanwhile is not None:
            self.meanwhile, act = None, self.meanwhile
            act()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    def read(spark: Any, ranges: Iterable[Any], *_: Any, **__: Any) -> Any:
        numbered = [
            OF_PARTITION * each.partition + offset
            for each in ranges
            for offset in range(each.from_offset, each.until_offset)
        ]
        return frame(numbered)

    monkeypatch.setattr(hashed_files, "Directory", Local)
    monkeypatch.setattr(runner, "_require_frame", lambda results: None)
    monkeypatch.setattr(reading, "read", read)
    return World(tmp_path)


@pytest.mark.parametrize("is_added", [False, True], ids=["the same partitions", "one was added"])
def test_a_batch_that_another_run_finishes_meanwhile_does_not_set_the_offsets_back(
    world: World, *, is_added: bool
) -> None:
    """The second run repeats a batch for the rows that it has read: it must not save that over newer ones."""

    def killed() -> None:
        raise Killed

    def first_goes_on() -> None:
        world.run()
        world.produce(50)
        world.run()
        if is_added:  # the second run reads the rows again, for where it has stored that it begins
            world.log.partitions[TopicPartition("events", 1)] = MemoryPartition()

    world.produce(100)
    with pytest.raises(Killed):
        world.run(work=killed)
    rival = Slow(str(world.path))
    rival.meanwhile = first_goes_on
    with pytest.raises(Changed, match="another run of the job has saved its own"):
        world.run(rival)
    world.produce(30)
    world.run()
    assert world.stored[0] == 180
    assert world.counted == list(range(180))


# ---------------------------------------------------------------- two batches that end alike in one partition


@pytest.fixture
def overlapping(world: World) -> Slow:
    """A run that has settled before another saves the same partitions, after which more records come to one of them."""

    def another_saves() -> None:
        world.run()
        world.produce(50)

    world.log.partitions[TopicPartition("events", 1)] = MemoryPartition()
    world.produce(10)
    world.run()  # stores where the partitions begin
    world.produce(90)
    world.produce(50, partition=1)
    rival = Slow(str(world.path))
    rival.meanwhile = another_saves
    return rival


EACH_ONCE = [*range(150), *range(OF_PARTITION, OF_PARTITION + 50)]


def test_a_batch_that_was_not_saved_does_not_count_where_the_saved_one_ends_alike(
    world: World, overlapping: Slow
) -> None:
    with pytest.raises(Changed, match="another run of the job has saved its own"):
        world.run(overlapping)
    world.run()
    assert (world.stored, world.counted) == ([150, 50], EACH_ONCE)


def test_a_person_decides_on_such_a_batch_whose_run_was_killed_before_it_saved(
    world: World, overlapping: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(overlapping, "commit", killed)
    with pytest.raises(Killed):
        world.run(overlapping)
    with pytest.raises(NeedsPerson, match="neither all those before it nor all those after it") as caught:
        world.run()
    assert 'two runs overlapped), start once with HashNamedFiles(unfinished="drop").' in str(caught.value.hint)
    world.run(HashNamedFiles(str(world.path), unfinished="drop"))
    assert (world.stored, world.counted) == ([150, 50], EACH_ONCE)


class Planned(Slow):
    """A sink that calls ``meanwhile`` once, when its batch is planned."""

    def settle(self, *args: Any) -> None:
        HashNamedFiles.settle(self, *args)

    def unfinished(self, *args: Any) -> Any:
        found = super().unfinished(*args)
        if self.meanwhile is not None:
            self.meanwhile, act = None, self.meanwhile
            act()
        return found


@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "killed once it had saved"])
def test_a_batch_that_was_not_saved_does_not_count_where_the_saved_one_holds_all_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_finished: bool
) -> None:
    """The rows are as after both."""

    def killed(*_: Any) -> None:
        raise Killed

    def another_saves() -> None:
        world.produce(140)
        other = HashNamedFiles(str(world.path))
        if is_finished:
            world.run(other)
            return
        monkeypatch.setattr(other, "_finish", killed)
        with pytest.raises(Killed):
            world.run(other)

    world.log.partitions[TopicPartition("events", 1)] = MemoryPartition()
    world.produce(10)
    world.run()
    world.produce(50, partition=1)
    rival = Planned(str(world.path))
    rival.meanwhile = another_saves
    with pytest.raises(Changed, match="another run of the job has saved its own"):
        world.run(rival)
    world.run()
    assert (world.stored, world.counted) == ([150, 50], EACH_ONCE)
