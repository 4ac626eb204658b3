"""Reading forward and backward: the only loops that walk a log record by record.

Invariants of every loop here: the position only grows (or the window only widens), so each ends; records at or past
``end``, the log's end when the search began, are left out, so that a log that grows meanwhile changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from reconciler.core.anchors import INT64_MAX, Record
from reconciler.core.matching import Matcher, Processed
from reconciler.core.probes import Chunk, LogMoved, Read, Search, as_chunk, ask_read

FIRST_READ = 64
"""Records read beyond the expected position, so that a tie or a few markers do not cost a second round."""
PEEK_BACK = 8
"""Offsets before the bound that are looked at as closely as those behind it."""
LARGEST_READ = 8_192

Judge = Callable[[Record], bool | None]
"""True: surely processed. False: surely not. None: it may have been."""


@dataclass(frozen=True, slots=True)
class Scan:
    """How a forward scan ended.

    ``found`` is the first record equal to the anchor, ``rest`` the records of the same chunk after it; ``newer`` more
    of them are surely new and were only counted. ``position`` is where reading would continue, ``complete`` True if
    everything up to the end was read. ``before`` is the last record read before the bound, ``newer_in_front`` one there
    that contradicts it (``timebound``). ``gap``: offsets were missing on the way. ``append_time``: the broker stamps
    records on arrival. ``same_id`` is the first record with the anchor's id but other content or time, ``other_id`` the
    first with the anchor's content and time but another id. Of the ``read`` records, without those far in front of the
    bound, ``has_ids`` and ``has_times`` say whether any has the fields that identify the anchor.
    """

    found: Record | None
    rest: Sequence[Record]
    newer: int
    position: int
    complete: bool
    before: Record | None
    newer_in_front: Record | None
    gap: bool
    append_time: bool
    same_id: int | None
    other_id: int | None
    read: int
    has_ids: bool
    has_times: bool


def advance(chunk: Chunk, position: int, end: int) -> int:
    """Where to read next, at most ``end``.

    Raises ``LogMoved`` if the log ends before ``end``, ``RuntimeError`` for a reader that makes no progress.
    """
    if not chunk.records and chunk.counted is None:
        if chunk.next_offset < end:
            raise LogMoved
        return end
    if chunk.next_offset <= position:
        raise RuntimeError(f"the log reader made no progress at offset {position}")
    return min(chunk.next_offset, end)


def read_once(position: int, size: int, end: int) -> Search[tuple[Sequence[Record], int]]:
    """Read once: the records before ``end``, and where to read next."""
    chunk = yield from ask_read(position, size)
    records, following = chunk.records, advance(chunk, position, end)
    if records and records[-1].offset >= end:
        records = [record for record in records if record.offset < end]
    return records, following


def record_at(offset: int) -> Search[Record | None]:
    """The record at this offset, or None."""
    records, _ = yield from read_once(offset, 1, offset + 1)
    return records[0] if records else None


def records_at(places: Collection[int], start: int, end: int) -> Search[dict[int, Record]]:
    """The records at those of these offsets that have one, read in one round."""
    asked = [Read(place, 1) for place in sorted(places) if start <= place < end]
    answers = (yield tuple(asked)) if asked else ()
    found = {}
    for read, answer in zip(asked, answers, strict=True):
        chunk = as_chunk(answer)
        advance(chunk, read.offset, read.offset + 1)
        if chunk.records and chunk.records[0].offset == read.offset:
            found[read.offset] = chunk.records[0]
    return found


@dataclass(frozen=True, slots=True)
class Stretch:
    """The scope of a scan: offsets from ``begin`` to ``end`` with the bound ``lower``, and how much to read.

    ``lower_ms`` is the time whose lookup gave ``lower``: a record in front of it that is as new contradicts it. Missing
    offsets are a gap from ``gaps_from`` on. Records with a Kafka timestamp before ``not_before_ms``, which is not above
    the anchor's, need not be remembered. ``in_full``: every record behind the anchor is examined. Otherwise newer
    records need only be counted, nearly always.
    """

    begin: int
    lower: int
    end: int
    budget: int
    first_read: int
    lower_ms: int | None = None
    gaps_from: int = 0
    not_before_ms: int | None = None
    in_full: bool = False


_OFFSET = attrgetter("offset")


class Dated(Protocol):
    """The method ``are_older`` of records that are looked through in one call, for readers that decode slowly."""

    def __call__(self, count: int, before_ms: int) -> bool:
        """Whether the producers dated the first ``count`` records before this time, all of them."""


def _are_older(records: Sequence[Record], count: int, before_ms: int) -> bool:
    screen: Dated | None = getattr(records, "are_older", None)
    if screen is not None:
        return screen(count, before_ms)
    return not any(
        record.append_time or (record.timestamp_ms is not None and record.timestamp_ms >= before_ms)
        for record in records[:count]
    )


class _Notes:
    """The state of a scan: facts about the records that it has read so far."""

    def __init__(self, matcher: Matcher, stretch: Stretch) -> None:
        self._matcher = matcher
        self._stretch = stretch
        # Most records that a search reads first are older than the wanted time: they are only counted.
        self._older = stretch.not_before_ms if matcher.is_of_its_time else None
        if self._older is not None and stretch.lower_ms is not None:
            self._older = min(self._older, stretch.lower_ms)
        self._expected = stretch.begin
        self._before: Record | None = None
        self._newer_in_front: Record | None = None
        self._passed = 0
        self._gap = self._append_time = False
        self._same_id: int | None = None
        self._other_id: int | None = None
        self._has_ids, self._has_times = not matcher.by_id, not matcher.wants_time

    def note(self, records: Sequence[Record], processed: Processed) -> int | None:
        """Note each record up to the anchor, whose index in ``records`` is returned, or up to the stretch's end.

        Noting a record once more changes nothing.
        """
        # The inner loop of every search: what it needs of each record is looked up once.
        matcher, older, lower, end = self._matcher, self._older, self._stretch.lower, self._stretch.end
        not_before_ms, gaps_from = self._stretch.not_before_ms, self._stretch.gaps_from
        lower_ms = INT64_MAX if self._stretch.lower_ms is None else self._stretch.lower_ms
        first = self._pass_front(records)
        expected = self._expected
        for index, record in enumerate(records[first:] if first else records, first):
            offset, stamp, appended = record.offset, record.timestamp_ms, record.append_time
            if offset >= end:
                break
            if offset > expected and offset > gaps_from:
                self._gap = True
            expected = offset + 1
            if appended:
                self._append_time = True
            elif older is not None and stamp is not None and stamp < older:
                if offset < lower:
                    self._before = record
                continue
            if offset < lower and stamp is not None and stamp >= lower_ms:
                self._newer_in_front = self._newer_in_front or record
            if matcher.is_anchor(record):
                self._expected = expected
                return index
            processed.remember(record, not_before_ms)
            if offset < lower:
                self._before = record
            self._note_identity(record)
        self._expected = expected
        return None

    def _pass_front(self, records: Sequence[Record]) -> int:
        """Pass the records far in front of the bound if all of them are older, as its lookup says; how many they are.

        Nothing else is to be learned from them: a gap there is none, and no copy of the anchor is among them.
        """
        lower_ms, until = self._stretch.lower_ms, min(self._stretch.lower - PEEK_BACK, self._stretch.gaps_from)
        count = until - records[0].offset if records else 0
        if lower_ms is None or count <= 0:
            return 0
        if count > len(records) or (last := records[count - 1]).offset >= until:  # a gap parts them
            count = bisect_left(records, until, key=_OFFSET)
            last = records[count - 1]
        if not _are_older(records, count, lower_ms):
            return 0
        if self._before is None or last.offset > self._before.offset:
            self._before = last
            self._passed += count
        self._expected = last.offset + 1
        return count

    def _note_identity(self, record: Record) -> None:
        matcher = self._matcher
        self._has_ids = self._has_ids or matcher.has_id(record)
        self._has_times = self._has_times or matcher.has_time(record)
        if self._same_id is None and matcher.shares_id(record):
            self._same_id = record.offset
        if self._other_id is None and matcher.has_other_id(record):
            self._other_id = record.offset

    def scan(
        self, position: int, read: int, *, found: Record | None = None, rest: Sequence[Record] = (), newer: int = 0
    ) -> Scan:
        """How the scan ended."""
        return Scan(
            found=found,
            rest=rest,
            newer=newer,
            position=position,
            complete=found is None and position >= self._stretch.end,
            before=self._before,
            newer_in_front=self._newer_in_front,
            gap=self._gap,
            append_time=self._append_time,
            same_id=self._same_id,
            other_id=self._other_id,
            read=read - self._passed,
            has_ids=self._has_ids,
            has_times=self._has_times,
        )


def scan_for_anchor(matcher: Matcher, processed: Processed, stretch: Stretch) -> Search[Scan]:
    """Read from ``begin`` until the anchor, the end, or ``budget`` records."""
    position, read, size, end = stretch.begin, 0, stretch.first_read, stretch.end
    notes = _Notes(matcher, stretch)
    full_until = None if stretch.in_full else processed.new_after(stretch.not_before_ms)
    again = False
    while position < end and read < stretch.budget:
        most = min(size, stretch.budget - read)
        chunk = yield from ask_read(position, most, full_until_ms=full_until, again=again)
        records, counted = chunk.records, chunk.counted
        at = notes.note(records, processed)
        if at is not None:
            processed.found(records[at])
            if counted is None or not (counted.last >= end or processed.examines_since(counted.oldest_ms)):
                rest = records[at + 1 :]
                if rest and rest[-1].offset >= end:
                    rest = [each for each in rest if each.offset < end]
                newer = 0 if counted is None else counted.count
                following = advance(chunk, position, end)
                return notes.scan(following, read, found=records[at], rest=rest, newer=newer)
        again = counted is not None
        if again:  # the same records once more, and all of them
            full_until = None
            continue
        read += len(records)
        position = advance(chunk, position, end)
        size = min(size * 4, LARGEST_READ)
    return notes.scan(position, read)


def first_unproven(judge: Judge, begin: int, end: int, *, only_after_gap: bool = False) -> Search[int]:
    """The first record in [``begin``, ``end``) that is not surely processed; ``end`` if there is none.

    ``only_after_gap``: consider only records whose preceding offset is empty, and never the one at ``begin``.
    """
    position, size, expected = begin, FIRST_READ, begin
    while position < end:
        records, position = yield from read_once(position, min(size, end - position), end)
        for record in records:
            if (record.offset > expected or not only_after_gap) and judge(record) is not True:
                return record.offset
            expected = record.offset + 1
        size = min(size * 4, LARGEST_READ)
    return end


def count_possible(judge: Judge, begin: int, end: int) -> Search[int]:
    """How many records in [``begin``, ``end``) may have been processed."""
    position, count = begin, 0
    while position < end:
        size = min(max(FIRST_READ, position - begin), end - position, LARGEST_READ)
        records, position = yield from read_once(position, size, end)
        count += sum(judge(record) is not False for record in records)
    return count


def count_records(begin: int, end: int, budget: int) -> Search[tuple[int, int]]:
    """How many records are in [``begin``, ``end``) as far as ``budget`` allows, and how many offsets stayed unread."""
    position, count = begin, 0
    while position < end and count < budget:
        size = min(max(FIRST_READ, count), budget - count, LARGEST_READ)
        records, position = yield from read_once(position, size, end)
        count += len(records)
    return count, max(0, end - position)


def has_gap(begin: int, end: int) -> Search[bool]:
    """True if an offset in [``begin``, ``end``) holds no record."""
    position, size = begin, FIRST_READ
    while position < end:
        chunk = yield from ask_read(position, min(size, end - position))
        for record in chunk.records:
            if record.offset != position:
                return position < end
            position += 1
        if not chunk.records:
            advance(chunk, position, end)
            return True
        size = min(size * 4, LARGEST_READ)
    return False


def last_before(offset: int, start: int) -> Search[Record | None]:
    """The last record in [``start``, ``offset``), or None.

    Each window that it reads is four times as wide as the one before: log4 of the gap in reads.
    """
    width = PEEK_BACK
    while offset > start:
        position = max(start, offset - width)
        reached_start = position == start
        last: Record | None = None
        while position < offset:
            records, position = yield from read_once(position, min(offset - position, LARGEST_READ), offset)
            last = records[-1] if records else last
        if last is not None or reached_start:
            return last
        width *= 4
    return None


def last_equal(matcher: Matcher, begin: int, end: int, budget: int) -> Search[int | None]:
    """The offset of the last record equal to the anchor in [``begin``, ``end``), or None.

    After ``budget`` records the first unread offset counts as one, since it may be.
    """
    position, read = begin, 0
    last: int | None = None
    while position < end:
        if read >= budget:
            return position
        size = min(max(FIRST_READ, read), budget - read, LARGEST_READ)
        records, position = yield from read_once(position, size, end)
        for record in records:
            if matcher.is_anchor(record):
                last = record.offset
        read += len(records)
    return last
