"""The report of a check: the plan's rows of what was found, and which of them are to be written. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.config.file import Config, Job
from reconciler.core.question import StartPlace
from reconciler.core.reconcile import NO_OFFSET
from reconciler.core.text import counted
from reconciler.core.verdicts import Finding, Position, Verdict
from reconciler.failover.checking.decisions import accepts
from reconciler.failover.checking.gather import GatheredJob, JobPartition, Key, Selected
from reconciler.failover.checking.passes import Found, is_handed_over, unresolved
from reconciler.failover.outside import ByHand
from reconciler.kafka import engine
from reconciler.near import NearTopics
from reconciler.places.registry import traits
from reconciler.plan.document import JobPlan, PartitionPlan
from reconciler.ports import Row, Traits


def job_plan(
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
    elif accepts(decided, finding) or accepts(decided, _with_earlier_stay(at, finding)):
        finding, by_hand = replace(finding, detail=f"accepted by hand: {finding.detail}"), True
    finding = _with_earlier_stay(at, finding)
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


def _with_earlier_stay(place: JobPartition, finding: Finding) -> Finding:
    """The finding, whose replay also counts what the job has processed here in an earlier stay, from its offset on.

    These records were not on the other cluster when the job left, so its progress there does not count them.
    """
    finding = _with_this_stay(place, finding)
    resume = finding.resume_offset
    if place.left is None or resume is None or resume >= place.left.furthest:
        return finding
    more = place.left.furthest - resume
    done = f"up to {counted(more, 'record')} from there on processed before the job left this cluster"
    at_most = (finding.replay_at_most or 0) + more
    return replace(finding, replay_at_most=at_most, replay_exact=None, detail=f"{finding.detail}; {done}")


def _with_this_stay(place: JobPartition, finding: Finding) -> Finding:
    """The finding, whose replay also counts what may be processed beyond the stored number (``state.stored``)."""
    found, resume = place.selected, finding.resume_offset
    more = found.ahead if finding.verdict is Verdict.NEW and not place.own else found.again
    if place.own and more and resume is not None and place.stored_offset is not None:
        more = max(0, place.stored_offset + more - resume)
    if resume is None or not more:
        return finding
    is_early = not place.own and finding.verdict in (Verdict.NEW, Verdict.EXACT)
    return replace(
        finding,
        verdict=Verdict.EARLY if is_early else finding.verdict,
        replay_at_most=(finding.replay_at_most or 0) + more,
        replay_exact=None,
        detail=f"{finding.detail}; up to {counted(more, 'record')} after the stored offset may be processed",
    )


# ---------------------------------------------------------------- what is written

Planned = tuple[PartitionPlan, Selected]
"""A plan's row, and the stored rows that it is about."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """The rules by which a job's rows are corrected at the destination.

    ``new``: a new partition gets a row, since the job may start it elsewhere without one. A job that starts at the
    earliest needs none: it starts there without a row, also after retention has moved the earliest. A consumer group
    does not know that policy.
    """

    cluster_id: str
    new: bool
    traits: Traits

    @classmethod
    def of(cls, config: Config, job: Job, cluster_id: str) -> Corrections:
        own = traits(job.store)
        return cls(cluster_id, config.new_of(job).place is not StartPlace.EARLIEST or own.holds_commits, own)

    def include(self, row: PartitionPlan, selected: Selected) -> bool:
        """True if a planned row is to be written.

        A new partition gets a row where its job needs one, and where the job had stored offset 0: it may start
        elsewhere without one.
        """
        if row.resume_offset is None:
            return False
        if row.finding is Verdict.NEW and not row.set_by_hand:
            return self.new or row.stored_offset == 0
        return self._is_unclear(row, selected.row) or not self._is_in_place(row, selected)

    def _is_unclear(self, row: PartitionPlan, counts: Row | None) -> bool:
        """True if the row that counts has another name, or is of a checkpoint that is not a copy for this cluster.

        A batch that such a checkpoint repeats may end elsewhere.
        """
        if counts is None or counts.key.topic != row.topic:
            return True
        anchor = counts.stored.anchor
        numbered_by = {counts.numbered_by, None if anchor is None else anchor.cluster_id}
        return self.traits.corrected_in_copy and self.cluster_id not in numbered_by

    def _is_in_place(self, row: PartitionPlan, selected: Selected) -> bool:
        """True if the job would start at the planned offset without a write."""
        held, anchor = selected.replaced, None if selected.row is None else selected.row.stored.anchor
        if self.traits.corrected_by_job and selected.recorded is not None:
            return row.is_right and not selected.is_beyond  # until the job has written, the last plan's number counts
        if held is None:  # a job that has processed nothing starts without a row, too
            return row.is_right and not self.new and anchor is not None and anchor.is_bare
        return row.is_right and held.malformed is None and held.stored.offset == row.resume_offset

    def rows_to_reanchor(self, rows: Iterable[Planned]) -> list[Planned]:
        """Rows whose offset is right and whose anchor must be replaced: it is in another cluster's numbering."""
        return [each for each in rows if self._is_numbered_elsewhere(*each)]

    def _is_numbered_elsewhere(self, row: PartitionPlan, selected: Selected) -> bool:
        """True if a row with the right offset has an anchor of another cluster, or of a topic that was recreated since.

        Batches read from no such row. A consumer group takes no commit of others once its consumers have started.
        """
        anchor = selected.row.stored.anchor if selected.row is not None else None
        may_reanchor = self.traits.corrected_by_apply and not self.traits.holds_commits
        if anchor is None or anchor.cluster_id is None:
            return False
        return may_reanchor and row.is_right and not anchor.numbered_by(self.cluster_id, row.topic_id)


def to_write(
    plans: Mapping[str, JobPlan], gathered: Sequence[GatheredJob], cluster_id: str, config: Config
) -> tuple[frozenset[Key], frozenset[Key]]:
    """The rows that are corrected, and the rows of ``Checked.to_reanchor``.

    A partition that came with a batch is corrected: a copy leaves out what is missing. The end of a batch is corrected
    with the batch's start, if that is not numbered here.
    """
    selected = {at.key: at.selected for job in gathered for at in job.places}
    made = {job.job.name: Corrections.of(config, job.job, cluster_id) for job in gathered}
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
