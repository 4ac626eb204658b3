"""The figures of MirrorMaker's own offsets, beside those of the checks and never in their way."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from math import isnan
from typing import NoReturn

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Refused, Unreachable
from reconciler.failover.check import check
from reconciler.jobs.watch import checker as mirrored
from reconciler.jobs.watch.checker import JobChecker
from reconciler.jobs.watch.figures import CheckFigures, TopicFigures
from reconciler.kafka.mirror import records
from reconciler.ports import ClusterInfo
from tests.in_memory import BASE, GROUP, NOW, Memory, memory, stored, wide
from tests.kafka.mirror.written import (
    CHECKPOINTS,
    checkpoint_key,
    checkpoint_value,
    text,
    write_checkpoints,
    write_syncs,
)
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

    def grade(self) -> tuple[int | None, int | None]:
        """What MirrorMaker's offset would read again, and what it would skip."""
        found = self.round()
        return found.mirror_replay, found.mirror_skips


@pytest.fixture
def watched(memory: Memory) -> Watched:
    """Ten records, of which the job has processed 0 to 4; then 3 and 4 were sent again."""
    memory.deliver(range(10))
    memory.deliver(range(3, 5))
    memory.save({0: stored(4)})
    return Watched(memory)


def test_a_checkpoint_that_leads_behind_unread_records_skips_them(watched: Watched) -> None:
    write_checkpoints(watched.memory.log, (BASE + 5, 12), group=GROUP)
    assert watched.grade() == (0, 5)
    watched.memory.deliver(range(5, 10))
    assert watched.grade() == (0, 0)


def test_a_checkpoint_that_lies_before_the_place_repeats(watched: Watched) -> None:
    write_checkpoints(watched.memory.log, (BASE + 2, 2), group=GROUP)
    assert watched.grade() == (3, 0)


def test_without_a_checkpoint_of_the_group_there_are_no_figures(watched: Watched) -> None:
    assert watched.grade() == (None, None)
    write_checkpoints(watched.memory.log, (BASE + 5, 12), group="others")
    assert watched.grade() == (None, None)


def test_a_checkpoint_for_what_was_processed_since_is_not_compared(watched: Watched) -> None:
    write_checkpoints(watched.memory.log, (BASE + 9, 9), group=GROUP)
    assert watched.grade() == (None, None)


@pytest.fixture
def in_part(wide: Memory) -> Watched:
    """MirrorMaker has an offset in two partitions; the job's anchor of the second one is lost."""
    for partition in range(3):
        wide.deliver(range(10), partition)
    wide.save({0: stored(4), 1: replace(stored(4), anchor=None), 2: stored(4, 2)})
    write_checkpoints(wide.log, (BASE + 5, 5), group=GROUP)
    wide.log.partition(CHECKPOINTS, 0).append(NOW, checkpoint_key(GROUP, partition=1), checkpoint_value(BASE + 5, 9))
    return Watched(wide, '[policy]\nno_anchor = "stop"\n')


def test_a_topic_that_is_not_proven_in_each_partition_has_no_figures_and_not_0(in_part: Watched) -> None:
    assert in_part.grade() == (None, None)
    in_part.memory.save({1: stored(4, 1)})
    assert in_part.grade() == (0, 4)


def test_skips_in_one_partition_are_reported_whatever_is_known_of_the_others(in_part: Watched) -> None:
    write_checkpoints(in_part.memory.log, (BASE + 5, 7), group=GROUP)
    assert in_part.grade() == (0, 2)


def test_a_partition_that_is_behind_has_nothing_to_skip(in_part: Watched) -> None:
    in_part.memory.save({1: stored(20, 1)})
    assert in_part.grade() == (0, 0)


def test_a_job_that_lives_here_is_not_graded(watched: Watched) -> None:
    write_checkpoints(watched.memory.log, (BASE + 5, 12), group=GROUP)
    watched.memory.save({0: watched.memory.own(5)}, topic="a.events")
    watched.memory.moved = True
    watched.reload()
    assert watched.grade() == (None, None)


