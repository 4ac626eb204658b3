"""How far the mirror has delivered, by the records' times."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.core.anchors import Identity
from reconciler.core.probes import Withheld
from reconciler.plan.document import PartitionPlan
from reconciler.ports import LogReader, ReadRequest, TopicPartition

LAST = 3
"""Offsets before a partition's end that are read: the last may be a transaction's marker."""
MOST_ASKED = 100
"""At most so many partitions are read, those with the newest anchors first."""


def newest_ms(reader: LogReader, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The latest time among each partition's last records; partitions without such a time are left out.

    Times that the broker set are of the delivery, and count. Raises Unreachable and Refused as the reader does.
    """
    ends = reader.log_ends(partitions) if partitions else {}
    asked = [ReadRequest(place, max(0, ends[place] - LAST), LAST) for place in partitions if ends[place] > 0]
    found: dict[TopicPartition, int] = {}
    for request, chunk in zip(asked, reader.read(asked) if asked else (), strict=True):
        if isinstance(chunk, Withheld):
            continue
        times = [record.timestamp_ms for record in chunk.records if record.timestamp_ms is not None]
        if times:
            found[request.partition] = max(times)
    return found


def lags_ms(rows: Sequence[PartitionPlan], identity: Identity, reader: LogReader) -> dict[TopicPartition, int]:
    """How much older than the anchor the record before the resume offset is, in ms, by partition.

    ``rows`` are all ``behind``; one read serves all. Partitions that are empty or have no times, and those beyond the
    first ``MOST_ASKED``, are left out. Raises Unreachable and Refused as the reader does.
    """
    anchored = {row.key: row.anchor.timestamp_ms for row in rows if row.anchor and row.anchor.timestamp_ms}
    latest = sorted(anchored, key=lambda place: -anchored[place])[:MOST_ASKED]
    last = {row.key: row.record_offset for row in rows}
    requests = [ReadRequest(place, offset, 1) for place in latest if (offset := last[place]) is not None]
    chunks = reader.read(requests) if requests else []
    found: dict[TopicPartition, int] = {}
    for request, chunk in zip(requests, chunks, strict=True):
        if isinstance(chunk, Withheld):
            continue
        time_ms = identity.trusted_time_of(chunk.records[0]) if chunk.records else None
        if time_ms is not None:
            found[request.partition] = max(0, anchored[request.partition] - time_ms)
    return found
