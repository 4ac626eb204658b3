"""The destination, read once more before a plan is written: the records that it rests on, and the anchors to write."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from reconciler.config.file import Job
from reconciler.core.anchors import Anchor, Identity, Names, Record
from reconciler.core.matching import Matcher
from reconciler.failover.corrections import Planned
from reconciler.failover.numbers import Selected
from reconciler.failover.writing.plan_checks import another_record, check_offsets, records_before, rests_on
from reconciler.plan.document import PartitionPlan
from reconciler.ports import ClusterInfo, LogReader


def anchors_for(
    job: Job, writing: Sequence[Planned], cluster: ClusterInfo, reader: LogReader
) -> dict[PartitionPlan, Anchor]:
    """The anchors to write: the records right before the resume offsets, read again from the destination."""
    if not writing:
        return {}
    check_offsets([row for row, _ in writing], reader)
    records = _compared(job, writing, reader)
    return {row: anchor_for(row, records.get(row), job.identity, cluster.cluster_id) for row, _ in writing}


def check_in_place(job: Job, left: Sequence[Planned], cluster: ClusterInfo, reader: LogReader) -> None:
    """Raise Changed for an offset that is left as it is, and is no longer right at the destination."""
    if not left:
        return
    starts = check_offsets([row for row, _ in left], reader)
    # Retention may pass the record of a match, and compaction remove it: the offset behind it stays right.
    kept = [(row, selected) for row, selected in left if (row.record_offset or 0) >= starts[row.key]]
    compacted = {name for name, info in cluster.topics.items() if info.compacted is not False}
    _compared(job, kept, reader, compacted=compacted)


def anchor_for(row: PartitionPlan, record: Record | None, identity: Identity, cluster_id: str) -> Anchor:
    """The anchor of a resume offset: the record right before it; at the start of a log, the numbering alone."""
    if record is None:
        return Anchor(cluster_id=cluster_id, topic_id=row.topic_id)
    return identity.anchor_of(record, cluster_id=cluster_id, topic_id=row.topic_id)


def _compared(
    job: Job, planned: Sequence[Planned], reader: LogReader, *, compacted: Collection[str] = ()
) -> dict[PartitionPlan, Record]:
    """The records that the rows name, read as ``records_before`` does and compared. Raises Changed."""
    records = records_before([row for row, _ in planned], reader, compacted=compacted)
    for row, selected in planned:
        if row in records:
            _check_record(job, row, selected, records[row])
    return records


def _check_record(job: Job, row: PartitionPlan, selected: Selected, record: Record) -> None:
    """Raise Changed if the record that the plan rests on is no longer the anchor."""
    anchor = selected.stored.anchor if selected.stored else None
    same = row.names(record)
    if same is None and anchor is not None and anchor.names is Names.LAST and rests_on(row, record):
        same = Matcher(anchor, job.identity).is_anchor_or_before(record)
    if same is False:
        raise another_record(row, record)
