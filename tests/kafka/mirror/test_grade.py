"""MirrorMaker's offset against the proven one: the records that a start there would read again or skip."""

from __future__ import annotations

import pytest

from reconciler.core.anchors import RECORD_TIME_ONLY
from reconciler.core.mirror_pairs import MirrorCheckpoint
from reconciler.kafka.mirror import grade
from reconciler.kafka.mirror.grade import Grade, Graded, count_unread, grades, own_offset
from reconciler.ports import TopicPartition
from tests.in_memory import content
from tests.memory_log import MemoryLog

THERE = TopicPartition("a.events", 0)


def graded(numbers: list[int], proven: int, own: int) -> Grade:
    """The grade where the destination holds copies of these records, by number."""
    log = MemoryLog("b", {"a.events": 1})
    for number in numbers:
        log.partition("a.events", 0).append(*content(number))
    return grades(log, RECORD_TIME_ONLY, {THERE: Graded(proven, proven, own)})[THERE]


@pytest.mark.parametrize(
    ("numbers", "proven", "own", "expected"),
    [
        ([*range(10)], 5, 5, Grade(0, 0)),
        ([*range(10)], 5, 2, Grade(3, 0)),
        ([*range(10)], 5, 9, Grade(0, 4)),
        # Sent again from 3, and cut off by the disaster: 5 to 9 are only where they were first.
        ([*range(10), 3, 4], 5, 12, Grade(0, 5)),
        # Sent again as far as 7: 8 and 9 are still missing behind MirrorMaker's place.
        ([*range(10), 3, 4, 5, 6, 7], 5, 12, Grade(0, 2)),
        # Sent again to the end, and on: every record follows.
        ([*range(10), *range(3, 12)], 5, 12, Grade(0, 0)),
        # Of records that were sent again before MirrorMaker's place none counts twice, and 3 and 4 not at all.
        ([*range(10), 3, 4, 5, 3, 4], 5, 15, Grade(0, 5)),
    ],
)
def test_a_start_at_mirrormakers_offset(numbers: list[int], proven: int, own: int, expected: Grade) -> None:
    assert graded(numbers, proven, own) == expected


def test_within_a_bound_nothing_is_said_to_be_skipped() -> None:
    """The next record is anywhere from 3 to 6, so a start at 5 may be right."""
    assert grades(MemoryLog("b", {}), RECORD_TIME_ONLY, {THERE: Graded(3, 6, 5)}) == {THERE: Grade(0, 0)}


def test_where_too_much_lies_between_every_offset_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grade, "MOST_COMPARED", 3)
    assert graded([*range(10), *range(3, 12)], 5, 12) == Grade(0, 7, is_counted=False)


def test_equal_records_that_follow_are_taken_for_copies() -> None:
    assert count_unread([0, 1], [2, 3, 1, 9], {2}) == 1


def test_a_checkpoint_for_a_later_offset_is_not_compared() -> None:
    checkpoints = [MirrorCheckpoint("g", 700, 10), MirrorCheckpoint("g", 705, 12), MirrorCheckpoint("g", 720, 30)]
    assert own_offset(checkpoints, 706) == checkpoints[1]
    assert own_offset(checkpoints, 699) is None
