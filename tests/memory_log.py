"""A log in memory that answers as a broker does.

It behaves like a real broker (``tests/kafka/model`` compares the two): offsets may have gaps (compaction, transaction
markers); a time lookup follows log order, sees markers and aborted records, and asks one segment only; reads begin at
the first record at or after an offset; a deleted prefix moves the start, and its segment still answers "none" to
lookups until it is removed.

A partition's log is segments of batches, as on a broker's disk, because time lookups depend on it. The broker keeps
every segment's largest timestamp, asks only the first segment whose largest is not smaller than the time, and answers
"none" if that segment has no such record (any more). Sources: Kafka 4.1, ``UnifiedLog.fetchOffsetByTimestamp``,
``LogSegment.findOffsetByTimestamp``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.core.probes import Chunk, Counted
from reconciler.ports import ClusterInfo, ReadRequest, TopicInfo, TopicPartition

FOREVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A record held in memory; satisfies ``core.anchors.Record``."""

    offset: int
    timestamp_ms: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    append_time: bool = False

    @property
    def stamp(self) -> int:
        """The timestamp as stored in the log: -1 for none."""
        return -1 if self.timestamp_ms is None else self.timestamp_ms


@dataclass(slots=True)
class Batch:
    """The result of one write: records, or one transaction marker (``control``), which commits or ``aborts``.

    ``largest_ms`` is its header's largest timestamp. A batch that the cleaner has emptied can stay as a mere header,
    and its largest timestamp with it. ``producer`` names an idempotent or transactional producer, ``abort_marker`` is
    the offset of the marker that aborted it.
    """

    base: int
    last: int
    largest_ms: int
    records: list[MemoryRecord] = field(default_factory=list)
    control: bool = False
    aborts: bool = False
    emptied: bool = False
    producer: str | None = None
    transactional: bool = False
    abort_marker: int | None = None

    def keep(self, records: list[MemoryRecord]) -> None:
        """Keep only these records."""
        if self.control:
            return
        self.records, self.emptied = records, not records
        if records and not records[0].append_time:
            self.largest_ms = max(record.stamp for record in records)

    def first_since(self, timestamp_ms: int, start: int) -> int | None:
        """The first offset at or after ``start`` with at least this timestamp, which something here has had."""
        if self.control:
            return None if self.emptied else self.base
        for record in self.records:
            if record.offset >= start and record.timestamp_ms is not None and record.timestamp_ms >= timestamp_ms:
                return record.offset
        return None


@dataclass(slots=True)
class Segment:
    """One segment. ``largest_ms`` is the largest timestamp it has held since it was last cleaned, -1 for none at all.

    ``written_ms`` is its file's modification time, which stands in where there is no timestamp; unless given it is
    later than every time that is looked up, as wall-clock times are later than records'.
    """

    base: int
    batches: list[Batch] = field(default_factory=list)
    largest_ms: int = -1
    written_ms: int = FOREVER

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        if batch.largest_ms > self.largest_ms:
            self.largest_ms = batch.largest_ms

    def keep(self, batches: Iterable[Batch]) -> None:
        """Keep only these batches: the segment is rewritten."""
        self.batches = list(batches)
        self.largest_ms = max((batch.largest_ms for batch in self.batches), default=-1)

    def may_hold(self, timestamp_ms: int) -> bool:
        """Whether a broker looks for so new a record here, and nowhere else."""
        return (self.written_ms if self.largest_ms < 0 else self.largest_ms) >= timestamp_ms

    def first_since(self, timestamp_ms: int, start: int) -> int | None:
        for batch in self.batches:
            if batch.largest_ms >= timestamp_ms and batch.last >= start:
                found = batch.first_since(timestamp_ms, start)
                if found is not None:
                    return found
        return None


