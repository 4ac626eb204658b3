"""A batch that was begun is repeated whole, or without any record, in the copy for a job with sinks.

A sink takes a batch's number once. A batch with a part of its records would pass for the original's own: the sink would
drop the original's, with what the copy left for later. An empty one shows (``sinks.guard``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from reconciler.checkpoints.translate import Translation, refuse_undecided, translate
from reconciler.config.file import Config
from reconciler.core.errors import ConfigError
from reconciler.core.verdicts import PROVEN, STOPS
from reconciler.failover.positions import records_again_after_end
from reconciler.failover.sinks import is_stateful, repeated, rows_or_refusal
from reconciler.formats.checkpoint.layout import END, START, Checkpoint
from reconciler.formats.checkpoint.readings import readings
from reconciler.formats.plan import JobPlan, PartitionPlan, StartPolicy
from reconciler.formats.plan_sinks import SinkOutcome, SinkRow


def beside_its_sinks(
    config: Config | None, job: JobPlan, found: Checkpoint, moved: Translation, path: str
) -> tuple[SinkRow, ...]:
    """A row for each sink of the job, if each takes its batches once. Raises NeedsPerson if not."""
    if config is None:
        if job.sinks:
            names = ", ".join(row.sink for row in job.sinks)
            raise ConfigError(
                f"The copy must be compared with the sinks of job {job.name} ({names}).",
                hint="Give the configuration that the plan was made with: -c FILE.",
            )
        return ()
    (configured,) = config.chosen(job.name)
    if not configured.sinks:
        return ()
    again = repeated(job)
    by_hand = [row for row in job.partitions if row.set_by_hand]
    again = replace(again, of_batch=max(again.of_batch, unproven(found, moved, job, decided=by_hand)))
    return rows_or_refusal(configured.sinks, found, job.name, again, stateful=is_stateful(path))


def whole_or_empty(
    found: Checkpoint, job: JobPlan, moved: Translation, sinks: Iterable[SinkRow], policy: StartPolicy
) -> tuple[JobPlan, Translation, int]:
    """The job and its translation, with the batch empty if it is not whole and the sinks lack it.

    A sink that has the batch drops what is repeated of it; its rows tell that nothing comes twice. The number is the
    most records of the batch that may have been put out, and come again in those after it: where its end is not proven,
    and where a mirror has sent them again behind a proven one. It is 0 if all sinks lack the batch. Raises NeedsPerson
    where a partition must not start, or the batch cannot be empty.
    """
    rows = list(sinks)
    at_most, sent_again = unproven(found, moved, job), sum(records_again_after_end(row) for row in job.partitions)
    refuse_undecided(replace(job, partitions=tuple(_stopping_anyway(job))), policy)
    batch = -1 if found.last is None else found.last.batch
    if at_most and rows and all(row.last_taken != batch for row in rows):
        job = job.without_ends
        moved = translate(found, job, empty=True)
        at_most = unproven(found, moved, job)
    refuse_undecided(job, policy)
    was_put_out = not rows or not all(_lacks(row, batch) for row in rows)
    return job, moved, at_most + sent_again if was_put_out else 0


def _stopping_anyway(job: JobPlan) -> Iterable[PartitionPlan]:
    """The rows that decide also where the ends do not count."""
    return (row for row in job.partitions if row.position != END or row.verdict in STOPS)


def _lacks(row: SinkRow, batch: int) -> bool:
    return row.outcome is SinkOutcome.OPEN or (row.last_taken is not None and row.last_taken < batch)


def unproven(found: Checkpoint, moved: Translation, job: JobPlan, decided: Iterable[PartitionPlan] = ()) -> int:
    """Offsets of the repeated batch whose end is not proven, in the source's numbers: at least as many as records.

    Those of the partitions that a person has ``decided`` do not count.
    """
    ends = [row for row in job.partitions if row.position == END and row.verdict in PROVEN]
    proven = {(name, row.partition) for row in (*ends, *decided) for name in (row.source_topic, row.topic)}
    sources = (*moved.sources, *moved.later)
    starts: dict[tuple[str, tuple[str, int]], int] = {}
    count = 0
    for each in readings(found):  # of each source, the start first
        for place, offset in (each.kafka or {}).items() if each.source in sources else ():
            if each.position == START:
                starts[each.source, place] = offset
            elif each.position == END and place not in proven:
                count += max(0, offset - starts.get((each.source, place), 0))
    return count
