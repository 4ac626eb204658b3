"""Check jobs: search every destination partition for its stored offset, and make a plan of the findings.

A job's store is read once, its partitions are searched in a few passes (``passes``), and its rows come back as a plan.
A checkpoint that repeats a batch has a second position a partition, which is checked in the same way (``positions``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from reconciler import __version__
from reconciler.clock import stamp
from reconciler.config.file import Config, Job
from reconciler.core.errors import Changed, ReconcilerError
from reconciler.core.verdicts import Position, Verdict
from reconciler.failover.checking import positions
from reconciler.failover.checking.decisions import refuse_several_places, refuse_several_verdicts, refuse_unknown
from reconciler.failover.checking.gather import (
    GatheredJob,
    JobRows,
    Key,
    gather,
)
from reconciler.failover.checking.numbers import read_rows
from reconciler.failover.checking.passes import Passes
from reconciler.failover.checking.questions import questions_of
from reconciler.failover.checking.rows import job_plan, to_write
from reconciler.failover.outside import ByHand, Outside
from reconciler.kafka.engine import EngineSettings
from reconciler.plan.document import JobPlan, NotJudged, PartitionPlan, Plan, StartPolicy
from reconciler.plan.rows import SinkRow
from reconciler.plan.start import why_stopped
from reconciler.ports import ClusterInfo, LogReader, separate_reads
from reconciler.waits import in_thread


@dataclass(frozen=True, slots=True)
class Checked:
    """A plan, the (job name, destination partition) of every row that must be written first, and what was stored.

    ``failed`` has the jobs that could not be judged (``apart.check_each``), each with its cause. ``to_reanchor``: rows
    that are right, that no start waits for, and whose anchor a move replaces with the destination's.
    """

    plan: Plan
    to_write: frozenset[Key]
    jobs: tuple[GatheredJob, ...] = ()
    failed: Mapping[str, ReconcilerError] = field(default_factory=dict)
    to_reanchor: frozenset[Key] = frozenset()

    def stopped(self, policy: StartPolicy) -> list[PartitionPlan | SinkRow]:
        """The partitions that need a decision before their job may start, and the sinks that forbid it."""
        return [*(row for row in self.deciding if why_stopped(row, policy) is not None), *self.stopping_sinks]

    @property
    def stopping_sinks(self) -> list[SinkRow]:
        return [row for job in self.plan.jobs for row in job.sinks if row.stops]

    @property
    def why_not(self) -> str:
        """Why the jobs must not start, as a clause."""
        return "a sink would lose or double records" if self.stopping_sinks else "a partition needs a decision"

    @property
    def deciding(self) -> list[PartitionPlan]:
        """The rows that decide whether the jobs may start: for the hook, for ``check``, ``plan`` and ``watch``."""
        return [row for job in self.plan.jobs for row in self.decided(job).partitions]

    @property
    def right(self) -> int:
        """The number of rows of ``to_write`` that keep their offset, and only get the destination's name or anchor."""
        rows = [(job.name, row) for job in self.plan.jobs for row in job.partitions]
        wrong = {(name, row.key) for name, row in rows if row.stored_offset != row.resume_offset}
        return len(self.to_write - wrong)

    def decided(self, job: JobPlan) -> JobPlan:
        """A job of the plan, with the rows that decide whether it may start.

        Where nothing of it is to be corrected the query repeats its batch by itself: the batch ends at the same record
        here, or it was begun here. A proof of its end decides nothing then, nor does what a copy would read again.
        """
        has_ends = any(row.position == Position.END for row in job.partitions)
        return job.starts if has_ends and all(name != job.name for name, _ in self.to_write) else job

    def shown(self, policy: StartPolicy) -> Plan:
        """The plan for the operator. Ends of a batch that forbid a copy alone, and not the start, are left out."""
        jobs = (self.decided(job) if self._only_copy_stops(job, policy) else job for job in self.plan.jobs)
        return replace(self.plan, jobs=tuple(jobs))

    def _only_copy_stops(self, job: JobPlan, policy: StartPolicy) -> bool:
        """True for a job with rows that forbid a copy of its checkpoint, but not a start where it is."""
        ends = (row for row in job.partitions if row.position == Position.END)
        return self.decided(job) is not job and any(why_stopped(row, policy) is not None for row in ends)


