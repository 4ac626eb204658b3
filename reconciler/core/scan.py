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
"""Records asked for beyond the expected position: a tie or a marker or two never costs a second round."""
PEEK_BACK = 8
"""Offsets in front of the bound that the first read takes along: what stands there tells whether the log is whole."""
LARGEST_READ = 8_192

Judge = Callable[[Record], bool | None]
"""True: surely processed. False: surely not. None: it may have been."""


@dataclass(frozen=True, slots=True)
class Scan:
    """How a forward scan ended.

    ``found`` is the first record equal to the anchor, ``rest`` the records of the same chunk behind it, ``position``
    where reading would go on, ``complete`` True if everything up to the end was read. ``before`` is the last record
    read in front of the bound. ``gap`` says that offsets were missing on the way, ``append_time`` that the broker
    stamps records on arrival. ``same_id`` is the first record with the anchor's id but other content or time.
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
    """Where to read next, at most ``end``. A reader that stands still would loop for ever: that is its bug.

    Raises ``LogMoved`` where the log is found to end before ``end``.
    """
    if not chunk.records:
        if chunk.next_offset < end:
            raise LogMoved
        return end
    if chunk.next_offset <= position:
        raise RuntimeError(f"the log reader made no progress at offset {position}")
    return min(chunk.next_offset, end)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What to scan: from ``begin``, where ``lower`` is the proven bound, to ``end``; how many records; how to begin.

    ``not_before_ms`` is the Kafka timestamp from which on records are worth remembering.
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
                place = advance(chunk, position, end)
                return Scan(record, rest, place, False, before, gap, append_time, same_id)
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

    ``only_after_gap``: of those with no record right in front of them; the record at ``begin`` itself is not asked.
    """
    position, size, expected = begin, FIRST_READ, begin
    while position < end:
        chunk = yield from ask_read(position, min(size, max(1, end - position)))
        for record in chunk.records:
            if record.offset >= end:
                break
            if (record.offset > expected or not only_after_gap) and judge(record) is not True:
                return record.offset
            expected = record.offset + 1
        position = advance(chunk, position, end)
        size = min(size * 4, LARGEST_READ)
    return end


def count_possible(judge: Judge, begin: int, end: int) -> Search[int]:
    """How many records in [``begin``, ``end``) may have been processed."""
    position, count = begin, 0
    while position < end:
        chunk = yield from ask_read(position, min(max(FIRST_READ, position - begin), end - position, LARGEST_READ))
        count += sum(judge(record) is not False for record in chunk.records if record.offset < end)
        position = advance(chunk, position, end)
    return count


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

    Looks back over windows four times as wide each: log4 of the gap in reads, and only the last one holds records.
    """
    width = PEEK_BACK
    while offset > start:
        position = max(start, offset - width)
        reached_start, last = position == start, None
        while position < offset:
            chunk = yield from ask_read(position, min(offset - position, LARGEST_READ))
            for record in chunk.records:
                if record.offset < offset:
                    last = record
            position = advance(chunk, position, offset)
        if last is not None or reached_start:
            return last
        width *= 4
    return None


def last_equal(matcher: Matcher, begin: int, end: int, budget: int) -> Search[int | None]:
    """The offset of the last record equal to the anchor in [``begin``, ``end``), or None.

    After ``budget`` records the first offset not read is taken for one: it may be.
    """
    position, read, last = begin, 0, None
    while position < end:
        if read >= budget:
            return position
        chunk = yield from ask_read(position, min(max(FIRST_READ, read), budget - read, LARGEST_READ))
        for record in chunk.records:
            if record.offset < end and matcher.is_anchor(record):
                last = record.offset
        read += len(chunk.records)
        position = advance(chunk, position, end)
    return last


# ---------------------------------------------------------------- counting what is read again


@dataclass(frozen=True, slots=True)
class Replay:
    """Records behind a resume point that were processed already: a bound, and whether it is exact.

    ``begin`` is the offset behind which they were counted: every record between the anchor's copy and it is surely
    processed (known only where ids increase), so resuming there skips nothing that resuming at the copy does not.
    """

    begin: int
    at_most: int
    is_exact: bool

    @property
    def exact(self) -> int | None:
        return self.at_most if self.is_exact else None


class _Tally:
    """Adds up what the records behind the anchor's copy are. ``lag`` records behind it were processed as well."""

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
        """Judge records in log order. With a lag, every one of them must be remembered."""
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
            # Any of the records that lag may come again: the first time they are within the lag itself.
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
            # What stands in front of the twin was processed if the twin is the anchor; later times say it was not.
            self.possibly, self.if_hidden = max(self.possibly + self.if_hidden + 1, self.not_later), 0
        self.done += judged is ProcessedState.PROCESSED
        self.possibly += judged is ProcessedState.POSSIBLY
        self.if_hidden += judged is ProcessedState.POSSIBLY_IF_HIDDEN


def count_replay(
    processed: Processed, scan: Scan, end: int, budget: int, *, lag: int, may_be_hidden: bool
) -> Search[Replay]:
    """Judge the records behind the anchor's first copy, up to ``budget`` of them; the unread rest counts in full.

    ``may_be_hidden``: first copies of processed records may be gone from the log.
    """
    begin = 0 if scan.found is None else scan.found.offset + 1
    tally, position, rest = _Tally(processed, lag, begin), scan.position, scan.rest
    while True:
        tally.add_all(rest if not rest or rest[-1].offset < end else [r for r in rest if r.offset < end])
        if position >= end or tally.read >= budget:
            break
        chunk = yield from ask_read(position, min(max(FIRST_READ, tally.read), budget - tally.read, LARGEST_READ))
        rest, position = chunk.records, advance(chunk, position, end)
    counted = tally.done + tally.possibly + (tally.if_hidden if may_be_hidden else 0)
    if position < end and processed.may_have_twins:
        counted = max(counted, tally.not_later)  # one may lie in what was not read, and all in front of it be processed
    at_most = counted + lag + (end - position)
    return Replay(tally.begin, at_most, is_exact=position >= end and at_most == tally.done)
