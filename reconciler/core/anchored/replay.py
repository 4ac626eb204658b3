"""Counting the records after a resume point that were processed already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.core.anchors import Record
from reconciler.core.matching import Processed, ProcessedState, mark_of
from reconciler.core.probes import Search
from reconciler.core.scan import FIRST_READ, LARGEST_READ, Scan, read_once


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
    """Counts the records after the anchor's copy by their state; ``lag`` records after it were processed as well."""

    def __init__(self, processed: Processed, lag: int, found: Record | None, *, leads: bool) -> None:
        self.begin = 0 if found is None else found.offset + 1
        self._leading = leads and processed.may_be_stepped_over
        self._processed = processed
        self._lag = lag
        self._seen: set[tuple[int | None, str]] = set()
        if lag and found is not None:
            self._is_first(found)  # an anchor that names the next record may itself be one of the lagging ones
        self.not_later = 0
        self._twin = False
        self.done = 0
        self.possibly = 0
        self.if_hidden = 0
        self.read = 0
        self.last_done: int | None = None

    def add_all(self, records: Sequence[Record]) -> None:
        """Judge records in log order. With a lag, all of them must be remembered."""
        self.read += len(records)
        for record in records if self._lag else self._processed.undecided(records):
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
        if self._lag and fresh and not self._is_first(record):
            # Any of the lagging records may repeat; their first occurrence is within the lag itself.
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


def count_replay(
    processed: Processed, scan: Scan, end: int, budget: int, *, lag: int, may_be_hidden: bool, leads: bool = True
) -> Search[Replay]:
    """Judge up to ``budget`` records after the anchor's first copy; the unread rest counts in full.

    ``may_be_hidden``: first copies of processed records may be gone from the log. ``leads``: the job may resume behind
    the processed records that come first; without it they are read again, and count.
    """
    tally, position = _Tally(processed, lag, scan.found, leads=leads), scan.position
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
