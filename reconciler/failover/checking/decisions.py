"""Assign the operator's decisions to jobs: a decision that fits several of the chosen jobs is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.config.file import Config, Job
from reconciler.core.text import some
from reconciler.core.verdicts import Finding, Verdict
from reconciler.failover.checking.gather import JobPartition
from reconciler.failover.checking.numbers import job_topics
from reconciler.failover.checking.passes import names_to_set, topics_there
from reconciler.failover.outside import ByHand, WrongDecision
from reconciler.plan.document import JobPlan

MOST_NAMES = 20


class SeveralJobs(WrongDecision):
    """The operator's decision fits several jobs."""

    def __init__(self, word: str, jobs: Sequence[str]) -> None:
        what = f"{word} fits {len(jobs):,} of the chosen jobs: {some(jobs, MOST_NAMES)}."
        super().__init__(what, hint="Decide for one job at a time, with --job.")


def refuse_several_places(config: Config, jobs: Sequence[Job], by_hand: ByHand) -> None:
    """Raise SeveralJobs for an offset or a time that more than one job could be placed at.

    The configuration decides: a job that cannot be judged now counts, too.
    """
    topics = {job.name: set(job_topics(config, job)) for job in jobs}
    for (topic, partition), offset in by_hand.offsets.items():
        fitting = [name for name, known in topics.items() if topic in known]
        if len(fitting) > 1:
            raise SeveralJobs(f"--set {topic}:{partition}={offset}", fitting)
    if by_hand.time_ms is not None and len(topics) > 1:
        raise SeveralJobs("--set-time", list(topics))


def refuse_several_verdicts(by_hand: ByHand, found: Iterable[JobPlan]) -> None:
    """Raise SeveralJobs for an ``--accept`` that has let partitions of more than one job start."""
    jobs = list(found)
    fits = {verdict.value: [job for job in jobs if _has_accepted(job, verdict)] for verdict in sorted(by_hand.accepted)}
    if by_hand.skips:
        fits["skips"] = [job for job in jobs if any(row.skips for row in job.partitions)]
    for word, fitting in fits.items():
        if len(fitting) > 1:
            raise SeveralJobs(f"--accept {word}", [job.name for job in fitting])


def refuse_unknown(by_hand: ByHand, places: Sequence[JobPartition]) -> None:
    """Raise WrongDecision for an offset of a partition that none of the chosen jobs has there."""
    there = topics_there(places)
    known = {(tp.topic, tp.partition) for at in places if at.exists for tp in names_to_set(at, there)}
    for topic, partition in by_hand.offsets:
        if (topic, partition) not in known:
            raise WrongDecision(
                f"--set {topic}:{partition}: the chosen jobs have no such partition on the destination.",
                hint=_choices(topic, places),
            )


def _choices(topic: str, places: Sequence[JobPartition]) -> str:
    """A hint: the partitions that a --set may name of its topic, else the topics."""
    numbers = [
        at.destination.partition for at in places if at.exists and topic in (at.source.topic, at.destination.topic)
    ]
    if numbers:
        return f"{topic} has the partitions {min(numbers)} to {max(numbers)}."
    return f"Topics: {', '.join(sorted({at.destination.topic for at in places}))}."


def accepts(by_hand: ByHand, finding: Finding) -> bool:
    """True if the operator lets a partition with this finding start, or leaves out one that is not there.

    Nothing else that has no offset can start.
    """
    return finding.verdict in by_hand.accepted and (finding.resume_offset is not None or finding.absent)


def _has_accepted(job: JobPlan, verdict: Verdict) -> bool:
    return any(row.finding is verdict and row.set_by_hand and not row.is_placed for row in job.partitions)
