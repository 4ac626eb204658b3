"""MirrorMaker's heartbeats and offset syncs, beside the checks and never in their way."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

import pytest

from reconciler.core.errors import Refused, Unreachable
from reconciler.failover.check import check
from reconciler.jobs.watch.checker import JobChecker
from reconciler.jobs.watch.figures import CheckFigures, TopicFigures
from reconciler.kafka.mirror.skipped import Gaps
from reconciler.ports import ClusterInfo
from tests.in_memory import NOW, Memory, memory, stored, wide
from tests.kafka.mirror.written import SYNCS, text, write_syncs
from tests.memory_log import MemoryLog

__all__ = ["memory", "wide"]

EVERY_S = 60.0


class Watched:
    """The job of ``Memory``, watched; ``round`` checks it once."""

    def __init__(self, memory: Memory, extra: str = "") -> None:
        self.memory = memory
        self._extra = extra
        self.now_ms = NOW
        self.reload()

    def reload(self) -> None:
        """As if the configuration were read again."""
        config = self.memory.config(self._extra)
        outside = replace(self.memory.outside, monotonic=lambda: self.memory.clock, now_ms=lambda: self.now_ms)
        self._jobs = config.jobs
        self.checker = JobChecker(config, outside, check, every_s=EVERY_S)

    @property
    def heartbeat_ms(self) -> int | None:
        """When the newest heartbeat from a at b was sent."""
        return self.checker.heartbeats_ms.get(("a", "b"))

    def round(self) -> TopicFigures:
        self.memory.clock += EVERY_S
        (result,) = [each.result for each in self.checker.check(self._jobs).values()]
        assert isinstance(result, CheckFigures), result
        return result.topics["a.events"]


@pytest.fixture
def watched(memory: Memory) -> Watched:
    """Ten records, of which the job has processed 0 to 4; then 3 and 4 were sent again."""
    memory.deliver(range(10))
    memory.deliver(range(3, 5))
    memory.save({0: stored(4)})
    return Watched(memory)


def test_the_newest_heartbeat_gives_its_time(watched: Watched) -> None:
    watched.memory.log.create("a.heartbeats", 1)
    watched.round()
    assert watched.heartbeat_ms is None
    beat(watched, NOW - 9_000, NOW - 5_000)
    watched.memory.log.partition("a.heartbeats", 0).append(NOW, b"of another", b"format")
    watched.round()
    assert watched.heartbeat_ms == NOW - 5_000


def beat(watched: Watched, *sent_ms: int) -> None:
    """The mirror delivers heartbeats that were sent at these times, by the clock at the source."""
    log = watched.memory.log
    if "a.heartbeats" not in log.topic_ids:
        log.create("a.heartbeats", 1)
    for sent in sent_ms:
        log.partition("a.heartbeats", 0).append(NOW, text("b") + text("a"), struct.pack(">hq", 0, sent))


MONTH_MS = 30 * 86_400_000


def test_a_heartbeat_of_a_clock_that_is_ahead_counts_from_when_it_was_read(watched: Watched) -> None:
    """Its age would stay 0 for a month otherwise, and the alert silent."""
    beat(watched, NOW + MONTH_MS)
    watched.round()
    assert watched.heartbeat_ms == NOW
    watched.now_ms = NOW + 3_600_000
    watched.round()
    assert watched.heartbeat_ms == NOW, "it is not read again"
    beat(watched, NOW + 3_590_000)
    watched.round()
    assert watched.heartbeat_ms == NOW + 3_590_000


def test_a_heartbeat_of_a_clock_that_was_ahead_is_outdone_by_the_one_behind_it(watched: Watched) -> None:
    beat(watched, NOW + MONTH_MS, NOW - 3_600_000)
    watched.round()
    assert watched.heartbeat_ms == NOW - 3_600_000


def refuse_topic(monkeypatch: pytest.MonkeyPatch, topic: str, error: Exception) -> None:
    """The cluster answers with this to all questions about the topic."""
    as_it_was = MemoryLog.describe

    def refuse(self: MemoryLog, topics: Iterable[str]) -> ClusterInfo:
        if topic in (names := list(topics)):
            raise error
        return as_it_was(self, names)

    monkeypatch.setattr(MemoryLog, "describe", refuse)


DAY_MS = 86_400_000


def gaps(watched: Watched, *pairs: tuple[int, int], at_ms: int = NOW) -> Gaps | None:
    """What the mirror left out of events, once it has written these syncs."""
    write_syncs(watched.memory.log, *pairs, at_ms=at_ms)
    watched.round()
    return watched.checker.gaps.get(("a", "b", "events"))


def test_what_the_mirror_skipped_is_what_no_transaction_marker_explains(watched: Watched) -> None:
    """Up to 109, ten records and as many markers. Then 4,000 numbers are not here, and one record was delivered."""
    assert gaps(watched, (90, 0), (110, 10)) == (0, 0)
    assert gaps(watched, (4_111, 11)) == (3_999, 0)
    watched.now_ms = NOW + DAY_MS - 1
    assert gaps(watched, (4_121, 21), (4_121, 21), at_ms=watched.now_ms) == (3_999, 0)
    watched.now_ms = NOW + DAY_MS
    assert gaps(watched) == (0, 0), "it was a day ago"


@pytest.mark.parametrize("later", [(0, 11), (120, 3), (120, 10)])
def test_a_mirror_that_begins_again_is_counted_and_one_that_sends_a_part_again_is_not(
    watched: Watched, later: tuple[int, int]
) -> None:
    """Record 0 once more; a place in front of the last one; another record at the same place."""
    assert gaps(watched, (90, 0), (100, 10), (95, 11), (100, 16)) == (0, 0)
    watched.reload()
    assert gaps(watched, (100, 10), later) == (0, 2)  # the copies' end at 16 was lost before, too


@pytest.mark.parametrize("why", ["a topic of this name here", "compacted"])
def test_no_gap_is_told_of_syncs_that_may_be_another_mirrors_or_of_a_log_with_gaps_of_its_own(
    watched: Watched, why: str
) -> None:
    log = watched.memory.log
    if why == "compacted":
        log.partition("a.events", 0).compacted = True
    else:
        log.create("events", 1)
    assert gaps(watched, (100, 0), (5_000, 1)) is None
    if why != "compacted":
        watched._extra = f'[mirror]\noffset_syncs_topic = "{SYNCS}"\n'
        watched.reload()
        assert gaps(watched) == (4_898, 0), "the operator says whose they are"


@pytest.mark.parametrize("error", [Refused("Not authorized."), Unreachable("No answer.")])
def test_heartbeats_that_cannot_be_read_stop_no_check(
    watched: Watched, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    beat(watched, NOW - 5_000)
    with monkeypatch.context() as patched:
        refuse_topic(patched, "a.heartbeats", error)
        for _ in range(3):
            assert watched.round().replay == 2  # 3 and 4, sent again
    assert caplog.text.count("MirrorMaker's heartbeats cannot be read") == 1
    watched.round()
    assert watched.heartbeat_ms == NOW - 5_000
