"""What a watch reads beside the searches: a job's lag where it lives, logs that were reset there, and wrong times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Unreachable
from reconciler.failover.check import check
from reconciler.jobs.watch.checker import JobChecker
from reconciler.jobs.watch.figures import CheckFigures, TopicFigures
from reconciler.ports import LogReader
from tests.in_memory import BASE, BEGIN, NOW, Memory, anchor, content, memory, stored
from tests.memory_log import MemoryLog

__all__ = ["memory"]

MONTH_MS = 30 * 86_400_000


class Pair:
    """Cluster a, on which the job has yet to read 3 of its ten records, and b; ``round`` checks the job once."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.left = MemoryLog("a")
        self.is_lost = False
        self.asked = 0
        memory.deliver(range(10))
        self.make("a/events", BASE, 10)
        memory.save({0: stored(6)})
        self.reload()

    def reload(self) -> None:
        config = self.memory.config()
        outside = replace(self.memory.outside, open_left=self._open, monotonic=lambda: self.memory.clock)
        self._jobs = config.jobs
        self.checker = JobChecker(config, outside, check, every_s=10)

    def make(self, topic_id: str, begin: int, records: int) -> None:
        """The topic on a, with its records' numbers from ``begin`` on."""
        self.left.create("events", 1, topic_id)
        self.left.partition("events", 0).end = begin
        for number in range(records):
            self.left.partition("events", 0).append(*content(number))

    def _open(self) -> LogReader:
        self.asked += 1
        if self.is_lost:
            raise Unreachable("a does not answer.")
        return self.left

    def round(self) -> TopicFigures:
        self.memory.clock += 10
        (each,) = self.checker.check(self._jobs).values()
        assert isinstance(each.result, CheckFigures), each.result
        return each.result.topics["a.events"]


@pytest.fixture
def pair(memory: Memory) -> Pair:
    return Pair(memory)


def test_a_jobs_lag_is_counted_on_the_cluster_where_it_lives(pair: Pair) -> None:
    assert pair.round().job_lag == 3
    pair.left.partition("events", 0).append(*content(10))
    assert pair.round().job_lag == 4
    assert pair.asked == 1, "the connection is kept"
    pair.memory.save({0: pair.memory.own(8)}, topic="a.events")
    pair.memory.moved = True
    pair.reload()
    assert pair.round().job_lag == 2
    assert pair.asked == 1, "it lives on b"


def test_while_a_cluster_is_lost_its_jobs_have_no_lag_and_it_is_asked_once_a_minute(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.is_lost = True
    assert [pair.round().job_lag for _ in range(7)] == [None] * 7
    assert pair.asked == 2
    assert caplog.text.count("How far jobs are behind is not known") == 1
    pair.is_lost, pair.memory.clock = False, pair.memory.clock + 60
    found = pair.round()
    assert (found.job_lag, found.reset) == (3, 0)


@pytest.mark.parametrize("how", ["recreated", "cut"])
def test_a_log_that_was_reset_under_its_job_is_counted(pair: Pair, how: str) -> None:
    assert pair.round().reset == 0
    pair.left.delete("events")
    pair.make(*(("a/events again", 0, BASE + 10) if how == "recreated" else ("a/events", BASE, 5)))
    assert pair.round().reset == 1


@pytest.mark.parametrize(
    ("time_ms", "written_at_ms", "wrong"),
    [
        (NOW + 3_600_000, None, 1),
        (BEGIN + 3_600_000, BEGIN, 1),
        (BEGIN - 2 * MONTH_MS, BEGIN, 1),
        (content(6)[0], NOW, 0),
    ],
    ids=["later than now", "later than it was stored", "months from its neighbours", "old, as its neighbours are"],
)
def test_an_anchor_with_a_time_that_cannot_be_true_is_counted(
    pair: Pair, time_ms: int, written_at_ms: int | None, wrong: int
) -> None:
    value = content(6)[2]
    log = pair.memory.log.partition("a.events", 0)
    at = next(place for place, record in enumerate(log.records) if record.value == value)
    log.records[at] = replace(log.records[at], timestamp_ms=time_ms)
    pair.memory.save({0: StoredOffset(BASE + 7, replace(anchor(6), timestamp_ms=time_ms), written_at_ms)})
    assert pair.round().wrong_times == wrong
