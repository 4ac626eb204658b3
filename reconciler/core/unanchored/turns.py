"""Where the source's offsets that records carry go back, in front of a place: found by bisection.

Within one stretch of a mirrored log no more offsets lie between two records than numbers, unless a transaction's
markers do. Where more lie, the half that exceeds by more is looked at. So a log without such a place costs two reads,
and one with it a logarithm. Gaps in the source's numbering can hide a place: nothing found proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.core.anchors import Record
from reconciler.core.probes import Search
from reconciler.core.scan import FIRST_READ, last_before, read_once

MOST_READS = 100
"""Reads of one partition in search of such places."""
MOST_IN_FRONT = 16
"""Such places in front. Each restart of a mirror may leave one, and the source's new topic may begin at any of them."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    first: Record
    last: Record
    excess: int


def turns_before(number_of: Callable[[Record], int | None], start: int, place: int) -> Search[list[Record]]:
    """Records in front of ``place`` at which numbers go back, 16 at most, those of the largest excess first."""

    def stretch(first: Record, last: Record) -> _Stretch:
        numbers = (number_of(last) or 0) - (number_of(first) or 0)
        return _Stretch(first, last, last.offset - first.offset - numbers)

    first = yield from _numbered(number_of, start, place)
    last = yield from last_before(place, start)
    if first is None or last is None or number_of(last) is None or last.offset <= first.offset:
        return []
    found: list[Record] = []
    left, reads = [stretch(first, last)], 0
    while left and len(found) < MOST_IN_FRONT and reads < MOST_READS:
        one = max(left, key=lambda each: each.excess)
        left.remove(one)
        if one.excess <= 0:
            break
        middle = (one.first.offset + 1 + one.last.offset) // 2
        between = yield from _numbered(number_of, middle, one.last.offset)
        reads += 1
        if between is None and middle > one.first.offset + 1:
            # The nearest one, since a gap may fill the whole half: from the front each read would gain one record.
            between = yield from last_before(middle, one.first.offset + 1)
            if between is not None and number_of(between) is None:
                between = yield from _numbered(number_of, one.first.offset + 1, middle)
            reads += 1
        if between is not None:
            left += [stretch(one.first, between), stretch(between, one.last)]
        elif (number_of(one.last) or 0) <= (number_of(one.first) or 0):
            found.append(one.last)
    return found


def _numbered(number_of: Callable[[Record], int | None], begin: int, end: int) -> Search[Record | None]:
    """The first record from ``begin`` on that carries a number, among so many."""
    if begin >= end:
        return None
    records, _ = yield from read_once(begin, min(FIRST_READ, end - begin), end)
    return next((record for record in records if number_of(record) is not None), None)
