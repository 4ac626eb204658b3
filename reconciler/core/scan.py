"""Reading forward and backward: the only loops that walk a log record by record.

Invariants of every loop here: the position only grows (or the window only widens), so each ends; records at or past
``end``, the log's end when the search began, are left out, so that a log that grows meanwhile changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.core.anchors import Record
from reconciler.core.matching import Matcher, Processed, Seen
from reconciler.core.probes import Chunk, LogStart, Search, ask_number, ask_read

FIRST_READ = 64
"""Records asked for beyond the expected position: a tie or a marker or two never costs a second round."""
LARGEST_READ = 8_192


@dataclass(frozen=True, slots=True)
class Scan:
    """How a forward scan ended.

    ``found`` is the anchor's first copy at or after the scan's start, ``rest`` the records of the same chunk behind
    it, ``position`` where reading would go on, ``complete`` True if everything up to the end was read.
    ``same_id`` is the first record with the anchor's id but other content or time.
    """

    found: Record | None
    rest: Sequence[Record]
    position: int
    complete: bool
    same_id: int | None = None


def advance(chunk: Chunk, position: int, end: int) -> int:
    """Where to read next, at most ``end``. A reader that stands still would loop for ever: that is its bug."""
    if not chunk.records:
        return end
    if chunk.next_offset <= position:
        raise RuntimeError(f"the log reader made no progress at offset {position}")
    return min(chunk.next_offset, end)


def scan_for_anchor(
    matcher: Matcher,
    processed: Processed,
    lower: int,
    end: int,
    budget: int,
    first_read: int,
    not_before_ms: int | None,
) -> Search[Scan]:
    """Read from ``lower`` until the anchor, the end, or ``budget`` records."""
    position, read, size, same_id = lower, 0, first_read, None
    while position < end and read < budget:
        chunk = yield from ask_read(position, min(size, budget - read))
        for index, record in enumerate(chunk.records):
            if record.offset >= end:
                break
            if matcher.is_anchor(record):
                processed.found(record)
                return Scan(record, chunk.records[index + 1 :], advance(chunk, position, end), False, same_id)
            processed.remember(record, not_before_ms)
            if same_id is None and matcher.shares_id(record):
                same_id = record.offset
        read += len(chunk.records)
        position = advance(chunk, position, end)
        size = min(size * 4, LARGEST_READ)
    return Scan(None, (), position, position >= end, same_id)


@dataclass(frozen=True, slots=True)
class Replay:
    """Records behind a resume point that were processed already: a bound, and whether it is exact."""

    at_most: int
    is_exact: bool

    @property
    def exact(self) -> int | None:
        return self.at_most if self.is_exact else None


def count_replay(processed: Processed, scan: Scan, end: int, budget: int) -> Search[Replay]:
    """Judge the records behind the anchor's first copy, up to ``budget`` of them; the unread rest counts in full."""
    counts: Counter[Seen] = Counter()
    position, rest, read = scan.position, scan.rest, 0
    while True:
        counts.update(processed.judge(record) for record in rest if record.offset < end)
        read += len(rest)
        if position >= end or read >= budget:
            break
        chunk = yield from ask_read(position, min(max(FIRST_READ, read), budget - read, LARGEST_READ))
        rest, position = chunk.records, advance(chunk, position, end)
    at_most = counts[Seen.PROCESSED] + counts[Seen.POSSIBLY] + (end - position)
    if counts[Seen.POSSIBLY_IF_EXPIRED] and (yield from ask_number(LogStart())) > 0:
        at_most += counts[Seen.POSSIBLY_IF_EXPIRED]
    return Replay(at_most, is_exact=position >= end and at_most == counts[Seen.PROCESSED])


def last_before(offset: int, start: int) -> Search[Record | None]:
    """The last record in [``start``, ``offset``), or None.

    Looks back over windows four times as wide each: log4 of the gap in reads, and only the last one holds records.
    """
    width = 1
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
