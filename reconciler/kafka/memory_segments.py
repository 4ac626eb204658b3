"""A partition's log as on a broker's disk, segments of batches, and the work of the log cleaner.

Time lookups depend on it. The broker keeps every segment's largest timestamp, asks only the first segment whose largest
is not smaller than the time, and answers "none" if that segment has no such record (any more).

Sources: Kafka 4.1, ``UnifiedLog.fetchOffsetByTimestamp``, ``LogSegment.findOffsetByTimestamp``, ``Cleaner.cleanInto``,
``CleanedTransactionMetadata``. The tests compare all of it with a real broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
    the offset of the marker that aborted it. From ``horizon_ms`` on, its tombstones, or the marker, may be removed.
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
    horizon_ms: int | None = None

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


# ---------------------------------------------------------------- the log cleaner


@dataclass(frozen=True, slots=True)
class SegmentCleaning:
    """One round of the cleaner: keys count from ``first_dirty`` on, everything before ``upper`` is cleaned.

    ``start`` is the log's start, ``last_data`` every producer's last data offset.
    """

    start: int
    first_dirty: int
    upper: int
    now_ms: int
    delete_retention_ms: int
    last_data: Mapping[str, int]


def clean(segments: Sequence[Segment], how: SegmentCleaning) -> None:
    """Clean these segments in place, as one round does: all of them lie before ``how.upper``."""
    latest = _latest_offsets(segments, how)
    transactions = _Transactions(how.start)
    for segment in segments:
        judged = [(batch, transactions.may_go(batch)) for batch in segment.batches]
        segment.keep(batch for batch, may_go in judged if _stays(batch, latest, how, may_go=may_go))


def _is_aborted(batch: Batch, start: int) -> bool:
    """Transactions that ended before the log's start are forgotten: their remaining batches count as committed."""
    return batch.abort_marker is not None and batch.abort_marker >= start


def _latest_offsets(segments: Sequence[Segment], how: SegmentCleaning) -> dict[bytes | None, int]:
    """Each key's last offset among the records that were not cleaned yet. Aborted ones do not count."""
    return {
        record.key: record.offset
        for segment in segments
        for batch in segment.batches
        for record in batch.records
        if record.offset >= how.first_dirty and not _is_aborted(batch, how.start)
    }


class _Transactions:
    """Tells which batches may go: those of aborted transactions, and markers of transactions with no batch left."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._with_batches: set[tuple[str | None, bool]] = set()

    def may_go(self, batch: Batch) -> bool:
        if not batch.control:
            aborted = _is_aborted(batch, self._start)
            if batch.transactional:
                self._with_batches.add((batch.producer, aborted))
            return aborted
        if batch.emptied:
            return True
        ended = (batch.producer, batch.aborts)
        had_batches = ended in self._with_batches
        self._with_batches.discard(ended)
        return not had_batches


def _stays(batch: Batch, latest: Mapping[bytes | None, int], how: SegmentCleaning, *, may_go: bool) -> bool:
    """Remove the records that the cleaner removes from a batch; False if the batch itself goes."""
    is_due = batch.horizon_ms is not None and batch.horizon_ms <= how.now_ms
    if batch.control:
        batch.emptied = batch.emptied or (may_go and is_due)
        left = not batch.emptied
    else:
        batch.keep([] if may_go else [r for r in batch.records if _is_kept(r, latest, is_due=is_due)])
        left = not batch.emptied
    if left and batch.horizon_ms is None and (may_go or any(record.value is None for record in batch.records)):
        batch.horizon_ms = how.now_ms + how.delete_retention_ms
    # The last batch of a round keeps the numbering whole, a producer's last one its sequence.
    is_last = batch.last + 1 == how.upper or how.last_data.get(batch.producer or "") == batch.last
    return left or is_last


def _is_kept(record: MemoryRecord, latest: Mapping[bytes | None, int], *, is_due: bool) -> bool:
    return record.offset >= latest.get(record.key, -1) and not (record.value is None and is_due)
