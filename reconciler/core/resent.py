"""Stepping over a stretch that the mirror sent again, and counting the processed records behind a resume point.

Resuming right after the first copy f of the anchor's record skips nothing, and reads again what was sent again behind
it. Where no two records share an id, a later place can be proven as good:

    Resuming right behind a place q skips a record only if its last copy is at or before q. So it skips nothing if
    every record whose last copy is in (f, q] was processed.

Where ids increase, the records whose id is not above the anchor's were processed. Otherwise those in front of f, and
the anchor itself: nothing unprocessed is before the first copy (``search``, F), which must be there still (W).

Let B be the first last copy behind f of a record that is not proven to be processed. Then q is the last copy of a
processed record before B. From q on the log is again one of the model, which begins at or before the anchor: so what
follows comes in the source's order, too.

A copy in an aborted transaction does not count: a job that reads committed records never sees it, and would skip the
record if its only other copy is in front of q. So the log behind f is read without aborted records. But a job that
reads all records sees it, as Spark does by default, and would skip the record if it has no other copy: the source may
have deleted it before the mirror could send it again. So the gaps are read, too, and a record that is only there counts
as one whose last copy is there. In front of f an aborted copy proves as much as any other: that its record was
processed.

An unread record is taken for one that may be needed: a budget that ends early only moves B, and so q, to an
earlier offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.core.anchors import Record
from reconciler.core.matching import Mark, Processed, ProcessedState, mark_of
from reconciler.core.probes import LogMoved, Search, ask_lookup, ask_read
from reconciler.core.scan import FIRST_READ, LARGEST_READ, Scan, read_once
from reconciler.core.verdicts import Finding


@dataclass(frozen=True, slots=True)
class Around:
    """The state of the search when the anchor's first copy is found.

    Records were read from ``front`` on, and ``start`` is the log's. ``begin`` is the first record that may be
    unprocessed, ``sent_again`` the last one behind it that is known to be processed.
    """

    start: int
    front: int
    begin: int
    sent_again: int
    end: int
    budget: int


@dataclass(frozen=True, slots=True)
class Stepped:
    """The result: ``place`` is q, ``mark`` the fingerprint of the record there, ``count`` the records stepped over."""

    place: int
    mark: str
    count: int

    def note_in(self, finding: Finding) -> Finding:
        """The finding with what was stepped over, and with the record before it, which need not be the anchor's."""
        word = "record" if self.count == 1 else "records"
        detail = f"{finding.detail}; stepped over {self.count:,} {word} that were sent again"
        return replace(finding, detail=detail, record_fingerprint=self.mark)


def step_over(processed: Processed, around: Around) -> Search[Stepped | None]:
    """The furthest place that is proven to be as good as the first copy; None if there is none."""
    tail = _Tail(processed)
    read = yield from tail.read(around)
    if tail.is_contradictory:
        return None
    barrier, earlier = tail.barrier()
    if earlier:
        missing = yield from _look_in_front(processed, earlier, around, around.budget - read)
        if missing is None:
            return None
        barrier = min((tail.last[name].offset for name in missing), default=barrier)
    return tail.last_processed(barrier)


