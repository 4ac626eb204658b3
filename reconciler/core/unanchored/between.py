"""The stretch of a mirrored log between the records of two syncs: counting the records that are surely new there.

The argument stands in ``mirrored`` (B).
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.core.anchors import IdOrder, Record, fingerprint, order_key
from reconciler.core.matching import Matcher
from reconciler.core.probes import LogRange, Search, TimeLookup, as_lookup, ask_read
from reconciler.core.question import Question
from reconciler.core.scan import FIRST_READ, LARGEST_READ, advance, last_before


@dataclass(frozen=True, slots=True)
class Between:
    """The stretch between the records of two syncs."""

    question: Question
    edges: LogRange
    first: Record
    """The record at the first sync's place, and what tells it and the second sync's record from others."""
    below: Matcher
    above: Matcher
    expected_end: int

    def read(self) -> Search[tuple[int, list[Record], int] | None]:
        """Where a record equal to the first sync's is, the new records behind it, and where the second's follows.

        None where the stretch is too long, or nothing there can be counted.
        """
        question, edges, stamp = self.question, self.edges, self.first.timestamp_ms
        if stamp is None or self.first.append_time:
            return None
        disorder = question.limits.max_disorder_ms
        answers = yield (TimeLookup(stamp), TimeLookup(max(0, stamp - disorder)))
        lower, safe = (edges.place_of(as_lookup(answer)) for answer in answers)
        whole = edges.start == 0
        if not whole and question.identity.record_time:
            older = yield from last_before(safe, edges.start)
            whole = older is not None and not older.append_time
        # A first copy that compaction removed left a gap, at the earliest right in front of the record at ``safe``.
        front = max(edges.start, (lower if question.compacted is False else min(safe, lower)) - 1)
        later = stamp + disorder if question.identity.record_time else None
        news = _News(self.below, question, stamp, later, whole)
        end = yield from self._read(news, front)
        if end is None or (news.gap and (yield from question.may_be_compacted())):
            return None
        return news.began_at, news.found, end

    def _read(self, news: _News, front: int) -> Search[int | None]:
        """Read from ``front`` to the copy of the second sync's record behind the first's; its offset, or None."""
        question, log_end = self.question, self.edges.end
        position, read, size = front, 0, max(FIRST_READ, min(self.expected_end + 1 - front, LARGEST_READ))
        news.expected = front
        while position < log_end and read < question.limits.scan_records:
            chunk = yield from ask_read(position, min(size, question.limits.scan_records - read))
            for record in chunk.records:
                if record.offset >= log_end:
                    return None
                if news.began and self.above.is_anchor(record):
                    news.step(record.offset)
                    return record.offset
                news.add(record)
            read += len(chunk.records)
            position = advance(chunk, position, log_end)
            size = min(size * 4, LARGEST_READ)
        return None


class _News:
    """Tells new records from others, in the order of the log; ``found`` are those behind the first sync's record."""

    def __init__(self, first: Matcher, question: Question, stamp: int, later: int | None, whole: bool) -> None:
        self.began = False
        self.began_at = 0
        self.gap = False
        self.expected = 0
        self.found: list[Record] = []
        self._first = first
        self._question = question
        self._by_order = question.identity.id_order is IdOrder.INCREASING and first.by_order
        self._highest: bytes | None = None
        self._stamp = stamp
        self._later = later
        self._whole = whole
        self._seen: set[tuple[int | None, str]] = set()

    def step(self, offset: int) -> None:
        self.gap = self.gap or offset > self.expected
        self.expected = offset + 1

    def add(self, record: Record) -> None:
        self.step(record.offset)
        mark = (record.timestamp_ms, fingerprint(record.key, record.value))
        if self.began:
            if self._is_new(record, mark):
                self.found.append(record)
        else:
            self.began, self.began_at = self._first.is_anchor(record), record.offset
        self._seen.add(mark)

    def _is_new(self, record: Record, mark: tuple[int | None, str]) -> bool:
        if self._by_order:
            return self._is_higher(record)
        time = record.timestamp_ms
        if time is None or record.append_time or mark in self._seen:
            return False
        return (self._later is not None and time > self._later) or (self._whole and time >= self._stamp)

    def _is_higher(self, record: Record) -> bool:
        id_of = self._question.identity.id_of
        name = id_of(record) if id_of is not None else None
        if name is None or self._first.compare(record) != 1:
            return False
        if self._highest is not None and order_key(name) <= order_key(self._highest):
            return False
        self._highest = name
        return True
