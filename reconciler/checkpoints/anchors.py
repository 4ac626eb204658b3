"""Anchors for the offsets of a copied checkpoint, so that later checks can tell which cluster's numbers they are.

``apply`` writes the same beside the offsets of a store. These are kept under the destination's topic names: the
original's anchors stay, and it can be planned again. Those of a topic with one name on both clusters are in the copy's
manifest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing

from reconciler.config.file import Config, Job
from reconciler.core.anchors import Record, StoredOffset
from reconciler.core.errors import ReconcilerError
from reconciler.failover.outside import Outside
from reconciler.failover.selection import by_key
from reconciler.failover.writing.reread import anchor_for
from reconciler.formats.plan import JobPlan, PartitionPlan
from reconciler.formats.spark_checkpoint import END
from reconciler.ports import Change, TopicPartition

_log = logging.getLogger(__name__)


def keep_anchors(
    config: Config, job: JobPlan, cluster_id: str, records: Mapping[PartitionPlan, Record], outside: Outside
) -> int:
    """Keep an anchor for every offset of the copy, and return how many. An error is only logged: the copy is complete.

    ``records``: by row, the record before its offset; a row without one starts at the log's first record.
    """
    (configured,) = config.chosen(job.name)
    new = _anchored(configured, job, cluster_id, records, outside.now_ms(), one_name=False)
    if config.anchor_store is None or not new:
        return 0
    try:
        return _write(config.anchor_store, configured.group, new, outside)
    except ReconcilerError as error:
        _log.warning("the copy is ready, and its anchors were not kept: %s", error)
        return 0


def of_one_name(
    config: Config, job: JobPlan, cluster_id: str, records: Mapping[PartitionPlan, Record], now_ms: int
) -> dict[TopicPartition, StoredOffset]:
    """The copy's offsets with their anchors, of topics that have one name on both clusters; ``records`` as above."""
    (configured,) = config.chosen(job.name)
    return _anchored(configured, job, cluster_id, records, now_ms, one_name=True)


def _anchored(
    configured: Job,
    job: JobPlan,
    cluster_id: str,
    records: Mapping[PartitionPlan, Record],
    now_ms: int,
    *,
    one_name: bool,
) -> dict[TopicPartition, StoredOffset]:
    return {
        row.key: StoredOffset(row.resume_offset, anchor_for(row, records.get(row), configured, cluster_id), now_ms)
        for row in job.partitions
        if row.position != END and row.resume_offset is not None and (row.topic == row.source_topic) is one_name
    }


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
