"""Batches into files that are run again: with fewer records, by compaction or a cut log, or by another function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import ConfigError
from reconciler.places.registry import open_store
from reconciler.ports import ClusterInfo
from reconciler.spark.batches.hashed_files import HashNamedFiles
from reconciler.spark.batches.runner import RangeBatches, exactly_once
from tests.memory_log import MemoryLog

pytestmark = pytest.mark.system


class Log(MemoryLog):
    asked = 0

    def describe(self, topics: Iterable[str]) -> ClusterInfo:
        self.asked += 1
        assert self.asked < 100, "the job comes to no end"
        return super().describe(topics)


class Job:
    """A job on a log in memory. Its results are the offsets that the log holds; ``kill`` ends a run within a batch."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.log = Log("a", {"events": 1})
        self.store = f"sqlite:///{folder}/offsets.db"

    def append(self, count: int) -> None:
        for _ in range(count):
            self.log.partition("events", 0).append(1_000, b"key")

    def compact(self, *offsets: int) -> None:
        self.log.partition("events", 0).compact(offsets)

    def run(self, *, kill: bool = False, files: int = 1, plus: int = 0, group: str = "clicks") -> int:
        """How many batches were run."""
        job = RangeBatches(self.spark, topics=["events"], group=group, bootstrap_servers="nowhere:1", store=self.store)
        job._reader = self.log
        self.log.asked = 0

        def results(frame: Any, ranges: Any) -> Any:
            (read,) = ranges
            held = [record.offset for record in self.log.partition("events", 0).records]
            offsets = [(n + plus,) for n in held if read.from_offset <= n < read.until_offset]
            return self.spark.createDataFrame(offsets, "offset bigint").repartition(files)

        sink = (Killed if kill else HashNamedFiles)(str(self.folder / "out"))
        return job.run(exactly_once(results, into=sink))

    def written(self) -> Counter[int]:
        return Counter(row.offset for row in self.spark.read.parquet(str(self.folder / "out")).collect())

    def stored(self) -> int:
        (row,) = open_store(self.store).read("clicks")
        return row.stored.offset


class Killed(HashNamedFiles):
    def commit(self, *_: Any) -> None:
        raise KeyboardInterrupt


@pytest.fixture
def job(spark: Any, tmp_path: Path) -> Job:
    made = Job(spark, tmp_path)
    made.append(10)
    with pytest.raises(KeyboardInterrupt):
        made.run(kill=True)
    return made


def test_its_last_record_is_gone(job: Job) -> None:
    job.compact(9)
    assert job.run() == 1
    assert (job.written(), job.stored()) == (Counter(range(9)), 9)


def test_all_its_records_are_gone(job: Job) -> None:
    job.compact(*range(10))
    assert job.run() == 0
    job.append(3)
    assert job.run() == 1
    assert (job.written(), job.stored()) == (Counter(range(10, 13)), 13)


@pytest.mark.parametrize(("first", "second"), [(1, 3), (3, 1)])
def test_a_batch_of_the_same_ranges_replaces_the_files_of_an_earlier_one(job: Job, first: int, second: int) -> None:
    """As after a rollback of the stored offsets."""
    assert job.run(files=first) == 1
    (job.folder / "offsets.db").unlink()
    assert job.run(files=second, plus=100) == 1
    assert (job.written(), job.stored()) == (Counter(range(100, 110)), 10)


def test_a_path_with_a_batch_of_another_group_is_refused(job: Job) -> None:
    with pytest.raises(ConfigError, match="is the output of group clicks, not of others"):
        job.run(group="others")
