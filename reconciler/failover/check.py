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
from reconciler.config.file import Config, Job, SearchSettings
from reconciler.core.errors import Changed, ReconcilerError
from reconciler.core.question import Limits
from reconciler.core.reconcile import NO_OFFSET
from reconciler.core.verdicts import Finding, Position, Verdict
from reconciler.failover import positions
from reconciler.failover.corrections import Corrections
from reconciler.failover.decisions import accepts, refuse_several_places, refuse_several_verdicts
from reconciler.failover.gather import (
    GatheredJob,
    JobPartition,
    Key,
    gather,
    question_of,
    source_cluster,
    with_earlier_stay,
)
from reconciler.failover.numbers import JobRows, read_rows
from reconciler.failover.outside import ByHand, Outside, WrongDecision
from reconciler.failover.passes import Found, Passes, is_handed_over, names_to_set, topics_there, unresolved
from reconciler.failover.unanchored import mirror_evidence
from reconciler.kafka import engine
from reconciler.kafka.engine import EngineSettings
from reconciler.near import NearTopics
from reconciler.plan.document import JobPlan, NotJudged, PartitionPlan, Plan, StartPolicy
from reconciler.plan.rows import SinkRow
from reconciler.plan.start import why_stopped
from reconciler.ports import ClusterInfo, LogReader, separate_reads
from reconciler.waits import in_thread

TAIL_TOTAL = 200_000
"""Records read behind resume points to count replays, over all partitions of a run: about half a second's work."""
TAIL_LEAST = 100


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
    to_write, to_reanchor = _to_write(plans, starts, config)
    if any(config.chosen(name)[0].sinks for name in plans):
        from reconciler.failover.sinks.judging import (
            with_sinks,  # jobs without sinks start without these rooms
        )

        plans = with_sinks(config, plans, (name for name, _ in to_write))
    plan = plan_of(config, outside.now_ms(), starts.cluster_id, starts.gathered, [plans[job.name] for job in jobs])
    return Checked(plan, to_write, tuple(starts.gathered), to_reanchor=to_reanchor)


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
        source_cluster_id=source_cluster(gathered, cluster_id),
        bootstrap_servers=config.destination.bootstrap_servers,
        cluster_id=cluster_id,
        jobs=tuple(jobs),
        not_judged=tuple(not_judged),
        policy=config.policy.start,
    )


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
    _refuse_unknown(by_hand, places)
    limits = {job.name: _limits(config.search_of(job), len(places)) for job in jobs}
    mirror = mirror_evidence(config, places, reader)
    now_ms = outside.now_ms()
    questions = {
        at.key: question_of(config, at, cluster.cluster_id, limits[at.job.name], now_ms, mirror.get(at.key))
        for at in places
        if at.exists
    }
    passes = Passes(outside, reader, EngineSettings(config.search.deadline_s, outside.on_progress), questions)
    found = passes.by_anchor_or_time(gathered)
    if any(at.unread_from is not None for at in places):
        from reconciler.failover import undelivered  # only jobs that come back need it

        found |= undelivered.find_undelivered(config, outside, cluster, places, questions, found)
    by_person = passes.by_hand(by_hand, places, found)
    described = in_thread(lambda: reader.describe(topics))  # while the rows are made
    plans = [_job_plan(config, job, found, by_person, by_hand, near) for job in gathered]
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


def _to_write(plans: Mapping[str, JobPlan], starts: _Searched, config: Config) -> tuple[frozenset[Key], frozenset[Key]]:
    """The rows that are corrected, and the rows of ``Checked.to_reanchor``.

    A partition that came with a batch is corrected: a copy leaves out what is missing. The end of a batch is corrected
    with the batch's start, if that is not numbered here.
    """
    selected = {at.key: at.selected for job in starts.gathered for at in job.places}
    made = {job.job.name: Corrections.of(config, job.job, starts.cluster_id) for job in starts.gathered}
    found: set[Key] = set()
    to_reanchor: set[Key] = set()
    for name, job in plans.items():
        keyed = [((name, row.key), row) for row in job.partitions]
        rows = [(key, row) for key, row in keyed if row.position != Position.END and key in selected]
        written = {key for key, row in rows if made[name].include(row, selected[key])}
        right = [(row, selected[key]) for key, row in rows if key not in written]
        to_reanchor |= {(name, row.key) for row, _ in made[name].rows_to_reanchor(right)} - written
        found |= written | {key for key, _ in keyed if key not in selected}
    return frozenset(found), frozenset(to_reanchor)


