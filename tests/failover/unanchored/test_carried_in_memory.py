"""A job that stored numbers alone, and a mirror that writes the source's offset into the records: check and apply."""

from __future__ import annotations

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.writing.apply import prepare
from tests.in_memory import BASE, GROUP, NOW, Memory, content, read_back, write_all

JOB = f'''
[[jobs]]
home = "a"
name = "clicks"
group = "{GROUP}"
topics = ["events"]
offsets = "memory:"
[jobs.identity]
source_offset = "header:source-offset"
'''


def checked(memory: Memory, extra: str = "") -> Checked:
    config = memory.config(extra, jobs=JOB)
    return read_back(check(config, config.jobs, memory.outside))


@pytest.fixture
def carrying(memory: Memory) -> Memory:
    for number in range(3, 10):
        stamp, key, value = content(number)
        memory.log.partition("a.events", 0).append(stamp, key, value, (("source-offset", b"%d" % (BASE + number)),))
    memory.save({0: StoredOffset(BASE + 7)})
    return memory


@pytest.mark.parametrize("policy", ["mirror", "row-time", "stop"])
def test_the_job_resumes_at_the_next_record_whatever_the_policy_for_rows_without_anchor(
    carrying: Memory, policy: str
) -> None:
    (row,) = checked(carrying, f'[policy]\nno_anchor = "{policy}"').plan.jobs[0].partitions
    assert (row.finding, row.resume_offset, row.replay_exact) == (Verdict.EXACT, 4, 0)


def test_apply_writes_the_place_with_an_anchor_and_the_next_check_changes_nothing(carrying: Memory) -> None:
    plan, config = checked(carrying).plan, carrying.config(jobs=JOB)
    write_all(prepare(plan, config, carrying.outside), plan, config, carrying.outside)
    carrying.moved = True
    (row,) = checked(carrying).plan.jobs[0].partitions
    assert (row.finding, row.resume_offset, row.matched_by) == (Verdict.EXACT, 4, "fingerprint")


def test_a_row_that_was_numbered_by_a_destination_before_this_one_is_not_compared_with_what_records_carry(
    carrying: Memory,
) -> None:
    """Its anchor's offset is that cluster's, and says nothing of the setting."""
    record = carrying.log.partition("a.events", 0).records[4]
    own = Anchor(31, record.timestamp_ms, None, fingerprint(record.key, record.value), "before b", "b/a.events")
    carrying.save({0: StoredOffset(32, own, NOW)}, topic="a.events")
    carrying.moved = True
    (row,) = checked(carrying).plan.jobs[0].partitions
    assert (row.finding, row.resume_offset) == (Verdict.EXACT, 5)


def test_numbers_that_every_partition_carries_do_not_show_that_records_were_spread(wide: Memory) -> None:
    """Retention has passed one partition's place, and a partition was added: the others stay as they are."""
    for partition, numbers in enumerate((range(30), range(30), range(40, 45))):
        for number in numbers:
            stamp, key, value = content(number, partition)
            carried = (("source-offset", b"%d" % (BASE + number)),)
            wide.log.partition("a.events", partition).append(stamp, key, value, carried)
    wide.log.partition("a.events", 0).delete_before(20)
    wide.save({0: StoredOffset(BASE + 10), 1: StoredOffset(BASE + 12)})
    rows = checked(wide).plan.jobs[0].partitions
    expected = [(Verdict.LOST, 20), (Verdict.EXACT, 12), (Verdict.NEW, 0)]
    assert [(row.finding, row.resume_offset) for row in rows] == expected
