"""The stretch of a mirrored log between the records of two syncs: counting the records that are surely new there.

The argument is in ``mirrored`` (B).
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.core.anchors import Record, fingerprint, order_key
from reconciler.core.front import read_front
from reconciler.core.matching import Matcher
from reconciler.core.probes import LogRange, Search, TimeLookup, as_lookup, ask_read
from reconciler.core.question import Question
from reconciler.core.scan import FIRST_READ, LARGEST_READ, advance


@dataclass(frozen=True, slots=True)
class NewRecords:
    """``begin``: the record equal to the first sync's. ``records``: the new ones behind it. ``end``: the second's."""

    begin: int
    records: list[Record]
    end: int


def new_between(
    question: Question, edges: LogRange, first: Record, below: Matcher, above: Matcher, expected_end: int
) -> Search[NewRecords | None]:
    """The new records between the records of two syncs.

    ``first`` is the record at the first sync's place; ``below`` and ``above`` recognise it and the second
    sync's. None where the stretch is too long, or nothing there can be counted.
    """
    stamp = first.timestamp_ms
    if stamp is None or first.append_time:
        return None
    disorder = question.limits.max_disorder_ms
    answers = yield (TimeLookup(stamp), TimeLookup(max(0, stamp - disorder)))
    lower, safe = (edges.place_of(as_lookup(answer)) for answer in answers)
    # Whether the log reaches back past all possible copies: then a record that was not seen before is new.
    is_whole = edges.start == 0
    earliest, earliest_ms = min((lower, stamp), (safe, max(0, stamp - disorder)))
    in_front = yield from read_front(edges.start, earliest, earliest_ms, question.limits)
    if in_front.newer is not None:
        return None
    if not is_whole and question.identity.record_time:
        is_whole = in_front.last is not None and not in_front.last.append_time
    # A first copy that compaction removed left a gap, at the earliest right in front of the record at ``safe``.
    front = max(edges.start, (lower if question.compacted is False else min(safe, lower)) - 1)
    later = stamp + disorder if question.identity.record_time else None
    news = _News(below, question.limits.scan_records, stamp, later, is_whole=is_whole)
    end = yield from news.read(above, front, edges.end, expected_end)
    if end is None or (news.gap and (yield from question.may_be_compacted())):
        return None
    return NewRecords(news.began_at, news.found, end)


class _News:
    """Tells new records from others, in the order of the log; ``found`` are those behind the first sync's record."""

    def __init__(self, first: Matcher, budget: int, stamp: int, later: int | None, *, is_whole: bool) -> None:
        self.began = False
        self.began_at = 0
        self.gap = False
        self.expected = 0
        self.found: list[Record] = []
        self._first = first
        self._budget = budget
        self._highest: bytes | None = None
        self._stamp = stamp
        self._later = later
        self._is_whole = is_whole
        self._seen: set[tuple[int | None, str]] = set()

    def read(self, above: Matcher, front: int, log_end: int, expected_end: int) -> Search[int | None]:
        """Read from ``front`` to the copy of the second sync's record behind the first's; its offset, or None."""
        position, read, size = front, 0, max(FIRST_READ, min(expected_end + 1 - front, LARGEST_READ))
        self.expected = front
        while position < log_end and read < self._budget:
            chunk = yield from ask_read(position, min(size, self._budget - read))
            for record in chunk.records:
                if record.offset >= log_end:
                    return None
                if self.began and above.is_anchor(record):
                    self.step(record.offset)
                    return record.offset
                self.add(record)
            read += len(chunk.records)
            position = advance(chunk, position, log_end)
            size = min(size * 4, LARGEST_READ)
        return None

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
        if self._first.by_order:
            return self._is_higher(record)
        time = record.timestamp_ms
        if time is None or record.append_time or mark in self._seen:
            return False
        return (self._later is not None and time > self._later) or (self._is_whole and time >= self._stamp)

    def _is_higher(self, record: Record) -> bool:
        name = self._first.id_of(record)
        if name is None or self._first.compare(record) != 1:
            return False
        if self._highest is not None and order_key(name) <= order_key(self._highest):
            return False
        self._highest = name
        return True
