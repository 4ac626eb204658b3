"""A job's own [jobs.policy] and [jobs.search] count before the tables of all jobs, in every step of a move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.cli.page.page import page
from reconciler.core.anchors import StoredOffset
from reconciler.core.json_fields import FieldError
from reconciler.core.question import Behind, NoAnchor
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.writing.apply import prepare
from reconciler.plan.document import JobPlan, StartPolicy
from reconciler.plan.start import why_stopped
from tests.in_memory import BEGIN, Memory, memory, read_back

__all__ = ["memory"]

SETTINGS = '[policy]\nmax_replay = 0\nno_anchor = "row-time"\n[search]\nmax_disorder = "3s"\n'
JOB = '[[jobs]]\nhome = "a"\nname = "{0}"\ntopics = ["events"]\noffsets = "memory:"\n'
OWN = '[jobs.policy]\nbehind = "wait"\nmax_replay = 100\n[jobs.search]\nmax_disorder = "1s"\n'


def save(memory: Memory, *jobs: str) -> None:
    for job in jobs:
        memory.save({0: StoredOffset(705, written_at_ms=BEGIN + 4_500)}, group=job)


def test_only_the_job_with_a_policy_of_its_own_may_read_so_many_records_again(memory: Memory) -> None:
    """Both jobs store the same number, which the time of its row locates: `max_disorder` earlier."""
    memory.deliver(range(20))
    save(memory, "strict", "own")
    config = memory.config(SETTINGS, JOB.format("strict") + JOB.format("own") + OWN)
    (strict, own) = config.jobs
    assert config.policy_of(own) == replace(config.policy, start=StartPolicy(Behind.WAIT, 100))
    assert config.search_of(own) == replace(config.search, max_disorder_ms=1_000)
    assert (config.policy_of(strict), config.search_of(strict)) == (config.policy, config.search)

    checked = read_back(check(config, config.jobs, memory.outside))
    plans = {job.name: job for job in checked.plan.jobs}
    replays = {name: job.partitions[0].replay_at_most for name, job in plans.items()}
    assert 0 < (replays["own"] or 0) < (replays["strict"] or 0)
    stopped = {job.name for job in checked.plan.jobs for row in job.partitions if why_stopped(row, checked.plan.policy)}
    assert stopped == {"strict"}
    assert [change.is_refused for change in prepare(checked.plan, config, memory.outside)] == [True, False]

    shown = page(checked.plan, checked.plan.policy, sha256="")
    assert "behind = start, max_replay = 0 records; own: behind = wait, max_replay = 100 records" in shown

    now = memory.config(SETTINGS, JOB.format("strict") + JOB.format("own"))
    assert {each.is_refused for each in prepare(checked.plan, now, memory.outside)} == {True}, (
        "a plan decides nothing: the configuration's policy does"
    )


def test_without_anchor_one_job_stops_and_the_other_goes_by_its_rows_time(memory: Memory) -> None:
    memory.deliver(range(20))
    save(memory, "timed", "never")
    config = memory.config(SETTINGS, JOB.format("timed") + JOB.format("never") + '[jobs.policy]\nno_anchor = "stop"\n')
    assert config.policy_of(config.jobs[1]).no_anchor is NoAnchor.STOP
    found = {job.name: job.finding for job in check(config, config.jobs, memory.outside).plan.jobs}
    assert found == {"timed": Verdict.EARLY, "never": Verdict.UNRESOLVED}


def test_a_plan_whose_job_has_a_policy_and_no_partition_is_not_one_of_this_product() -> None:
    content = JobPlan("clicks", "clicks", "memory:", ()).to_json()
    with pytest.raises(FieldError, match="policy is of no partition"):
        JobPlan.from_json({**content, "policy": {"behind": "start", "max_replay": 1}}, "job")