def test_a_row_that_mirrormaker_synced_is_graded_by_its_own_number(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.deliver(range(3, 6))
    memory.place = "kafka-group:"
    memory.save({0: StoredOffset(12)}, topic="a.events")
    write_checkpoints(memory.log, (BASE + 5, 12), group=GROUP)
    write_syncs(memory.log, (BASE, 0), (BASE + 4, 11))
    assert Watched(memory).grade() == (0, 4)  # 5 follows once more; 6 to 9 do not


@pytest.mark.parametrize("error", [Refused("Not authorized."), Unreachable("No answer.")])
def test_a_mirror_that_cannot_be_read_stops_no_check(
    watched: Watched, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_checkpoints(watched.memory.log, (BASE + 5, 12), group=GROUP)
    as_it_was = MemoryLog.describe
    refuse_topic(monkeypatch, CHECKPOINTS, error)
    for _ in range(3):
        figures = watched.round()
        assert figures.replay == 2  # 3 and 4, sent again
        assert figures.mirror_skips is not None
        assert isnan(figures.mirror_skips), "whether there are offsets is not known"
    assert caplog.text.count("MirrorMaker's checkpoints cannot be read") == 1
    monkeypatch.setattr(MemoryLog, "describe", as_it_was)
    assert watched.grade() == (0, 5)


def test_grades_that_cannot_be_read_again_are_unknown(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A last 0 would say that nothing is skipped, and nobody looked."""
    write_checkpoints(watched.memory.log, (BASE + 5, 12), group=GROUP)
    assert watched.round().mirror_skips == 5

    def fail(*_: object) -> NoReturn:
        raise Unreachable("No answer.")

    def is_unknown() -> bool:
        found = watched.round()
        return isnan(found.mirror_skips or 0) and isnan(found.mirror_replay or 0)

    with monkeypatch.context() as patched:
        patched.setattr(mirrored, "grades", fail)
        assert [is_unknown(), is_unknown()] == [True, True]
    assert caplog.text.count("their figures are NaN until they can be") == 1
    watched.memory.deliver(range(5, 10))
    assert watched.grade() == (0, 0)


def test_each_round_reads_only_what_is_new(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    decode = records.read_checkpoint
    monkeypatch.setattr(
        records,
        "read_checkpoint",
        lambda record: seen.append(record.offset) or decode(record),  # type: ignore[func-returns-value]
    )
    write_checkpoints(watched.memory.log, *((BASE + 5, 12) for _ in range(50)), group=GROUP)
    watched.round()
    write_checkpoints(watched.memory.log, (BASE + 5, 12), group=GROUP)
    watched.round()
    assert seen == list(range(51))


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


def test_heartbeats_are_read_though_checkpoints_may_not_be(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    beat(watched, NOW - 5_000)
    refuse_topic(monkeypatch, CHECKPOINTS, Refused("Not authorized."))
    skips = watched.round().mirror_skips
    assert skips is not None
    assert isnan(skips)
    assert watched.heartbeat_ms == NOW - 5_000
    assert "MirrorMaker's checkpoints cannot be read" in caplog.text
    assert "heartbeats" not in caplog.text


def refuse_topic(monkeypatch: pytest.MonkeyPatch, topic: str, error: Exception) -> None:
    """The cluster answers with this to all questions about the topic."""
    as_it_was = MemoryLog.describe

    def refuse(self: MemoryLog, topics: Iterable[str]) -> ClusterInfo:
        if topic in (names := list(topics)):
            raise error
        return as_it_was(self, names)

    monkeypatch.setattr(MemoryLog, "describe", refuse)


def test_records_whose_reading_fails_are_read_by_the_next_round(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoints(watched.memory.log, (BASE + 5, 12), group=GROUP)

    def fail(*_: object) -> NoReturn:
        raise Unreachable("No leader.")

    with monkeypatch.context() as patched:
        patched.setattr(records, "between", fail)
        watched.round()
    assert watched.grade() == (0, 5)
