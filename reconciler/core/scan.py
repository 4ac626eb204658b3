"""Reading forward and backward: the only loops that walk a log record by record.

Invariants of every loop here: the position only grows (or the window only widens), so each ends; records at or past
``end``, the log's end when the search began, are left out, so that a log that grows meanwhile changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reconciler.core.anchors import Record, fingerprint
from reconciler.core.matching import Matcher, Processed, ProcessedState
from reconciler.core.probes import Chunk, LogMoved, Search, ask_read

FIRST_READ = 64
"""Records read beyond the expected position, so that a tie or a few markers do not cost a second round."""
PEEK_BACK = 8
"""Offsets before the bound that the first read includes: the records there tell whether the log is whole."""
LARGEST_READ = 8_192

Judge = Callable[[Record], bool | None]
"""True: surely processed. False: surely not. None: it may have been."""


@dataclass(frozen=True, slots=True)
class Scan:
    """How a forward scan ended.

    ``found`` is the first record equal to the anchor, ``rest`` the records of the same chunk after it, ``position``
    where reading would continue, ``complete`` True if everything up to the end was read. ``before`` is the last record
    read before the bound. ``gap``: offsets were missing on the way. ``append_time``: the broker stamps records on
    arrival. ``same_id`` is the first record with the anchor's id but other content or time.
    """

    found: Record | None
    rest: Sequence[Record]
    position: int
    complete: bool
    before: Record | None
    gap: bool
    append_time: bool
    same_id: int | None


def advance(chunk: Chunk, position: int, end: int) -> int:
    """Where to read next, at most ``end``.

    Raises ``LogMoved`` if the log ends before ``end``, ``RuntimeError`` for a reader that makes no progress.
    """
    if not chunk.records:
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


@dataclass(frozen=True, slots=True)
class Stretch:
    """The scope of a scan: offsets from ``begin`` to ``end`` with the proven bound ``lower``, and how much to read.

    Records with a Kafka timestamp before ``not_before_ms`` need not be remembered.
    """

    begin: int
    lower: int
    end: int
    budget: int
    first_read: int
    not_before_ms: int | None = None


def scan_for_anchor(matcher: Matcher, processed: Processed, stretch: Stretch) -> Search[Scan]:
    """Read from ``begin`` until the anchor, the end, or ``budget`` records."""
    position, read, size, end = stretch.begin, 0, stretch.first_read, stretch.end
    expected = stretch.begin
    before, gap, append_time, same_id = None, False, False, None
    while position < end and read < stretch.budget:
        chunk = yield from ask_read(position, min(size, stretch.budget - read))
        for index, record in enumerate(chunk.records):
            if record.offset >= end:
                break
            gap = gap or record.offset > expected
            expected = record.offset + 1
            append_time = append_time or record.append_time
            if matcher.is_anchor(record):
                processed.found(record)
                rest = chunk.records[index + 1 :]
                if rest and rest[-1].offset >= end:
                    rest = [each for each in rest if each.offset < end]
                following = advance(chunk, position, end)
                return Scan(record, rest, following, False, before, gap, append_time, same_id)
            processed.remember(record, stretch.not_before_ms)
            if record.offset < stretch.lower:
                before = record
            if same_id is None and matcher.shares_id(record):
                same_id = record.offset
        read += len(chunk.records)
        position = advance(chunk, position, end)
        size = min(size * 4, LARGEST_READ)
    return Scan(None, (), position, position >= end, before, gap, append_time, same_id)


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
    """How many records lie in [``begin``, ``end``) as far as ``budget`` allows, and how many offsets stayed unread."""
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


# ---------------------------------------------------------------- counting the replay


@dataclass(frozen=True, slots=True)
class Replay:
    """Records after a resume point that were processed already: a bound, and whether it is exact.

    They were counted from ``begin`` on. Every record between the anchor's copy and ``begin`` is surely processed
    (known only where ids increase), so resuming there skips no more than resuming at the copy.
    """

    begin: int
    at_most: int
    is_exact: bool

    @property
    def exact(self) -> int | None:
        return self.at_most if self.is_exact else None


class _Tally:
    """Counts the records after the anchor's copy by their state; ``lag`` records after it were processed as well."""

    def __init__(self, processed: Processed, lag: int, begin: int) -> None:
        self.begin = begin
        self._leading = processed.may_be_stepped_over
        self._processed = processed
        self._lag = lag
        self._seen: set[tuple[int | None, str]] = set()
        self.not_later = 0
        self._twin = False
        self.done = 0
        self.possibly = 0
        self.if_hidden = 0
        self.read = 0

    def add_all(self, records: Sequence[Record]) -> None:
        """Judge records in log order. With a lag, all of them must be remembered."""
        self.read += len(records)
        for record in records if self._lag else self._processed.undecided(records):
            self._add(record)

    def _add(self, record: Record) -> None:
        judged = self._processed.judge(record)
        self._leading = self._leading and judged is ProcessedState.PROCESSED
        if self._leading:
            self.begin = record.offset + 1
            return
        if self._lag and judged in (ProcessedState.UNPROCESSED, ProcessedState.POSSIBLY_IF_HIDDEN):
            # Any of the lagging records may repeat; their first occurrence is within the lag itself.
            mark = (None if record.append_time else record.timestamp_ms, fingerprint(record.key, record.value))
            if mark in self._seen:
                judged = ProcessedState.POSSIBLY
            self._seen.add(mark)
        if judged is not ProcessedState.UNPROCESSED and not self._processed.is_later(record):
            self.not_later += 1
        if judged is ProcessedState.POSSIBLY_IF_HIDDEN and self._twin:
            judged = ProcessedState.POSSIBLY  # its first copy may be the one between the twins
        if judged is ProcessedState.TWIN:
            self._twin = True
            # If the twin is the anchor, the records before it were processed, except those of later times.
            self.possibly, self.if_hidden = max(self.possibly + self.if_hidden + 1, self.not_later), 0
        self.done += judged is ProcessedState.PROCESSED
        self.possibly += judged is ProcessedState.POSSIBLY
        self.if_hidden += judged is ProcessedState.POSSIBLY_IF_HIDDEN


def count_replay(
    processed: Processed, scan: Scan, end: int, budget: int, *, lag: int, may_be_hidden: bool
) -> Search[Replay]:
    """Judge up to ``budget`` records after the anchor's first copy; the unread rest counts in full.

    ``may_be_hidden``: first copies of processed records may be gone from the log.
    """
    begin = 0 if scan.found is None else scan.found.offset + 1
    tally, position = _Tally(processed, lag, begin), scan.position
    tally.add_all(scan.rest)
    while position < end and tally.read < budget:
        size = min(max(FIRST_READ, tally.read), budget - tally.read, LARGEST_READ)
        records, position = yield from read_once(position, size, end)
        tally.add_all(records)
    counted = tally.done + tally.possibly + (tally.if_hidden if may_be_hidden else 0)
    if position < end and processed.may_have_twins:
        counted = max(counted, tally.not_later)  # a twin may be among the unread, and all before it processed
    at_most = counted + lag + (end - position)
    return Replay(tally.begin, at_most, is_exact=position >= end and at_most == tally.done)
