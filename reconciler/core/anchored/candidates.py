"""Places where the anchor may be, found by bisection on records actually read.

In a log with re-sent stretches neither ids nor times are monotone, so bisection finds some copy of the anchor, not
necessarily the first, and a probe below the anchor proves nothing about the records before it. A candidate therefore
never decides. Where no two records share an id, it gives the anchor's own Kafka timestamp, which every copy carries,
and so a proven lower bound L(c); elsewhere it may be another record, which its producer wrote later.

Cost: log2(n/8) + 2 reads for an increasing id; as many and one short scan for a time from the payload.
"""

from __future__ import annotations

from collections.abc import Callable

from reconciler.core.anchors import Anchor, Record
from reconciler.core.matching import Matcher, Processed
from reconciler.core.probes import Search
from reconciler.core.question import Question
from reconciler.core.scan import FIRST_READ, LARGEST_READ, Stretch, read_once, scan_for_anchor

PEEK = 8
"""Records read per bisection step, so that a record without id or time does not end the search."""


def find_candidate(question: Question, anchor: Anchor, matcher: Matcher, lower: int, end: int) -> Search[Record | None]:
    """A record equal to the anchor in [``lower``, ``end``), or None."""
    for hint in question.hints:
        if lower <= hint < end:
            found = yield from _scan(question, matcher, hint, end, FIRST_READ)
            if found is not None:
                return found
    if matcher.by_order:
        boundary = yield from bisect(matcher.compare, lower, end)
        return (yield from _scan(question, matcher, boundary, end, PEEK))
    if anchor.timestamp_ms is None or question.identity.record_time:
        return None
    not_before = anchor.timestamp_ms - question.limits.max_disorder_ms

    def compare(record: Record) -> int | None:
        time = question.identity.timestamp_of(record)
        return None if time is None else (time > not_before) - (time < not_before)

    boundary = yield from bisect(compare, lower, end)
    return (yield from _scan(question, matcher, boundary, end, LARGEST_READ))


def bisect(compare: Callable[[Record], int | None], lower: int, end: int) -> Search[int]:
    """An offset whose next record compares >= 0 while the one before compares < 0, were the log monotone.

    Invariant: the interval [low, high) shrinks at every step; a record read at or after the middle decides which half
    stays, the lower one if no record there compares. The last few offsets are read at once.
    """
    low, high = lower, end
    while high - low > PEEK:
        middle = (low + high) // 2
        place, order = yield from _next_that_compares(compare, middle, high)
        if order is not None and order < 0:
            low = place + 1
        else:
            high = middle
    if low < high:
        records, _ = yield from read_once(low, PEEK, high)
        for record in records:
            order = compare(record)
            if order is not None and order >= 0:
                return low
            low = record.offset + 1
    return low


def _next_that_compares(
    compare: Callable[[Record], int | None], begin: int, end: int
) -> Search[tuple[int, int | None]]:
    """The first comparable one of a few records: its offset, and how it compares."""
    records, _ = yield from read_once(begin, PEEK, end)
    for record in records:
        order = compare(record)
        if order is not None:
            return record.offset, order
    return end, None


def _scan(question: Question, matcher: Matcher, begin: int, end: int, budget: int) -> Search[Record | None]:
    not_asked = Processed(matcher, question.identity, 0, anchor_is_done=True)
    stretch = Stretch(begin, begin, end, budget, min(budget, FIRST_READ))
    scan = yield from scan_for_anchor(matcher, not_asked, stretch)
    return scan.found
