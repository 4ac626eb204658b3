"""When the newest records that a mirror delivered were made, by the records' own times."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.core.probes import Withheld
from reconciler.ports import LogReader, ReadRequest, TopicPartition

LAST = 3
"""Offsets before a partition's end that are read: the last may be a transaction's marker."""


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
