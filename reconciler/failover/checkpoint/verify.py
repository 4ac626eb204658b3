"""Where a checkpoint's copy continues, and whether it may: the job's sinks are asked, and the plan is checked again.

``apply``'s own ``prepare`` reads the checkpoint and the job's journal again, and compares the record before every
offset with the anchor.

A sink takes a batch's number once. A batch with a part of its records would pass for the original's own: the sink would
drop the original's, with what the copy left for later. So a batch that was begun is repeated whole, or without any
record. An empty one shows (``sinks.guard``).

The copy's manifest gets anchors for its offsets, so that later checks know which cluster numbered them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.config.file import Config, Job
from reconciler.core.anchors import Record, StoredOffset
from reconciler.core.errors import Changed
from reconciler.core.verdicts import STOPS, Verdict
from reconciler.failover.check import check
from reconciler.failover.checking.positions import end_job, uneven_ends, with_end_rows, without_uneven_ends
from reconciler.failover.checkpoint.translate import Translation, refuse_undecided, translate
from reconciler.failover.outside import Outside
from reconciler.failover.sinks.judging import is_stateful, repeated, rows_or_refusal
from reconciler.failover.writing.apply import Refusal, prepare, refuse
from reconciler.failover.writing.plan_checks import (
    AGAIN,
    anchor_for,
    records_before,
)
from reconciler.places.checkpoint.restart import END, NEXT, START, Checkpoint, readings
from reconciler.plan.costs import records_again_after_end
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, StartPolicy
from reconciler.plan.rows import SinkOutcome, SinkRow
from reconciler.ports import LogReader, ReadRequest, TopicPartition

# ---------------------------------------------------------------- where the copy continues


@dataclass(frozen=True, slots=True)
class Placed:
    """The plan's job at the positions that the copy takes, and the checkpoint's lines with them.

    ``repeated_at_most`` and ``sinks`` as in ``Clone``.
    """

    job: JobPlan
    translation: Translation
    repeated_at_most: int
    sinks: int


def place(found: Checkpoint, path: str, job: JobPlan, config: Config, outside: Outside) -> Placed:
    """Where the job continues. Raises NeedsPerson where a partition or a sink forbids it, and as ``translate``."""
    (configured,) = config.chosen(job.name)
    translation = translate(found, job, moved=configured.moved)
    if found.repeats_a_batch:  # what does not fit was refused, before anything is asked
        job = without_uneven_ends(_with_ends(job, config, configured, outside), uneven_ends(found))
        translation = translate(found, job, moved=configured.moved)
    sinks = _compare_with_sinks(configured, job, found, translation, path)
    placed = _repeat_whole_or_empty(found, job, translation, sinks, config.policy.start)
    return Placed(*placed, sinks=len(sinks))


def _with_ends(job: JobPlan, config: Config, configured: Job, outside: Outside) -> JobPlan:
    """The job with the ends of its repeated batch. A plan of before the batch began lacks them: they are looked up."""
    if any(row.position != NEXT for row in job.partitions):
        return job
    (ends,) = check(config, [end_job(configured)], outside).plan.jobs
    return with_end_rows(job, ends)


# ---------------------------------------------------------------- the destination


def verify(plan: Plan, job: JobPlan, config: Config, outside: Outside) -> None:
    """Run ``apply``'s own checks, for both positions of a repeated batch. Reads only.

    Raises as ``prepare`` and ``refuse`` do, and Changed for a partition that is not in the plan: a query reads whole
    topics.
    """
    (configured,) = config.chosen(job.name)
    for position in sorted({row.position for row in job.partitions}):
        asked = end_job(configured) if position == END else configured
        rows = tuple(replace(row, position=NEXT) for row in job.partitions if row.position == position)
        one = replace(job, name=asked.name, group=asked.group, partitions=rows)
        for change in prepare(replace(plan, jobs=(one,)), replace(config, jobs=(asked,)), outside):
            if change.refusal is Refusal.UNREADABLE:  # decisions were judged, and no row of the store is written
                refuse(change)
    _refuse_added(job, outside.patient(config.search))


def _refuse_added(job: JobPlan, reader: LogReader) -> None:
    known = {(row.topic, row.partition) for row in job.partitions}
    for topic, info in sorted(reader.describe({row.topic for row in job.partitions}).topics.items()):
        if more := [number for number in sorted(info.partitions) if (topic, number) not in known]:
            raise Changed(f"The topic {topic} has partition {more[0]} now, which is not in the plan.", hint=AGAIN)


# ---------------------------------------------------------------- the sinks


def _compare_with_sinks(
    configured: Job, job: JobPlan, found: Checkpoint, translation: Translation, path: str
) -> tuple[SinkRow, ...]:
    """A row for each sink of the job, if each takes its batches once. Raises NeedsPerson if not."""
    if not configured.sinks:
        return ()
    at_most = unproven(found, translation, job, decided=[row for row in job.partitions if row.set_by_hand])
    again = repeated(job)
    again = replace(again, of_batch=max(again.of_batch, at_most))
    return rows_or_refusal(configured.sinks, found, job.name, again, stateful=is_stateful(path))


def _repeat_whole_or_empty(
    found: Checkpoint,
    job: JobPlan,
    translation: Translation,
    sinks: Sequence[SinkRow],
    policy: StartPolicy,
) -> tuple[JobPlan, Translation, int]:
    """The job and its translation, with the batch empty if it is not whole and the sinks lack it.

    A sink that has the batch drops what is repeated of it; its rows show that nothing comes twice. The number is the
    most records of the batch that may have been written, and come again in those after it: where its end is not proven,
    and where a mirror has sent them again behind a proven one. It is 0 if all sinks lack the batch. Raises NeedsPerson
    where a partition must not start, or the batch cannot be empty.
    """
    at_most, sent_again = unproven(found, translation, job), sum(records_again_after_end(row) for row in job.partitions)
    refuse_undecided(replace(job, partitions=tuple(_stopping_anyway(job))), policy)
    batch = -1 if found.last is None else found.last.batch
    if at_most and sinks and all(row.last_taken != batch for row in sinks):
        job = job.without_ends
        translation = translate(found, job, moved=translation.lives_there, empty=True)
        at_most = unproven(found, translation, job)
    refuse_undecided(job, policy)
    was_put_out = not sinks or not all(_lacks(row, batch) for row in sinks)
    return job, translation, at_most + sent_again if was_put_out else 0


def _stopping_anyway(job: JobPlan) -> Iterable[PartitionPlan]:
    """The rows that decide also where the ends do not count."""
    return (row for row in job.partitions if row.position != END or row.finding in STOPS)


def _lacks(row: SinkRow, batch: int) -> bool:
    return row.outcome is SinkOutcome.OPEN or (row.last_taken is not None and row.last_taken < batch)


def unproven(found: Checkpoint, translation: Translation, job: JobPlan, decided: Iterable[PartitionPlan] = ()) -> int:
    """Offsets of the repeated batch whose end is not proven, in the source's numbers: at least as many as records.

    Those of the partitions that the operator has ``decided`` do not count.
    """
    ends = [row for row in job.partitions if row.position == END and row.finding is Verdict.EXACT]
    there = translation.lives_there
    proven = {(row.topic if there else row.source_topic, row.partition) for row in (*ends, *decided)}
    sources = (*translation.sources, *translation.later)
    starts: dict[tuple[str, tuple[str, int]], int] = {}
    count = 0
    for each in readings(found):  # of each source, the start first
        for place, offset in (each.kafka or {}).items() if each.source in sources else ():
            if each.position == START:
                starts[each.source, place] = offset
            elif each.position == END and place not in proven:
                count += max(0, offset - starts.get((each.source, place), 0))
    return count


# ---------------------------------------------------------------- the copy's first anchors


def first_anchors(
    config: Config, job: JobPlan, cluster_id: str, outside: Outside
) -> dict[TopicPartition, StoredOffset]:
    """The offsets at which the copy begins, with their anchors. A row without a record starts at the log's first one.

    An anchor that lags is kept for the offset right behind its record: from there on, all counts as lag.
    """
    (configured,) = config.chosen(job.name)
    reader = outside.patient(config.search)
    rows = {row: row.resume_offset for row in job.partitions if row.position != END and row.resume_offset is not None}
    records = records_before(list(rows), reader)
    lagging = _lagging(records, reader)
    return {
        row.key: StoredOffset(
            lagging.get(row, resume),
            anchor_for(row, records.get(row), configured.identity, cluster_id),
            outside.now_ms(),
        )
        for row, resume in rows.items()
    }


def _lagging(records: Mapping[PartitionPlan, Record], reader: LogReader) -> dict[PartitionPlan, int]:
    """For each row with other records between its record and its resume offset: the offset right behind its record.

    These are matches: the query has continued since its anchor was kept. Transaction markers alone do not count as lag.
    """
    asked = [
        (row, record.offset + 1, row.resume_offset)
        for row, record in records.items()
        if row.resume_offset is not None and record.offset + 1 < row.resume_offset
    ]
    chunks = reader.read([ReadRequest(row.key, front, 1) for row, front, _ in asked]) if asked else ()
    return {
        row: front
        for (row, front, resume), chunk in zip(asked, chunks, strict=True)
        if chunk.records and chunk.records[0].offset < resume
    }