@dataclass(slots=True)
class MemoryPartition:
    """One partition's log. ``records`` can be read; ``segments`` decide the broker's answers.

    There is one segment until ``roll`` is called.
    """

    records: list[MemoryRecord] = field(default_factory=list)
    start: int = 0
    end: int = 0
    compacted: bool = False
    segments: list[Segment] = field(default_factory=lambda: [Segment(0)])

    def __post_init__(self) -> None:
        for record in self.records:
            self.segments[-1].add(Batch(record.offset, record.offset, record.stamp, [record]))
            self.end = max(self.end, record.offset + 1)

    # ------------------------------------------------------------ writing

    def append(
        self,
        timestamp_ms: int | None,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        *,
        append_time: bool = False,
    ) -> MemoryRecord:
        """Add a record at the end, in its own batch, and return it."""
        record = MemoryRecord(self.end, timestamp_ms, key, value, headers, append_time)
        self._add(Batch(self.end, self.end, record.stamp, [record]))
        return record

    def append_batch(
        self, records: Iterable[MemoryRecord], *, producer: str | None = None, transactional: bool = False
    ) -> list[MemoryRecord]:
        """Add records in one batch, which assigns their offsets. ``producer``: the name of an idempotent producer."""
        new = [replace(record, offset=self.end + place) for place, record in enumerate(records)]
        last, largest = self.end + len(new) - 1, max(record.stamp for record in new)
        self._add(Batch(self.end, last, largest, new, producer=producer, transactional=transactional))
        return new

    def append_marker(self, timestamp_ms: int, *, producer: str | None = None, aborts: bool = False) -> None:
        """Add a transaction marker: it takes an offset and is never read, but time lookups see it."""
        for batch in self._open_batches(producer) if aborts else ():
            batch.abort_marker = self.end
        self._add(Batch(self.end, self.end, timestamp_ms, control=True, aborts=aborts, producer=producer))

    def _add(self, batch: Batch) -> None:
        self.segments[-1].add(batch)
        self.records += batch.records
        self.end = batch.last + 1

    def _open_batches(self, producer: str | None) -> Iterable[Batch]:
        """The batches of the producer's transaction that has no marker yet."""
        for segment in reversed(self.segments):
            for batch in reversed(segment.batches):
                if batch.producer == producer and batch.control:
                    return
                if batch.producer == producer and batch.transactional:
                    yield batch

    def roll(self) -> None:
        """Begin a new segment."""
        self.segments.append(Segment(self.end))

    @property
    def markers(self) -> list[tuple[int, int]]:
        """(offset, timestamp_ms) of the transaction markers."""
        batches = (batch for segment in self.segments for batch in segment.batches)
        return [(b.base, b.largest_ms) for b in batches if b.control and not b.emptied and b.base >= self.start]

    # ------------------------------------------------------------ removing

    def delete_before(self, offset: int) -> None:
        """DeleteRecords: records before ``offset`` are gone; their segments stay (see ``retire``)."""
        self.start = max(self.start, min(offset, self.end))
        self.records = [record for record in self.records if record.offset >= self.start]

    def retire(self) -> None:
        """Remove the segments that lie before the start: the broker does it within minutes, retention at once."""
        while len(self.segments) > 1 and self.segments[1].base <= self.start:
            del self.segments[0]

    def compact(self, offsets: Iterable[int]) -> None:
        """Remove the records at these offsets; the numbering keeps the gaps, and batches that become empty go."""
        gone = set(offsets)
        self.compacted = True
        for segment in self.segments:
            for batch in segment.batches:
                batch.keep([record for record in batch.records if record.offset not in gone])
            segment.keep(batch for batch in segment.batches if batch.control or batch.records)
        self.follow()

    def follow(self) -> None:
        """Remove from ``records`` those that are in no segment any more."""
        held = {r.offset for segment in self.segments for batch in segment.batches for r in batch.records}
        self.records = [record for record in self.records if record.offset in held]

    # ------------------------------------------------------------ asking

    @property
    def may_be_compacted(self) -> bool:
        """Whether the topic is compacted, or an offset is missing that no transaction explains."""
        batches = [batch for segment in self.segments for batch in segment.batches]
        written = sum(batch.last + 1 - max(batch.base, self.start) for batch in batches if batch.last >= self.start)
        return self.compacted or written < self.end - self.start

    def lookup(self, timestamp_ms: int) -> int | None:
        """No record before the answer has a timestamp at or after ``timestamp_ms``; None: no record at all has.

        Like ``KafkaLogReader``: where the broker answers "none" without proof, this is the log's start.
        """
        found = self.broker_lookup(timestamp_ms)
        if found is None and self.start < self.end:
            newest = self.broker_latest_ms()
            return self.start if newest is None or newest >= timestamp_ms else None
        return found

    def broker_lookup(self, timestamp_ms: int) -> int | None:
        """A broker's answer: the first offset in log order, markers included, with a timestamp at or after this one.

        The first segment that ever held so new a record (since it was cleaned) decides, even if that record is gone.
        """
        segment = next((segment for segment in self.segments if segment.may_hold(timestamp_ms)), None)
        return None if segment is None else segment.first_since(timestamp_ms, self.start)

    def broker_latest_ms(self) -> int | None:
        """A broker's answer for the largest timestamp (KIP-734): deleted records count, an emptied batch spoils it."""
        segment = max(self.segments, key=lambda segment: segment.largest_ms)
        first = next((batch for batch in segment.batches if batch.largest_ms == segment.largest_ms), None)
        return None if first is None or first.emptied else first.largest_ms

    def read(self, offset: int, max_records: int, *, committed: bool = False) -> Chunk:
        """The first records at or after ``offset``. Where ``max_records`` were left, the end is not seen yet."""
        if not self.start <= offset <= self.end:
            return Chunk((), offset, out_of_range=True)
        records, end = (self._committed(), max(offset, self.stable_end)) if committed else (self.records, self.end)
        first = bisect_left(records, offset, key=lambda record: record.offset)
        found = tuple(records[first : first + max_records])
        return Chunk(found, found[-1].offset + 1 if len(found) == max_records else end)

    @property
    def stable_end(self) -> int:
        """The last stable offset: where the first transaction begins that has no marker yet."""
        begun: dict[str | None, int] = {}
        for batch in (batch for segment in self.segments for batch in segment.batches):
            if batch.control:
                begun.pop(batch.producer, None)
            elif batch.transactional:
                begun.setdefault(batch.producer, batch.base)
        return min(begun.values(), default=self.end)

    def _committed(self) -> list[MemoryRecord]:
        end = self.stable_end
        batches = (batch for segment in self.segments for batch in segment.batches if batch.abort_marker is not None)
        aborted = {record.offset for batch in batches for record in batch.records}
        return [record for record in self.records if record.offset < end and record.offset not in aborted]


