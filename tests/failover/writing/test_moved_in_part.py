"""Moves that write only some rows of a job: what the others say of its side, and when there is no way back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.verdicts import Verdict
from reconciler.failover.writing.apply import prepare
from reconciler.plan.document import Plan
from tests.in_memory import NOW, Memory, anchor, found, stored, write_all

ONE_NAME = '[topics]\npolicy = "identity"\n'


def at_other(number: int, partition: int) -> StoredOffset:
    """A row of the other cluster, whose numbers begin with record 0."""
    return StoredOffset(number + 1, replace(anchor(number, partition), offset=number), NOW - 9_000)


@pytest.fixture
def half(memory: Memory) -> Memory:
    """Under one name: of two partitions the offset of the first is right here, too; the mirror of the other is late."""
    memory.log.create("events", 2)
    memory.deliver(range(10), 0, topic="events")
    memory.deliver(range(3, 10), 1, topic="events")
    memory.save({0: at_other(4, 0), 1: at_other(4, 1)})
    return memory


def applied(memory: Memory, extra: str = "") -> Plan:
    plan, config = memory.check(extra).plan, memory.config(extra)
    write_all(prepare(plan, config, memory.outside), plan, config, memory.outside)
    return plan


def test_beside_a_corrected_row_one_that_is_right_is_written_too(half: Memory) -> None:
    """The two would have anchors of two clusters."""
    plan = applied(half, ONE_NAME)
    assert [found(row) for row in plan.jobs[0].partitions] == [(Verdict.EXACT, 5), (Verdict.EXACT, 2)]
    assert {row.key.partition: row.stored.cluster_id for row in half.rows()} == {0: "b", 1: "b"}
    assert not half.check(ONE_NAME).to_write


def test_rows_that_are_all_right_are_left_alone(half: Memory) -> None:
    half.save({1: at_other(4, 1)})
    half.log.create("events", 2)
    for partition in range(2):
        half.deliver(range(10), partition, topic="events")
    assert not half.check(ONE_NAME).to_write


def test_once_the_job_has_stored_an_offset_here_the_rows_that_are_right_are_written(half: Memory) -> None:
    """Every offset was right, so nothing was written when the job moved; it has stored one partition's since."""
    half.log.create("events", 2)
    for partition in range(2):
        half.deliver(range(10), partition, topic="events")
    own = replace(at_other(7, 1).anchor or anchor(7), cluster_id="b", topic_id="b/events")
    half.save({1: StoredOffset(8, own, NOW)})
    plan = applied(half, ONE_NAME)
    assert [found(row) for row in plan.jobs[0].partitions] == [(Verdict.EXACT, 5), (Verdict.EXACT, 8)]
    assert {row.key.partition: row.stored.cluster_id for row in half.rows()} == {0: "b", 1: "b"}
    assert not half.check(ONE_NAME).to_write


def test_topics_of_two_origins_with_one_name_need_not_have_as_many_partitions(memory: Memory) -> None:
    """``events`` of a, where a partition was added, is ``a.events`` on b, which has an ``events`` of its own."""
    memory.of_job = 'origins = ["a", "b"]\n'
    memory.log.create("a.events", 2)
    memory.log.create("events", 1)
    for topic, partition in (("a.events", 0), ("a.events", 1), ("events", 0)):
        memory.deliver(range(10), partition, topic=topic)
    memory.save({0: stored(4), 1: stored(4, 1)})
    memory.save({0: stored(4)}, topic="b.events")
    memory.apply('[state]\nstore = "memory:"\n')
    offsets = {str(row.key): row.stored.offset for row in memory.rows()}
    assert {offsets[key] for key in ("a.events-0", "a.events-1", "events-0")} == {5}