def _limits(search: SearchSettings, partitions: int) -> Limits:
    tail = min(max(TAIL_LEAST, TAIL_TOTAL // max(partitions, 1)), search.scan_records)
    return Limits(search.max_disorder_ms, search.scan_records, tail)


def _choices(topic: str, places: Sequence[JobPartition]) -> str:
    """A hint: the partitions that a --set may name of its topic, else the topics."""
    numbers = [
        at.destination.partition for at in places if at.exists and topic in (at.source.topic, at.destination.topic)
    ]
    if numbers:
        return f"{topic} has the partitions {min(numbers)} to {max(numbers)}."
    return f"Topics: {', '.join(sorted({at.destination.topic for at in places}))}."


def _refuse_unknown(by_hand: ByHand, places: Sequence[JobPartition]) -> None:
    there = topics_there(places) if by_hand.offsets else frozenset()
    known = {(tp.topic, tp.partition) for at in places if at.exists for tp in names_to_set(at, there)}
    for topic, partition in by_hand.offsets:
        if (topic, partition) not in known:
            raise WrongDecision(
                f"--set {topic}:{partition}: the chosen jobs have no such partition on the destination.",
                hint=_choices(topic, places),
            )


# ---------------------------------------------------------------- rows


def _job_plan(
    config: Config,
    gathered: GatheredJob,
    found: Mapping[Key, Found],
    by_person: Mapping[Key, Found],
    by_hand: ByHand,
    near: NearTopics,
) -> JobPlan:
    by_topic: dict[str, list[JobPartition]] = {}
    for at in gathered.places:
        by_topic.setdefault(at.source.topic, []).append(at)
    folded = {
        topic
        for topic, places in by_topic.items()
        if is_handed_over(places) or any(at.key in found and found[at.key].finding.spread for at in places)
    }
    without_rows = {topic for topic, places in by_topic.items() if _lacks_rows(places, found)}
    rows = []
    for at in gathered.places:
        if at.source.topic in without_rows:
            rows.append(_without_rows(at, _row(at, found[at.key], by_person.get(at.key), by_hand)))
        elif at.key in found:
            rows.append(_row(at, found[at.key], by_person.get(at.key), by_hand))
        elif at.fault:
            rows.append(_row(at, unresolved(at.fault), None, by_hand))
        elif (at.own or at.source.topic not in folded) and not (at.is_new and _has_partitions(by_topic, at)):
            rows.append(_row(at, _missing(at, near), None, by_hand))
    lives = config.there if gathered.job.moved else config.here
    job = gathered.job
    return JobPlan(job.name, job.group, gathered.store, tuple(rows), lives=lives).under(config.own_policy(job.name))


def _has_partitions(by_topic: Mapping[str, Sequence[JobPartition]], at: JobPartition) -> bool:
    """True if the destination has the place's topic. Then an unread partition that it lacks has nothing to hand out."""
    return any(each.exists for each in by_topic[at.source.topic])


def _lacks_rows(places: Sequence[JobPartition], found: Mapping[Key, Found]) -> bool:
    """True for a topic with records, of which the store holds no row at all."""
    findings = [found[at.key].finding for at in places if at.no_rows and at.key in found]
    return any(finding.replay_at_most or finding.record_offset is not None for finding in findings)


def _without_rows(at: JobPartition, row: PartitionPlan) -> PartitionPlan:
    # It stops unless the operator says that the job is new: "starts" would contradict that.
    detail = row.detail.replace(NO_OFFSET, at.no_rows, 1).replace(": starts at", ": would start at", 1)
    return replace(row, no_rows=row.finding is Verdict.NEW, detail=detail)  # not where its records cannot be read


def _missing(at: JobPartition, near: NearTopics) -> Found:
    detail = f"the destination has no partition {at.destination.partition}"
    if not at.topic_id:
        there = near.of(at.destination.topic, at.source.topic)
        detail = f'the destination has no topic "{at.destination.topic}"' + (f"; it has {there}" if there else "")
    return engine.SearchResult(Finding(Verdict.UNRESOLVED, None, detail=detail, absent=True), 0, 0)


def _row(at: JobPartition, found: Found, by_person: Found | None, decided: ByHand) -> PartitionPlan:
    finding, by_hand, probes, rounds = found.finding, False, found.probes, found.rounds
    if at.selected.row is not None and at.selected.row.note:
        finding = replace(finding, detail=f"{finding.detail}; {at.selected.row.note}")
    if by_person is not None:
        proven = "" if finding.resume_offset is None else f" (proven: {finding.resume_offset})"
        beyond = proven if by_person.finding.skips else ""
        detail = f"{by_person.finding.detail}{beyond}; found: {finding.detail}"
        finding, by_hand = replace(by_person.finding, verdict=finding.verdict, detail=detail), True
        probes, rounds = probes + by_person.probes, rounds + by_person.rounds
    elif accepts(decided, finding) or accepts(decided, with_earlier_stay(at, finding)):
        finding, by_hand = replace(finding, detail=f"accepted by hand: {finding.detail}"), True
    finding = with_earlier_stay(at, finding)
    return PartitionPlan.of(
        finding,
        source_topic=at.source.topic,
        key=at.destination,
        topic_id=at.topic_id,
        stored=at.selected.stored,
        probes=probes,
        rounds=rounds,
        set_by_hand=by_hand,
        skips_accepted=decided.skips and finding.skips is not None,
    )
