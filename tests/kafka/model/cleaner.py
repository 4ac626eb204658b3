"""The broker's log cleaner, at work on a partition in memory.

Sources: Kafka 4.1, ``Cleaner.cleanInto``, ``CleanedTransactionMetadata``. ``test_broker_model`` compares it with a real
broker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tests.memory_log import Batch, MemoryPartition, MemoryRecord, Segment


class Cleaner:
    """Cleans one partition, round after round."""

    def __init__(self, partition: MemoryPartition) -> None:
        self._log = partition
        self._cleaned_to = 0
        self._horizons: dict[int, int] = {}
        """By a batch's base, from when on its tombstones, or the marker, may be removed."""

    def clean(self, *, now_ms: int, delete_retention_ms: int = 0, bases: Collection[int] = ()) -> None:
        """One round: all but the last segment is compacted by key.

        It joins small segments: ``bases`` says at which offsets one still begins, besides the first and the last.
        """
        self._log.compacted = True
        *inactive, active = self._log.segments
        first_dirty = max(self._cleaned_to, self._log.start)
        if active.base <= first_dirty:
            return
        latest = self._latest_offsets(inactive, first_dirty)
        transactions = _Transactions(self._log.start)
        for segment in inactive:
            judged = [(batch, transactions.may_go(batch)) for batch in segment.batches]
            for batch, may_go in judged:
                self._strip(batch, latest, now_ms, delete_retention_ms, may_go=may_go)
            segment.keep(batch for batch, _ in judged if not batch.emptied or self._is_last(batch, active.base))
        joined = inactive[:1]
        for segment in inactive[1:]:
            if segment.base in bases:
                joined.append(segment)
            else:
                joined[-1].keep([*joined[-1].batches, *segment.batches])
                joined[-1].written_ms = segment.written_ms
        self._log.segments = [*joined, active]
        self._cleaned_to = active.base
        self._log.follow()

    def _latest_offsets(self, segments: Sequence[Segment], first_dirty: int) -> dict[bytes | None, int]:
        """Each key's last offset among the records that were not cleaned yet. Aborted ones do not count."""
        return {
            record.key: record.offset
            for segment in segments
            for batch in segment.batches
            for record in batch.records
            if record.offset >= first_dirty and not _is_aborted(batch, self._log.start)
        }

    def _strip(
        self, batch: Batch, latest: Mapping[bytes | None, int], now_ms: int, retention_ms: int, *, may_go: bool
    ) -> None:
        """Remove the records that the cleaner removes from a batch, or a marker whose time is over."""
        is_due = self._horizons.get(batch.base, now_ms + 1) <= now_ms
        if batch.control:
            batch.emptied = batch.emptied or (may_go and is_due)
        else:
            batch.keep([] if may_go else [each for each in batch.records if _is_kept(each, latest, is_due=is_due)])
        if not batch.emptied and (may_go or any(record.value is None for record in batch.records)):
            self._horizons.setdefault(batch.base, now_ms + retention_ms)

    def _is_last(self, batch: Batch, upper: int) -> bool:
        """The last batch of a round keeps the numbering whole, a producer's last one its sequence."""
        if batch.last + 1 == upper:
            return True
        batches = (each for segment in self._log.segments for each in segment.batches)
        lasts = [each.last for each in batches if each.producer == batch.producer and not each.control]
        return batch.producer is not None and not batch.control and batch.last == max(lasts)


def _is_aborted(batch: Batch, start: int) -> bool:
    """Transactions that ended before the log's start are forgotten: their remaining batches count as committed."""
    return batch.abort_marker is not None and batch.abort_marker >= start


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


def _is_kept(record: MemoryRecord, latest: Mapping[bytes | None, int], *, is_due: bool) -> bool:
    return record.offset >= latest.get(record.key, -1) and not (record.value is None and is_due)