class _Tail:
    """The records behind the first copy: of each id the last copy, and of all the order."""

    def __init__(self, processed: Processed) -> None:
        self.last: dict[bytes, Record] = {}
        self.is_contradictory = False
        self._processed = processed
        self._records: list[tuple[Record, bytes | None]] = []
        self._marks: dict[bytes, Mark] = {}
        self._hidden: dict[bytes, Record] = {}
        """The last copy there of each id that was first seen in an aborted or open transaction."""
        self._nameless: int | None = None
        self._wanted: set[bytes] = set()
        """Ids of unprocessed records up to the last one that was sent again, which did not come again yet."""

    def read(self, around: Around) -> Search[int]:
        """Read until all that was skipped came again; return the number of records read."""
        position, read = around.begin, 0
        while position < around.end and read < around.budget:
            if position > around.sent_again and not self._wanted:
                break
            size = min(max(FIRST_READ, around.sent_again + 1 - position, read), around.budget - read, LARGEST_READ)
            begin = position
            records, position = yield from _read_committed(position, size, around.end)
            read += len(records)
            for record in records:
                self._add(record, around.sent_again)
            if position - begin > len(records):
                seen = {record.offset for record in records}
                read += yield from self._read_gaps(begin, position, seen, around, around.budget - read)
            if self.is_contradictory or (self._nameless is not None and self._nameless <= around.begin):
                break
        self.last = {**self._hidden, **self.last}
        return read

    def _read_gaps(self, begin: int, end: int, seen: set[int], around: Around, budget: int) -> Search[int]:
        """Read what is in [``begin``, ``end``) besides the committed records; return the number of records read."""
        read = 0
        while begin < end and read < budget:
            records, begin = yield from read_once(begin, min(end - begin, budget - read, LARGEST_READ), end)
            read += len(records)
            for record in records:
                if record.offset not in seen:
                    self._add_hidden(record, around.sent_again)
        if begin < end:
            self._stop_at(begin)
        return read

    def _stop_at(self, offset: int) -> None:
        """Nothing behind this offset can be proven."""
        self._nameless = offset if self._nameless is None else min(self._nameless, offset)

    def _add_hidden(self, record: Record, sent_again: int) -> None:
        name = self._name_of(record)
        if name is None:
            self._stop_at(record.offset)
        elif name not in self.last:
            self._hidden[name] = record
            if record.offset <= sent_again:
                self._want(name, record, sent_again)

    def _name_of(self, record: Record) -> bytes | None:
        """The record's id; notes one that contradicts another record of this id."""
        name = self._processed.id_of(record)
        if name is not None:
            mark = mark_of(record)
            if self._marks.setdefault(name, mark) != mark or self._processed.contradicts(name, mark):
                self.is_contradictory = True
        return name

    def _want(self, name: bytes, record: Record, sent_again: int) -> None:
        if record.offset > sent_again:
            self._wanted.discard(name)
        elif not self._processed.is_surely(record) and not self._processed.is_dated_before(record):
            self._wanted.add(name)

    def _add(self, record: Record, sent_again: int) -> None:
        name = self._name_of(record)
        self._records.append((record, name))
        if name is None:
            self._stop_at(record.offset)
            return
        self.last[name] = record
        self._want(name, record, sent_again)

    def barrier(self) -> tuple[int | None, dict[bytes, Record]]:
        """B, as if every record that may be in front had been found there, and those records that end before B."""
        unproven = [(record, name) for name, record in self.last.items() if not self._processed.is_surely(record)]
        new = [record.offset for record, _ in unproven if not self._may_be_in_front(record)]
        if self._nameless is not None:
            new.append(self._nameless)
        barrier = min(new, default=None)
        earlier = {
            name: record
            for record, name in unproven
            if self._may_be_in_front(record) and (barrier is None or record.offset < barrier)
        }
        return barrier, earlier

    def _may_be_in_front(self, record: Record) -> bool:
        return self._processed.needs_whole_front and self._processed.is_dated_before(record)

    def last_processed(self, barrier: int | None) -> Stepped | None:
        inside = [record for record, _ in self._records if barrier is None or record.offset < barrier]
        while inside and not self._processed.is_surely(inside[-1]):
            inside.pop()
        return Stepped(inside[-1].offset, mark_of(inside[-1])[1], len(inside)) if inside else None


def _read_committed(position: int, size: int, end: int) -> Search[tuple[Sequence[Record], int]]:
    """As ``read_once``, without records of aborted and open transactions: behind these the log counts as read."""
    chunk = yield from ask_read(position, size, committed=True)
    if chunk.out_of_range:
        raise LogMoved
    following = min(chunk.next_offset, end) if chunk.records else end
    return [record for record in chunk.records if record.offset < end], following


def _look_in_front(
    processed: Processed, wanted: dict[bytes, Record], around: Around, budget: int
) -> Search[set[bytes] | None]:
    """Which of these records are not in front of the anchor's first copy; None if one there contradicts them.

    A copy carries its record's timestamp, so none is before the first offset of the smallest one.
    """
    missing = set(wanted)
    lookup = yield from ask_lookup(min(record.timestamp_ms or 0 for record in wanted.values()))
    lower, upper = max(around.start, around.front if lookup is None else lookup), around.front
    width = max(FIRST_READ, len(wanted))
    while missing and lower < upper and budget > 0:
        position = max(lower, upper - min(width, budget))
        following = position
        while following < upper:
            records, following = yield from read_once(following, min(upper - following, LARGEST_READ), upper)
            budget -= len(records)
            for record in records:
                processed.know(record)
                name = processed.id_of(record)
                if name in missing:
                    if processed.contradicts(name, mark_of(wanted[name])):
                        return None
                    missing.discard(name)
        upper, width = position, 2 * width
    return missing


@dataclass(frozen=True, slots=True)
class Replay:
    """Records after a resume point that were processed already: a bound, and whether it is exact.

    They were counted from ``begin`` on. Every record between the anchor's copy and ``begin`` is surely processed
    (known only where ids increase), so resuming there skips no more than resuming at the copy.
    """

    begin: int
    at_most: int
    is_exact: bool
    sent_again: int | None = None
    """The last record read behind ``begin`` that was surely processed: a copy that the mirror sent again."""

    @property
    def exact(self) -> int | None:
        return self.at_most if self.is_exact else None


