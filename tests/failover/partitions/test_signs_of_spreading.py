"""Signs that a mirror spread the records over other partitions, and the bounds that follow from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Changed
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.writing.apply import prepare
from tests.in_memory import BASE, GROUP, Memory, anchor, content, found, stored
from tests.memory_log import MemoryLog

LATER_MS = 60_000


def spread(memory: Memory, partitions: int, *, sources: int = 2, later: bool = False, until: int = 30) -> None:
    """The source's records in time's order, in turn over the partitions; ``later``: stamped when they arrive."""
    memory.log.create("a.events", partitions)
    records = sorted((*content(number, origin), origin) for number in range(until) for origin in range(sources))
    for turn, (stamp, key, value, _) in enumerate(records):
        log = memory.log.partition("a.events", turn % partitions)
        log.append(stamp + LATER_MS if later else stamp, key, value, append_time=later)


@pytest.mark.parametrize("lagging", [0, 1, 2])
def test_an_anchor_that_lags_counts_as_replay_whether_its_partition_is_there_or_not(
    memory: Memory, lagging: int
) -> None:
    """What was processed since may lie in any partition."""
    spread(memory, 2, sources=3)
    rows = {partition: stored(4, partition) for partition in range(3)}
    memory.save(rows | {lagging: StoredOffset(BASE + 25, anchor(4, lagging))})
    job = memory.job()
    assert {row.finding for row in job.partitions} == {Verdict.EARLY}
    for row in job.partitions:
        end = memory.log.partition("a.events", row.partition).end
        assert row.resume_offset is not None
        assert row.replay_at_most == end - row.resume_offset


def test_a_brokers_own_times_do_not_show_that_a_partition_is_new(memory: Memory) -> None:
    """Where the destination stamps records when they arrive, all of them look newer than the anchors."""
    spread(memory, 3, later=True)
    memory.save({0: stored(20), 1: stored(21, 1)})
    assert Verdict.NEW not in {row.finding for row in memory.job().partitions}


def test_an_anchor_in_a_partition_of_another_number_shows_it_where_the_added_ones_hold_newer_records(
    wide: Memory,
) -> None:
    """By its records the third partition may be one that was added; by the second anchor it was not."""
    for number in range(10):
        wide.deliver(range(number, number + 1), 0)
        wide.deliver(range(number, number + 1), 0 if number < 6 else 1, origin=1)
    wide.deliver(range(20, 25), 2)
    wide.save({0: stored(4), 1: stored(5, 1)})
    assert {row.finding for row in wide.job().partitions} == {Verdict.EARLY}


@pytest.mark.parametrize("lag", [0, 3])
def test_a_topic_that_grew_replays_nothing_more_where_its_anchors_lag(wide: Memory, lag: int) -> None:
    """The anchors' records are in the partitions of their own numbers, and that is what counts."""
    for partition in (0, 1):
        wide.deliver(range(40), partition)
    wide.deliver(range(28, 40), 2)
    wide.save({partition: StoredOffset(BASE + 31 + lag, anchor(30, partition)) for partition in (0, 1)})
    verdict = Verdict.EARLY if lag else Verdict.EXACT
    rows = wide.job().partitions
    assert [found(row) for row in rows] == [(verdict, 31), (verdict, 31), (Verdict.NEW, 0)]
    assert [row.replay_at_most for row in rows] == [lag, lag, 12]


def test_a_log_that_is_written_again_is_no_longer_the_one_that_a_remapped_offset_rests_on(memory: Memory) -> None:
    spread(memory, 2, sources=3)
    memory.save({partition: stored(10 + partition, partition) for partition in range(3)})
    checked, config = memory.check(), memory.config()
    assert {row.finding for row in checked.plan.jobs[0].partitions} == {Verdict.EARLY}
    prepare(checked.plan, config, memory.outside)
    memory.log = MemoryLog("b", {"a.events": 2})
    spread(memory, 2, sources=2, until=50)
    with pytest.raises(Changed, match="another record is at"):
        prepare(checked.plan, config, memory.outside)


def test_an_increasing_id_that_other_partitions_have_too_does_not_show_it(wide: Memory) -> None:
    """Each partition counts its records for itself; one has lost its anchor by retention, and one was added."""
    for partition, numbers in enumerate((range(30), range(30), range(40, 45))):
        for number in numbers:
            stamp, key, value = content(number, partition)
            wide.log.partition("a.events", partition).append(stamp, key, value, (("id", b"%02d" % number),))
    wide.log.partition("a.events", 0).delete_before(20)
    wide.save({n: replace(stored(12, n), anchor=replace(anchor(12, n), id=b"12")) for n in (0, 1)})
    ids = '[jobs.identity]\nid = "header:id"\nid_order = "increasing"\n'
    job = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "memory:"\n{ids}'
    config = wide.config(jobs=job)
    rows = check(config, config.jobs, wide.outside).plan.jobs[0].partitions
    assert [found(row) for row in rows] == [(Verdict.LOST, 20), (Verdict.EXACT, 13), (Verdict.NEW, 0)]