def check(config: Config, jobs: Sequence[Job], outside: Outside, by_hand: ByHand | None = None) -> Checked:
    """Find the verdict of every partition of ``jobs``, at each of its positions. Reads only.

    A checkpoint that repeats a batch has rows for ``start`` and ``end``. A decision of the operator is about where the
    next records are read: it sets the start, and the batch is repeated empty. A partition that the batch was the first
    to read, and that the destination lacks, has an ``end`` alone.

    Raises ``ConfigError`` for topics that exist nowhere and for a destination that is the source, ``Changed`` for
    topics recreated meanwhile, ``Unreachable`` and ``Refused`` for clusters and stores, ``SeveralJobs`` for a decision
    that fits more than one job.
    """
    by_hand = by_hand or ByHand()
    refuse_several_places(config, jobs, by_hand)
    starts = _search(config, jobs, outside, by_hand)
    plans = {job.name: job for job in starts.plans}
    refuse_several_verdicts(by_hand, plans.values())
    if ending := positions.end_jobs(config, jobs):
        lacking = ByHand(accepted=by_hand.accepted & {Verdict.UNRESOLVED})
        ends = _search(config, [job for job, _ in ending], outside, lacking).plans
        furthest = {job.name: uneven for job, uneven in ending}
        plans |= {job.name: positions.with_end_rows(plans[job.name], job, furthest[job.name]) for job in ends}
    written, to_reanchor = to_write(plans, starts.gathered, starts.cluster_id, config)
    if any(config.chosen(name)[0].sinks for name in plans):
        from reconciler.failover.sinks.judging import (
            with_sinks,  # jobs without sinks start without these rooms
        )

        plans = with_sinks(config, plans, (name for name, _ in written))
    plan = plan_of(config, outside.now_ms(), starts.cluster_id, starts.gathered, [plans[job.name] for job in jobs])
    return Checked(plan, written, tuple(starts.gathered), to_reanchor=to_reanchor)


def plan_of(
    config: Config,
    now_ms: int,
    cluster_id: str,
    gathered: Sequence[GatheredJob],
    jobs: Sequence[JobPlan],
    not_judged: Sequence[NotJudged] = (),
) -> Plan:
    """The plan made at ``now_ms`` of what was found for ``jobs``."""
    return Plan(
        tool_version=__version__,
        created_at=stamp(now_ms),
        expires_at=stamp(now_ms + config.policy.plan_expires_ms),
        source_name=config.here,
        destination_name=config.there,
        source_cluster_id=_source_cluster(gathered, cluster_id),
        bootstrap_servers=config.destination.bootstrap_servers,
        cluster_id=cluster_id,
        jobs=tuple(jobs),
        not_judged=tuple(not_judged),
        policy=config.policy.start,
    )


def _source_cluster(jobs: Sequence[GatheredJob], destination: str) -> str | None:
    """The cluster most anchors come from, if not the destination."""
    ids = [
        place.selected.stored.anchor.cluster_id
        for gathered in jobs
        for place in gathered.places
        if place.selected.stored is not None and place.selected.stored.anchor is not None
    ]
    others = sorted({found for found in ids if found is not None and found != destination})
    return max(others, key=ids.count, default=None)


@dataclass(frozen=True, slots=True)
class _Searched:
    """The stored rows and the planned rows of every job: one position a partition, with the operator's decisions."""

    cluster_id: str
    gathered: Sequence[GatheredJob]
    plans: Sequence[JobPlan]


def _search(config: Config, jobs: Sequence[Job], outside: Outside, by_hand: ByHand) -> _Searched:
    """Read the jobs' stores, and search the destination for what they hold."""
    topics = {config.topics.destination_of(topic) for job in jobs for topic in job.topics}
    reader = outside.patient(config.search)
    near = outside.near_topics()
    cluster, stored = _described_and_stored(config, jobs, outside, reader, topics)
    gathered = [gather(config, stored.pop(0), cluster, near) for _ in jobs]
    places = [found for job in gathered for found in job.places]
    if by_hand.offsets:
        refuse_unknown(by_hand, places)
    questions = questions_of(config, places, cluster.cluster_id, reader, outside.now_ms())
    passes = Passes(outside, reader, EngineSettings(config.search.deadline_s, outside.on_progress), questions)
    found = passes.by_anchor_or_time(gathered)
    if any(at.left is not None for at in places):
        from reconciler.failover.checking import undelivered  # only jobs that come back need it

        found |= undelivered.find_undelivered(config, outside, cluster, places, questions, found)
    by_person = passes.by_hand(by_hand, places, found)
    described = in_thread(lambda: reader.describe(topics))  # while the rows are made
    plans = [job_plan(config, job, found, by_person, by_hand, near) for job in gathered]
    _refuse_recreated(cluster, described())
    return _Searched(cluster.cluster_id, gathered, plans)


def _described_and_stored(
    config: Config, jobs: Sequence[Job], outside: Outside, reader: LogReader, topics: Iterable[str]
) -> tuple[ClusterInfo, list[JobRows]]:
    """The destination and the content of the jobs' stores, read at the same time."""
    described = in_thread(partial(_describe, outside, reader, topics))
    try:
        stored = [read_rows(config, job, outside) for job in jobs]
    except Exception:
        described()  # an error of the destination comes first: it concerns all jobs
        raise
    return described(), stored


def _describe(outside: Outside, reader: LogReader, topics: Iterable[str]) -> ClusterInfo:
    """The destination and its topics."""
    cluster = reader.describe(topics)
    if (log := separate_reads(outside.reader)) is not None:
        log.expect(cluster.topics)
    return cluster


def _refuse_recreated(before: ClusterInfo, after: ClusterInfo) -> None:
    """Raise Changed for a topic that was replaced while it was checked: the findings do not hold for the new one."""
    for name in sorted({*before.topics, *after.topics}):
        ids = [each.topic_id(name) for each in (before, after)]
        if ids[0] != ids[1] or before.cluster_id != after.cluster_id:
            raise Changed(
                f'The topic "{name}" was deleted or recreated while it was checked '
                f"(its id was {ids[0]}, now {ids[1]}).",
                hint="Run this again once the topics are stable.",
            )
