"""A mirror sent a stretch again: what the plan says of it, and what apply checks before it writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.writing.apply import prepare
from tests.in_memory import BASE, GROUP, Memory, anchor, read_back, write_all

JOB = f'''
[[jobs]]
home = "a"
name = "clicks"
group = "{GROUP}"
topics = ["events"]
offsets = "memory:"
[jobs.identity]
id = "key"
'''
UNIQUE = JOB + "unique_ids = true\n"


def checked(memory: Memory, job: str) -> Checked:
    config = memory.config(jobs=job)
    return read_back(check(config, config.jobs, memory.outside))


@pytest.fixture
def memory_sent_again(memory: Memory) -> Memory:
    """Records 0 to 9, then 3 to 5 again, when the mirror stopped for good. The job had processed up to 9."""
    memory.deliver(range(10))
    memory.deliver(range(3, 6))
    memory.save({0: StoredOffset(BASE + 10, replace(anchor(9), id=b"k9"))})
    return memory


def test_the_plan_steps_over_where_ids_are_said_to_be_unique(memory_sent_again: Memory) -> None:
    (row,) = checked(memory_sent_again, UNIQUE).plan.jobs[0].partitions
    assert (row.finding, row.resume_offset, row.replay_exact, row.record_offset) == (Verdict.EXACT, 13, 0, 12)
    (row,) = checked(memory_sent_again, JOB).plan.jobs[0].partitions
    assert (row.resume_offset, row.replay_at_most) == (10, 3)


def test_apply_writes_it_and_the_next_check_changes_nothing(memory_sent_again: Memory) -> None:
    memory, plan = memory_sent_again, checked(memory_sent_again, UNIQUE).plan
    config = memory.config(jobs=UNIQUE)
    write_all(prepare(plan, config, memory.outside), plan, config, memory.outside)
    memory.moved = True
    (row,) = checked(memory, UNIQUE).plan.jobs[0].partitions
    assert (row.finding, row.resume_offset, row.replay_exact) == (Verdict.EXACT, 13, 0)
