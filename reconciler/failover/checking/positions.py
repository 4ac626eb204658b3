"""The end of a batch that was begun and not committed: a second position for every partition of a plan.

A restart repeats such a batch, from its start to its end. Every record before the start was processed. The end matters
to sinks that know a batch by its number: if the repeated batch ends at the same record, such a sink gets the records
again that it has. The end is searched for like the start, by the journal's entry for it (``recorded.ends``). Without a
proven end the batch is repeated empty, and its records come in the next one. That includes an end that is not the same
for all sources that read the partition: the plan has one, and a batch that is whole for one source only would be taken
for the batch that a sink has. On the way back, the batch ends in front of a record that it did not have
(``undelivered``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.config.file import Config, Job
from reconciler.core.errors import ConfigError
from reconciler.core.verdicts import STOPS, Position, Verdict
from reconciler.failover.checking.numbers import job_topics
from reconciler.places.registry import checkpoint_path, end_of_batch, is_end_of_batch, traits
from reconciler.plan.document import JobPlan, PartitionPlan

if TYPE_CHECKING:
    from reconciler.places.checkpoint.restart import Checkpoint

Furthest = Mapping[tuple[str, int], int]
"""By topic (as in the checkpoint) and partition: the furthest end of a batch that its sources end differently."""
NO_UNEVEN_ENDS: Furthest = {}


def end_jobs(config: Config, jobs: Sequence[Job]) -> list[tuple[Job, Furthest]]:
    """For each of ``jobs`` whose checkpoint repeats a batch, a job whose offsets are that batch's end.

    With each: the ends that the checkpoint's sources do not share (``uneven_ends``).

    Raises ConfigError for a job that lists only a part of the topics that a source of its checkpoint reads.
    """
    repeating = [job for job in jobs if traits(job.store).corrected_in_copy and not is_end_of_batch(job.store)]
    if not repeating:
        return []
    from reconciler.places.checkpoint.reading import read_checkpoint

    found = [(job, read_checkpoint(checkpoint_path(job.store))) for job in repeating]
    for job, checkpoint in found:
        _refuse_part_of_source(config, job, checkpoint)
    return [(end_job(job), uneven_ends(checkpoint)) for job, checkpoint in found if checkpoint.repeats_a_batch]


def _refuse_part_of_source(config: Config, job: Job, found: Checkpoint) -> None:
    """A source reads one cluster: its other topics' offsets would go there unchecked."""
    known = set(job_topics(config, job))
    for each in found.positions:
        read = {topic for topic, _ in (*(each.start or ()), *(each.end or ()))}
        moves_with_job(read, known, f'Source {each.name} of the checkpoint of job "{job.name}"', "the job")


def moves_with_job(read: Set[str], known: Set[str], source: str, job: str, then: str = "") -> bool:
    """True if a source reads topics of the job. Raises ConfigError if it reads others, too.

    ``source`` and ``job`` are the sentence's subjects, ``then`` ends its hint.
    """
    others = sorted(read - known)
    if others and read & known:
        raise ConfigError(
            f"{source} reads {', '.join(sorted(read))}, and {job} has not {', '.join(others)} among its topics.",
            hint=f"A source moves with all of its topics: add them to the job{then}.",
        )
    return bool(read & known)


def end_job(job: Job) -> Job:
    """The job with the end of a batch of ``job`` as its offsets."""
    return replace(job, store=end_of_batch(job.store))


def uneven_ends(found: Checkpoint) -> Furthest:
    """The partitions that a repeated batch's sources read up to different offsets, as a self-join's may."""
    from reconciler.places.checkpoint.log import by_partition

    ends = by_partition(each.end for each in found.positions)
    return {(at.topic, at.partition): max(offsets) for at, offsets in ends.items() if len(set(offsets)) > 1}


def with_end_rows(starts: JobPlan, ends: JobPlan, furthest: Furthest = NO_UNEVEN_ENDS) -> JobPlan:
    """One job's rows for both positions.

    A partition that came with the batch has no start. Where the destination lacks it, its end stops the job.
    """
    end_of = {row.key: replace(row, position=Position.END) for row in ends.partitions}
    topics = {row.source_topic for row in starts.partitions}
    rows: list[PartitionPlan] = []
    for row in starts.partitions:
        rows.append(replace(row, position=Position.START))
        if row.key in end_of:
            rows.append(_end(row, end_of.pop(row.key)))
    rows += [row for row in end_of.values() if row.finding in STOPS and row.source_topic in topics]
    return without_uneven_ends(replace(starts, partitions=tuple(rows)), furthest)


def without_uneven_ends(job: JobPlan, furthest: Furthest) -> JobPlan:
    """The job, with the batch repeated empty where its sources end at different offsets (``uneven_ends``)."""
    starts = {row.key: row for row in job.partitions if row.position == Position.START}
    rows = [_one_end(row, starts.get(row.key), furthest) for row in job.partitions]
    return replace(job, partitions=tuple(rows))


def _one_end(row: PartitionPlan, start: PartitionPlan | None, furthest: Furthest) -> PartitionPlan:
    ends = [
        furthest[name, row.partition] for name in (row.source_topic, row.topic) if (name, row.partition) in furthest
    ]
    if row.position != Position.END or start is None or not ends:
        return row
    if row.resume_offset == start.resume_offset and (row.replay_at_most or 0) >= ends[0] - (start.stored_offset or 0):
        return row  # it is so already
    detail = f"the query's sources end at different offsets of the partition, the furthest at {ends[0]}"
    return _empty(start, replace(row, detail=detail), ends[0])


def _end(start: PartitionPlan, end: PartitionPlan) -> PartitionPlan:
    """The end, or the start where the end is not proven or is before it: the batch is then repeated empty.

    The start, too, for a partition that the batch had no records of: it is new here, or was empty at the source.
    """
    if start.resume_offset is not None and end.finding is Verdict.NEW:
        return _without_records(start, end)
    if (
        start.resume_offset is not None
        and not start.is_placed
        and end.finding not in STOPS
        and end.resume_offset is not None
        and end.resume_offset >= start.resume_offset
    ):
        has_records = end.resume_offset > start.resume_offset or end.finding is Verdict.EXACT
        found = end if has_records else replace(_empty(start, end, end.stored_offset), finding=end.finding)
        return replace(found, no_rows=end.no_rows and start.no_rows)
    return _empty(start, end, end.stored_offset)


def _without_records(start: PartitionPlan, end: PartitionPlan) -> PartitionPlan:
    """The end of a partition that adds nothing to the batch. A sink that has it would drop what came here since."""
    no_rows = end.no_rows and start.no_rows
    return replace(_at_start(start, end), replay_at_most=0, replay_exact=0, detail=start.detail, no_rows=no_rows)


def _empty(start: PartitionPlan, end: PartitionPlan, at: int | None) -> PartitionPlan:
    """The end of a batch that is repeated empty; ``at``: where it ended at the source."""
    most = None if at is None else max(0, at - (start.stored_offset or 0))
    return replace(
        _at_start(start, end),
        finding=start.finding if start.resume_offset is None else Verdict.EARLY,
        replay_at_most=most,
        replay_exact=None,
        matched_by=None,
        detail=f"the batch is repeated empty, and its records come in the next one; {end.detail}",
        no_rows=False,
    )


def _at_start(start: PartitionPlan, end: PartitionPlan) -> PartitionPlan:
    """The end of a batch without records: it is where the batch starts, by the same evidence."""
    return replace(
        end,
        resume_offset=start.resume_offset,
        record_offset=start.record_offset,
        record_fingerprint=start.record_fingerprint,
        set_by_hand=start.set_by_hand,
    )
