"""A log in memory that answers as a broker does: for tests, simulators and trying the engine without Kafka.

What it copies from a real broker: offsets may have gaps (compaction, transaction markers); a time lookup goes by log
order and may name a marker; reads begin at the first record at or after an offset; a deleted prefix moves the start.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.core.probes import Chunk
from reconciler.ports import ClusterInfo, ReadRequest, TopicInfo, TopicPartition


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A record held in memory; satisfies ``core.anchors.Record``."""

    offset: int
    timestamp_ms: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    append_time: bool = False


@dataclass(slots=True)
class MemoryPartition:
    """One partition's log. ``markers`` are (offset, timestamp_ms) of control records: invisible, but looked up."""

    records: list[MemoryRecord] = field(default_factory=list)
    markers: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    compacted: bool = False

    def append(
        self,
        timestamp_ms: int | None,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        *,
        append_time: bool = False,
    ) -> MemoryRecord:
        """Add a record at the end and return it."""
        record = MemoryRecord(self.end, timestamp_ms, key, value, headers, append_time)
        self.records.append(record)
        self.end += 1
        return record

    def append_marker(self, timestamp_ms: int) -> None:
        """Add a transaction marker: it takes an offset and is never read."""
        self.markers.append((self.end, timestamp_ms))
        self.end += 1

    def delete_before(self, offset: int) -> None:
        """Retention or DeleteRecords: everything before ``offset`` is gone."""
        self.start = max(self.start, min(offset, self.end))
        self.records = [record for record in self.records if record.offset >= self.start]
        self.markers = [marker for marker in self.markers if marker[0] >= self.start]

    def compact(self, offsets: Iterable[int]) -> None:
        """Remove the records at these offsets; the numbering keeps the gaps."""
        gone = set(offsets)
        self.compacted = True
        self.records = [record for record in self.records if record.offset not in gone]

    def lookup(self, timestamp_ms: int) -> int | None:
        """First offset in log order, markers included, with a timestamp at or after ``timestamp_ms``."""
        stamped = [(r.offset, r.timestamp_ms) for r in self.records if r.timestamp_ms is not None]
        later = [offset for offset, stamp in [*stamped, *self.markers] if stamp >= timestamp_ms]
        return min(later, default=None)

    def read(self, offset: int, max_records: int) -> Chunk:
        """The first records at or after ``offset``."""
        if not self.start <= offset <= self.end:
            return Chunk((), offset, out_of_range=True)
        first = bisect_left(self.records, offset, key=lambda record: record.offset)
        found = tuple(self.records[first : first + max_records])
        more = first + max_records < len(self.records)
        return Chunk(found, found[-1].offset + 1 if more else self.end)


class MemoryLog:
    """A cluster of memory partitions; satisfies ``ports.LogReader``."""

    def __init__(self, cluster_id: str = "memory", topics: Mapping[str, int] | None = None) -> None:
        self.cluster_id = cluster_id
        self.topic_ids: dict[str, str | None] = {}
        self.partitions: dict[TopicPartition, MemoryPartition] = {}
        for topic, count in (topics or {}).items():
            self.create(topic, count)

    def create(self, topic: str, partitions: int, topic_id: str | None = None) -> None:
        """Make a topic with empty partitions."""
        self.topic_ids[topic] = topic_id or f"{self.cluster_id}/{topic}"
        for number in range(partitions):
            self.partitions[TopicPartition(topic, number)] = MemoryPartition()

    def partition(self, topic: str, number: int) -> MemoryPartition:
        return self.partitions[TopicPartition(topic, number)]

    def describe(self, topics: Iterable[str]) -> ClusterInfo:
        known = {name: self._info(name) for name in topics if name in self.topic_ids}
        return ClusterInfo(self.cluster_id, known)

    def _info(self, name: str) -> TopicInfo:
        own = {tp.partition: log for tp, log in self.partitions.items() if tp.topic == name}
        return TopicInfo(name, self.topic_ids[name], tuple(sorted(own)), any(log.compacted for log in own.values()))

    def log_starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.partitions[tp].start for tp in partitions}

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.partitions[tp].end for tp in partitions}

    def offsets_for_times(self, asked: Sequence[tuple[TopicPartition, int]]) -> Sequence[int | None]:
        return [self.partitions[tp].lookup(timestamp_ms) for tp, timestamp_ms in asked]

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        return [self.partitions[r.partition].read(r.offset, r.max_records) for r in requests]

    def close(self) -> None:
        """Nothing to close."""
