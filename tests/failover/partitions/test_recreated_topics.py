"""Topics that were deleted and recreated: before a check, while it runs, while its plan is applied."""

from __future__ import annotations

from reconciler.core.anchors import StoredOffset
from reconciler.core.verdicts import Verdict
from tests.in_memory import BASE, Memory, anchor, content, found, stored


def test_a_topic_recreated_is_searched_and_not_trusted(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: memory.own(8)}, topic="a.events")
    memory.moved = True
    memory.log.create("a.events", 1, topic_id="another")
    memory.deliver(range(5, 10))
    assert found(memory.row()) == (Verdict.EARLY, 1), "record 6 has the anchor's time and may be new"


def test_a_topic_recreated_with_more_partitions_is_spread_anew_also_for_a_job_that_was_handed_over(
    memory: Memory,
) -> None:
    memory.log.create("a.events", 2)
    memory.deliver(range(0, 40, 2), 0)
    memory.deliver(range(1, 40, 2), 1)
    memory.save({0: stored(0), 1: stored(1, 1)})
    memory.save({0: memory.own(6), 1: memory.own(18, 1)}, topic="a.events")  # after the records 10 and 35
    memory.moved = True
    memory.log.create("a.events", 4, topic_id="another")
    for number in range(40):
        memory.deliver(range(number, number + 1), number * 7 // 3 % 4, origin=number % 2)
    rows = memory.job().partitions
    assert [row.finding for row in rows] == [Verdict.EARLY] * 4
    unread = {content(number)[1] for number in range(11, 40) if number % 2 == 0 or number > 35}
    resume = {row.partition: row.resume_offset or 0 for row in rows}
    read = {
        record.key
        for at, log in memory.log.partitions.items()
        for record in log.records
        if record.offset >= resume[at.partition]
    }
    assert unread <= read


def test_where_records_were_spread_anew_an_offset_behind_its_own_anchor_gives_no_time(memory: Memory) -> None:
    """Somebody has set the offset back, and has left the anchor as it was."""
    memory.log.create("a.events", 2)
    for number in range(30):
        for origin in range(3):
            memory.deliver(range(number, number + 1), (number + origin) % 2, origin=origin)
    memory.save({0: StoredOffset(BASE + 2, anchor(20)), 1: stored(20, 1), 2: stored(20, 2)})
    rows = memory.job().partitions
    assert [row.finding for row in rows] == [Verdict.UNRESOLVED, Verdict.UNRESOLVED, Verdict.UNRESOLVED]
    assert "a stored offset is before its own anchor" in rows[0].detail