class _Tally:
    """Counts the records after the anchor's copy by their state. ``is_open``: some of them may be processed as well."""

    def __init__(self, processed: Processed, found: Record | None, *, is_open: bool, leads: bool) -> None:
        self.begin = 0 if found is None else found.offset + 1
        self._leading = leads and processed.may_be_stepped_over
        self._processed = processed
        self._is_open = is_open
        self._seen: set[tuple[int | None, str]] = set()
        if is_open and found is not None:
            self._is_first(found)  # an anchor that names the next record may itself be one of them
        self.not_later = 0
        self._twin = False
        self.done = 0
        self.possibly = 0
        self.if_hidden = 0
        self.read = 0
        self.last_done: int | None = None

    def add_all(self, records: Sequence[Record]) -> None:
        """Judge records in log order. Where some more may be processed, all must be remembered."""
        self.read += len(records)
        for record in records if self._is_open else self._processed.undecided(records):
            self._add(record)

    def _is_first(self, record: Record) -> bool:
        """Whether no record equal to this one came before it; remembers it."""
        mark = mark_of(record)
        known = mark in self._seen
        self._seen.add(mark)
        return not known

    def _add(self, record: Record) -> None:
        judged = self._processed.judge(record)
        self._leading = self._leading and judged is ProcessedState.PROCESSED
        if self._leading:
            self.begin = record.offset + 1
            return
        fresh = judged in (ProcessedState.UNPROCESSED, ProcessedState.POSSIBLY_IF_HIDDEN)
        if self._is_open and fresh and not self._is_first(record):
            # Any record that may be processed may come again; first occurrences are within the lag, or ``beyond``.
            judged = ProcessedState.POSSIBLY
        if judged is not ProcessedState.UNPROCESSED and not self._processed.is_later(record):
            self.not_later += 1
        if judged is ProcessedState.POSSIBLY_IF_HIDDEN and self._twin:
            judged = ProcessedState.POSSIBLY  # its first copy may be the one between the twins
        if judged is ProcessedState.TWIN:
            self._twin = True
            # If the twin is the anchor, the records before it were processed, except those of later times.
            self.possibly, self.if_hidden = max(self.possibly + self.if_hidden + 1, self.not_later), 0
        if judged is ProcessedState.PROCESSED:
            self.done += 1
            self.last_done = record.offset
        self.possibly += judged is ProcessedState.POSSIBLY
        self.if_hidden += judged is ProcessedState.POSSIBLY_IF_HIDDEN


def count_copies(begin: int, until: int, end: int, budget: int) -> Search[int]:
    """How many records in [``until``, ``end``) equal one in [``begin``, ``until``), of up to ``budget`` that are read.

    The unread rest counts in full.
    """
    seen: set[Mark] = set()
    position, read, copies = begin, 0, 0
    while position < end and read < budget:
        size = min(max(FIRST_READ, read), budget - read, LARGEST_READ)
        records, position = yield from read_once(position, size, end)
        read += len(records)
        seen |= {mark_of(record) for record in records if record.offset < until}
        copies += sum(1 for record in records if record.offset >= until and mark_of(record) in seen)
    return copies + max(0, end - max(position, until))


def count_replay(
    processed: Processed,
    scan: Scan,
    end: int,
    budget: int,
    *,
    lag: int,
    is_open: bool,
    may_be_hidden: bool,
    leads: bool = True,
) -> Search[Replay]:
    """Judge up to ``budget`` records after the anchor's first copy; the unread rest counts in full.

    ``is_open`` as ``Question.is_open``: a record that comes again then counts.
    ``may_be_hidden``: first copies of processed records may be gone from the log. ``leads``: the job may resume behind
    the processed records that come first; without it they are read again, and count.
    """
    tally, position = _Tally(processed, scan.found, is_open=is_open, leads=leads), scan.position
    tally.add_all(scan.rest)
    tally.read += scan.newer
    while position < end and tally.read < budget:
        size = min(max(FIRST_READ, tally.read), budget - tally.read, LARGEST_READ)
        records, position = yield from read_once(position, size, end)
        tally.add_all(records)
    counted = tally.done + tally.possibly + (tally.if_hidden if may_be_hidden else 0)
    if position < end and not processed.tells_copies:
        counted = max(counted, tally.not_later)  # a twin may be among the unread, and all before it processed
    at_most = counted + lag + (end - position)
    return Replay(tally.begin, at_most, is_exact=position >= end and at_most == tally.done, sent_again=tally.last_done)