def _counted(chunk: Chunk, full_until_ms: int) -> Chunk:
    """The chunk with as many of its last records only counted as may be (``Read.full_until_ms``)."""
    records, stamps = chunk.records, []
    for record in reversed(records):
        if record.append_time or record.timestamp_ms is None or record.timestamp_ms <= full_until_ms:
            break
        stamps.append(record.timestamp_ms)
    if not stamps:
        return chunk
    counted = Counted(len(stamps), records[-1].offset, min(stamps))
    return Chunk(records[: len(records) - len(stamps)], chunk.next_offset, counted=counted)


class MemoryLog:
    """A cluster of memory partitions; satisfies ``ports.LogReader``."""

    def __init__(self, cluster_id: str = "memory", topics: Mapping[str, int] | None = None) -> None:
        self.cluster_id = cluster_id
        self.topic_ids: dict[str, str | None] = {}
        self.partitions: dict[TopicPartition, MemoryPartition] = {}
        for topic, count in (topics or {}).items():
            self.create(topic, count)

    def create(self, topic: str, partitions: int, topic_id: str | None = None, *, compacted: bool = False) -> None:
        """Make a topic with empty partitions."""
        self.topic_ids[topic] = topic_id or f"{self.cluster_id}/{topic}"
        for number in range(partitions):
            self.partitions[TopicPartition(topic, number)] = MemoryPartition(compacted=compacted)

    def delete(self, topic: str) -> None:
        """Remove a topic. If it is recreated, give it another id."""
        del self.topic_ids[topic]
        self.partitions = {tp: log for tp, log in self.partitions.items() if tp.topic != topic}

    def partition(self, topic: str, number: int) -> MemoryPartition:
        return self.partitions[TopicPartition(topic, number)]

    def describe(self, topics: Iterable[str]) -> ClusterInfo:
        known = {name: self._info(name) for name in topics if name in self.topic_ids}
        return ClusterInfo(self.cluster_id, known)

    def _info(self, name: str) -> TopicInfo:
        own = {tp.partition: log for tp, log in self.partitions.items() if tp.topic == name}
        return TopicInfo(
            name, self.topic_ids[name], tuple(sorted(own)), any(log.may_be_compacted for log in own.values())
        )

    def log_starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.partitions[tp].start for tp in partitions}

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.partitions[tp].end for tp in partitions}

    def offsets_for_times(self, asked: Sequence[tuple[TopicPartition, int]]) -> Sequence[int | None]:
        return [self.partitions[tp].lookup(timestamp_ms) for tp, timestamp_ms in asked]

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        return [self._read(request) for request in requests]

    def _read(self, request: ReadRequest) -> Chunk:
        partition = self.partitions[request.partition]
        chunk = partition.read(request.offset, request.max_records, committed=request.committed)
        return chunk if request.full_until_ms is None else _counted(chunk, request.full_until_ms)

    def close(self) -> None:
        """Nothing to close."""
