"""Anchors for the offsets of a copied checkpoint, so that later checks can tell which cluster's numbers they are.

``apply`` writes the same beside the offsets of a store. The copy has them in its manifest. The [anchors] store gets
them, too, under the destination's topic names: the original's anchors stay, and it can be planned again. So it gets
none of a topic with one name on both clusters.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing

from reconciler.config.file import Config
from reconciler.core.anchors import Identity, Record, StoredOffset
from reconciler.core.errors import ReconcilerError
from reconciler.failover.outside import Outside
from reconciler.failover.selection import by_key
from reconciler.failover.writing.reread import anchor_for
from reconciler.formats.checkpoint.layout import END
from reconciler.formats.plan import JobPlan, PartitionPlan
from reconciler.ports import Change, LogReader, ReadRequest, TopicPartition

BY_CONTENT = Identity(timestamp_of=lambda _: None, record_time=False)
"""For a job whose settings are not known: another time than its own would mislead a later search."""

_log = logging.getLogger(__name__)


def first_anchors(
    config: Config | None,
    job: JobPlan,
    cluster_id: str,
    records: Mapping[PartitionPlan, Record],
    reader: LogReader,
    now_ms: int,
) -> dict[TopicPartition, StoredOffset]:
    """The offsets at which the copy begins, with their anchors; those have no id and no time without a configuration.

    ``records``: by row, the record before its offset; a row without one starts at the log's first record. An anchor
    that lags is kept for the offset right behind its record: from there on, all counts as lag.
    """
    identity = BY_CONTENT if config is None else config.chosen(job.name)[0].identity
    lagging = _lagging(records, reader)
    return {
        row.key: StoredOffset(
            lagging.get(row, row.resume_offset), anchor_for(row, records.get(row), identity, cluster_id), now_ms
        )
        for row in job.partitions
        if row.position != END and row.resume_offset is not None
    }


def _lagging(records: Mapping[PartitionPlan, Record], reader: LogReader) -> dict[PartitionPlan, int]:
    """The offset right behind the record of each row that has other records between that one and its resume offset.

    These are matches: the query has gone on since its anchor was kept. Transaction markers alone do not count as lag.
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


def keep_anchors(config: Config, job: JobPlan, first: Mapping[TopicPartition, StoredOffset], outside: Outside) -> int:
    """Keep the anchors in the [anchors] store, too, and return how many. An error is only logged: the copy has them."""
    (configured,) = config.chosen(job.name)
    apart = {row.key for row in job.partitions if row.topic != row.source_topic}
    new = {key: stored for key, stored in first.items() if key in apart}
    if config.anchor_store is None or not new:
        return 0
    try:
        return _write(config.anchor_store, configured.group, new, outside)
    except ReconcilerError as error:
        _log.warning("the copy is ready; in the [anchors] store its anchors were not kept: %s", error)
        return 0


def _write(address: str, group: str, new: Mapping[TopicPartition, StoredOffset], outside: Outside) -> int:
    with closing(outside.open_store(address)) as store:
        if not store.capabilities.writable:  # a drill, which changes nothing
            return 0
        there = by_key(store.read(group, sorted({key.topic for key in new})))
        changes = [
            Change(key, there[key].version if key in there else None, stored) for key, stored in sorted(new.items())
        ]
        result = store.write(group, changes, reason="checkpoint clone", now_ms=outside.now_ms())
    if result.conflicts:
        key = result.conflicts[0]
        _log.warning("another program wrote the anchor of %s at the same moment: not kept", key)
    return len(result.written)
