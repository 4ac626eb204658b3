"""Write a plan: check that nothing has moved since, snapshot, compare-and-set, read again.

Order matters. Nothing is written before every job's store and every record at the destination has been looked at
again; the snapshot is on disk before the first write; a second run finds what the first one did and goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.config.file import Config, Job
from reconciler.core.anchors import Anchor, Record, StoredOffset
from reconciler.core.errors import Changed, OutcomeUnknown, Refused, Unreachable
from reconciler.core.matching import Matcher
from reconciler.core.policies import StartPlace
from reconciler.core.verdicts import Position, Verdict
from reconciler.failover import snapshot
from reconciler.failover.gather import job_topics
from reconciler.failover.outside import Outside
from reconciler.failover.plan_checks import AGAIN, check_configuration, check_destination, check_offsets, check_time
from reconciler.failover.selection import Selected, by_key, is_own, is_unread, is_written, select
from reconciler.fileio import locked
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan, why_stopped
from reconciler.ports import Change, ClusterInfo, OffsetStore, ReadRequest, Row, TopicPartition, WriteResult


@dataclass(frozen=True, slots=True)
class Intended:
    """One row to write: under which key, what is there now, what will be. ``speaks`` is the row it rests on."""

    row: PartitionPlan
    key: TopicPartition
    now: Row | None
    new: StoredOffset
    speaks: Row | None

    @property
    def change(self) -> Change:
        found_from = self.speaks.stored if self.speaks else None
        return Change(self.key, self.now.version if self.now else None, self.new, found_from=found_from)


@dataclass(frozen=True, slots=True)
class JobChanges:
    """What applying means for one job. ``refused`` rows (with the reason) mean that none of it is written."""

    job: Job
    intended: tuple[Intended, ...]
    already: tuple[PartitionPlan, ...]
    refused: tuple[tuple[PartitionPlan, str], ...]

    @property
    def is_refused(self) -> bool:
        return bool(self.refused)


def prepare(plan: Plan, config: Config, outside: Outside) -> list[JobChanges]:
    """Look again at stores and destination; what is to be written. Writes nothing.

    Raises ``Changed`` if the plan has expired or is for another configuration, or the destination or a store is not
    what it saw.
    """
    check_time(plan, config.policy, outside.now_ms())
    check_configuration(plan, config)
    topics = {row.topic for job in plan.jobs for row in job.partitions}
    outside = replace(outside, reader=outside.patient(config.search))
    cluster = outside.reader.describe(topics)
    check_destination(plan, cluster)
    changes = [_prepare_job(job_plan, plan, config, cluster, outside) for job_plan in plan.jobs]
    # A topic made anew in between may hold such a record too, or none was read.
    check_destination(plan, outside.reader.describe(topics))
    return changes


def _prepare_job(job_plan: JobPlan, plan: Plan, config: Config, cluster: ClusterInfo, outside: Outside) -> JobChanges:
    (job,) = config.chosen(job_plan.name)
    if any(row.position != Position.NEXT for row in job_plan.partitions):
        raise Refused(
            f'The checkpoint of job "{job.name}" stopped within a batch, and a checkpoint is not written, but copied.',
            hint="Copy it with: reconciler checkpoint clone PATH NEW_PATH --plan PLAN. Plan the other jobs without it.",
        )
    refused = tuple((row, why) for row in job_plan.partitions if (why := why_stopped(row, config.policy.start)))
    if refused:
        return JobChanges(job, (), (), refused)
    store = outside.open_store(job.store)
    try:
        rows = by_key(store.read(job.group, job_topics(config, job)))
    finally:
        store.close()
    _refuse_unplanned(job, job_plan, rows, cluster.cluster_id)
    writing: list[tuple[PartitionPlan, Selected]] = []
    already: list[PartitionPlan] = []
    for row in job_plan.partitions:
        selected = select(
            rows,
            row.source_key,
            row.key,
            cluster.cluster_id,
        )
        if _is_applied(row, selected, plan.cluster_id):
            already.append(row)
        elif not row.sees(selected.stored):
            raise Changed(_moved_on(job, row, selected.stored), hint=AGAIN)
        elif is_written(row, selected, writes_new=config.policy.new.place is not StartPlace.EARLIEST):
            writing.append((row, selected))
    anchors = _anchors_for(job, writing, cluster, outside)
    intended = tuple(
        Intended(
            row,
            row.key,
            selected.replaced,
            StoredOffset(_resume(row), anchors[row], outside.now_ms()),
            selected.row,
        )
        for row, selected in writing
    )
    return JobChanges(job, intended, tuple(already), ())


def _refuse_unplanned(job: Job, job_plan: JobPlan, rows: Mapping[TopicPartition, Row], cluster_id: str) -> None:
    """A row that came since, for a partition the plan does not know, can mean that partition counts differ.

    A plan leaves out rows by itself where they are known to differ, and what is left of the source of a job that has
    been handed over.
    """
    for source_topic, topic in {(row.source_topic, row.topic) for row in job_plan.partitions}:
        planned = [row for row in job_plan.partitions if row.topic == topic]
        if any(row.verdict is Verdict.REMAPPED for row in planned) or _is_handed_over(planned, rows, cluster_id):
            continue
        known = {row.partition for row in planned}
        for tp, row in rows.items():
            if tp.topic in (source_topic, topic) and tp.partition not in known and not is_unread(row.stored):
                raise Changed(
                    f'The store of job "{job.name}" has moved on since the plan: it has a row for '
                    f"{tp.topic}-{tp.partition}, which the plan does not know.",
                    hint=AGAIN,
                )


def _is_handed_over(planned: Sequence[PartitionPlan], rows: Mapping[TopicPartition, Row], cluster_id: str) -> bool:
    found = [rows.get(row.key) for row in planned]
    return all(row is not None and is_own(row, cluster_id) for row in found)


def _resume(row: PartitionPlan) -> int:
    if row.resume_offset is None:
        raise ValueError(f"{row.topic}-{row.partition} has nothing to write")
    return row.resume_offset


def _is_applied(row: PartitionPlan, selected: Selected, cluster_id: str) -> bool:
    """True if the store already holds what this row would write, and did not when the plan was made."""
    ours = selected.replaced
    if ours is None or row.sees(selected.stored) or ours.stored.offset != row.resume_offset:
        return False
    anchor = ours.stored.anchor
    return anchor is not None and anchor.cluster_id == cluster_id and anchor.offset == row.record_offset


def _moved_on(job: Job, row: PartitionPlan, stored: StoredOffset | None) -> str:
    now = "no row" if stored is None else f"offset {stored.offset}"
    was = "no row" if row.stored_offset is None else f"offset {row.stored_offset}"
    return (
        f'The store of job "{job.name}" has moved on since the plan: {row.topic}-{row.partition} had {was}, '
        f"and has {now} now (or another anchor)."
    )


# ---------------------------------------------------------------- the destination, looked at once more


def _anchors_for(
    job: Job, writing: Sequence[tuple[PartitionPlan, Selected]], cluster: ClusterInfo, outside: Outside
) -> dict[PartitionPlan, Anchor]:
    """The anchors to write: the records right before the resume offsets, read again from the destination."""
    if not writing:
        return {}
    check_offsets([row for row, _ in writing], outside.reader)
    checked = [(row, selected) for row, selected in writing if row.record_offset is not None]
    requests = [ReadRequest(row.key, row.record_offset, 1) for row, _ in checked if row.record_offset is not None]
    chunks = outside.reader.read(requests)
    anchors = {
        row: Anchor(cluster_id=cluster.cluster_id, topic_id=row.topic_id)
        for row, _ in writing
        if row.record_offset is None
    }
    for (row, selected), chunk in zip(checked, chunks, strict=True):
        record = chunk.records[0] if chunk.records else None
        _check_record(job, row, selected, record)
        if record is not None:
            anchors[row] = job.identity.anchor_of(record, cluster_id=cluster.cluster_id, topic_id=row.topic_id)
    return anchors


def _check_record(job: Job, row: PartitionPlan, selected: Selected, record: Record | None) -> None:
    """The record the plan rests on must still be there, and still be the anchor where the plan says it is."""
    if record is None or record.offset != row.record_offset:
        raise Changed(f"{row.topic}-{row.partition}: the record at {row.record_offset} is gone.", hint=AGAIN)
    anchor = selected.stored.anchor if selected.stored else None
    if anchor is None or row.set_by_hand or row.verdict not in (Verdict.MATCH, Verdict.MOVED):
        return
    if row.resume_offset == record.offset + 1 and not Matcher(anchor, job.identity).is_anchor_or_before(record):
        raise Changed(f"{row.topic}-{row.partition}: another record is at {record.offset} now.", hint=AGAIN)


# ---------------------------------------------------------------- writing


def write(changes: Sequence[JobChanges], plan: Plan, plan_path: Path, outside: Outside) -> None:
    """Snapshot, write every job that is not refused, and read again.

    Raises ``Refused`` before anything is written; ``Changed`` if a store moved in this moment and nothing was
    written; ``OutcomeUnknown`` if only a part was.
    """
    writing = [change for change in changes if change.intended and not change.is_refused]
    stores = {change.job.name: outside.open_store(change.job.store) for change in writing}
    try:
        for change in writing:
            stores[change.job.name].check_writable(change.job.group)
        if writing:
            with locked(plan_path):
                _write_jobs(writing, stores, plan, plan_path, outside)
    finally:
        for store in stores.values():
            store.close()


def _write_jobs(
    writing: Sequence[JobChanges], stores: Mapping[str, OffsetStore], plan: Plan, plan_path: Path, outside: Outside
) -> None:
    for change in writing:
        _check_unmoved(change, stores[change.job.name])
    _snapshot(writing, plan, plan_path)
    written = False
    for change in writing:
        _write_job(change, stores[change.job.name], outside, any_written=written)
        written = True


def _check_unmoved(change: JobChanges, store: OffsetStore) -> None:
    """Rows may have changed since ``prepare`` read them: a person was asked, another process had its turn.

    The compare-and-set would find out as well, but only after the snapshot had been written from rows that are gone.
    """
    seen = {item.key: item.now for item in change.intended}
    seen |= {item.speaks.key: item.speaks for item in change.intended if item.speaks}
    rows = by_key(store.read(change.job.group, sorted({tp.topic for tp in seen})))
    for tp, row in seen.items():
        now = rows.get(tp)
        if (now.version if now else None) != (row.version if row else None):
            raise Changed(f"{_moved(change.job, tp)}. Nothing was written.", hint=AGAIN)


def _snapshot(writing: Sequence[JobChanges], plan: Plan, plan_path: Path) -> None:
    path, sha256 = snapshot.path_for(plan_path), plan.sha256
    kept = snapshot.load(path, sha256)
    rows = {
        (change.job.name, item.key): snapshot.replacing(change.job.group, item.now, item.new)
        for change in writing
        for item in change.intended
    }
    # What an earlier run of this plan replaced is the way back, and not what that run wrote.
    first = {key: kept[key] for key, row in rows.items() if key in kept and snapshot.same(row.before, kept[key].after)}
    snapshot.save(path, sha256, {**kept, **rows, **first})


def _write_job(change: JobChanges, store: OffsetStore, outside: Outside, *, any_written: bool) -> None:
    changes = [item.change for item in change.intended]
    put(store, change.job, changes, "apply", outside.now_ms(), any_written=any_written)
    confirm(store, change.job, {item.key: item.new for item in change.intended})


def put(
    store: OffsetStore, job: Job, changes: Sequence[Change], reason: str, now_ms: int, *, any_written: bool
) -> WriteResult:
    """Compare-and-set a batch; a conflict is an error that says whether anything was written."""
    try:
        result = store.write(job.group, changes, reason=reason, now_ms=now_ms)
    except (Unreachable, Changed) as error:
        if not any_written:
            raise
        raise OutcomeUnknown(
            f'Other jobs were written, job "{job.name}" was not: {error.message}', hint="Run this again."
        ) from error
    if not result.conflicts:
        return result
    what = _moved(job, result.conflicts[0])
    if result.written or any_written:
        raise OutcomeUnknown(
            f"{what}; {len(result.written)} of its {len(changes)} rows were written.", hint="Run this again."
        )
    raise Changed(f"{what}. Nothing was written.", hint=AGAIN)


def _moved(job: Job, tp: TopicPartition) -> str:
    return f'The store of job "{job.name}" changed while it was being written: {tp.topic}-{tp.partition}'


def confirm(store: OffsetStore, job: Job, expected: Mapping[TopicPartition, StoredOffset | None]) -> None:
    """Read back what was written. Raises ``OutcomeUnknown`` if it is not all there."""
    try:
        rows = by_key(store.read(job.group, sorted({tp.topic for tp in expected})))
    except Unreachable as error:
        raise OutcomeUnknown(
            f'Job "{job.name}" was written, and could not be read back: {error.message}', hint="Run this again."
        ) from error
    for tp, wanted in expected.items():
        found = rows[tp].stored if tp in rows else None
        if (found is None) != (wanted is None) or (found and wanted and found.offset != wanted.offset):
            raise OutcomeUnknown(
                f'{tp.topic}-{tp.partition} of job "{job.name}" does not read back as it was written.',
                hint="See what else writes this store, then run this again.",
            )
