"""Where a search begins to read, and its scan from there.

Time lookups give two bounds: no copy of the anchor is before ``lower``, no unprocessed record is before ``safe``. The
records in front of them are read too, and show whether the lookups can be right (``timebound``, L).

Candidates are records equal to the anchor, found by bisection on records actually read. In a log with re-sent stretches
neither ids nor times are monotone, so bisection finds some copy of the anchor, not necessarily the first, and a probe
below the anchor proves nothing about the records before it. A candidate therefore never decides. Where no two records
share an id, it gives the anchor's own Kafka timestamp, which every copy carries, and so a proven lower bound L(c);
elsewhere it may be another record, which its producer wrote later.

Cost: log2(n/8) + 2 reads for an increasing id; as many and one short scan for a time from the payload.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from reconciler.core.anchors import Anchor, Names, Record
from reconciler.core.matching import Matcher, Processed
from reconciler.core.probes import Edges, Round, Search, TimeLookup, as_lookup, as_range, ask_lookup
from reconciler.core.question import Limits, Question
from reconciler.core.scan import (
    FIRST_READ,
    LARGEST_READ,
    PEEK_BACK,
    Judge,
    Scan,
    Stretch,
    last_before,
    read_once,
    scan_for_anchor,
)
from reconciler.core.timebound import (
    TimeBound,
    contradicts,
    doubt_of,
    front_begin,
    judge_by_order,
    judge_by_time,
    lookup_margin,
    read_front,
)

PEEK = 8
"""Records read per bisection step, so that a record without id or time does not end the search."""


def find_candidate(question: Question, anchor: Anchor, matcher: Matcher, lower: int, end: int) -> Search[Record | None]:
    """A record equal to the anchor in [``lower``, ``end``), or None."""
    for hint in question.hints:
        if lower <= hint < end:
            found = yield from _scan_from(question, matcher, hint, end, FIRST_READ)
            if found is not None:
                return found
    if matcher.by_order:
        boundary = yield from bisect(matcher.compare, lower, end)
        return (yield from _scan_from(question, matcher, boundary, end, PEEK))
    if anchor.timestamp_ms is None or question.identity.record_time:
        return None
    not_before = anchor.timestamp_ms - question.limits.max_disorder_ms

    def compare(record: Record) -> int | None:
        time = question.identity.timestamp_of(record)
        return None if time is None else (time > not_before) - (time < not_before)

    boundary = yield from bisect(compare, lower, end)
    return (yield from _scan_from(question, matcher, boundary, end, LARGEST_READ))


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


def _scan_from(question: Question, matcher: Matcher, begin: int, end: int, budget: int) -> Search[Record | None]:
    not_asked = Processed(matcher, question.identity, 0, anchor_is_done=True)
    stretch = Stretch(begin, begin, end, budget, min(budget, FIRST_READ))
    scan = yield from scan_for_anchor(matcher, not_asked, stretch)
    return scan.found


WRONG_LOOKUP = "the broker's time lookup is wrong: it gave an earlier offset for a later time; so "


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds(TimeBound):
    """The log's range and two bounds: no copy of the anchor before ``lower``, no unprocessed record before ``safe``.

    ``lower_ms`` is the time whose lookup gave ``lower``, or None. A scan begins at ``begin``, in front of ``lower``.
    """

    lower: int
    lower_ms: int | None
    begin: int

    @classmethod
    def of_start(cls, start: int, end: int) -> Bounds:
        """Bounds that rest on no lookup."""
        return cls(start=start, end=end, safe=start, lower=start, lower_ms=None, begin=start)

    @property
    def looked_at(self) -> int:
        """From here on a scan compares each record with the anchor."""
        return max(self.begin, self.lower - PEEK_BACK)

    @property
    def from_start(self) -> Bounds:
        """The bounds with the log's start as ``lower``, which rests on no lookup."""
        return replace(self, lower=self.start, lower_ms=None, begin=self.start)

    def at(self, lower: int, lower_ms: int, limits: Limits) -> Bounds:
        """The bounds with another ``lower``."""
        return replace(self, lower=lower, lower_ms=lower_ms, begin=front_begin(self.start, lower, limits))


@dataclass(frozen=True, slots=True)
class Case:
    """The fixed inputs of one search."""

    question: Question
    anchor: Anchor
    matcher: Matcher
    judge: Judge
    why: str
    mirrored: bool = True
    candidate: Record | None = None
    """A known copy, not necessarily the first."""
    may_step: bool = True

    @property
    def anchor_is_done(self) -> bool:
        return self.anchor.names is not Names.NEXT

    def processed(self) -> Processed:
        disorder = self.question.limits.max_disorder_ms
        return Processed(self.matcher, self.question.identity, disorder, anchor_is_done=self.anchor_is_done)


def first_bounds(case: Case) -> Search[Bounds]:
    question, time = case.question, case.anchor.timestamp_ms or 0
    disorder = question.limits.max_disorder_ms
    # A payload's time may be later than the record's stamp by the stated disorder; a Kafka timestamp is exact.
    exact = max(0, time - (0 if question.identity.record_time else disorder))
    safe = max(0, time - lookup_margin(question))
    asked: Round = (Edges(), TimeLookup(exact))
    if safe != exact:
        asked = (*asked, TimeLookup(safe))
    answers = yield asked
    edges = as_range(answers[0])
    lower, *others = (edges.place_of(as_lookup(answer)) for answer in answers[1:])
    bounds = Bounds.of_start(edges.start, edges.end)
    return replace(bounds, safe=others[0] if others else lower, safe_ms=safe).at(lower, exact, question.limits)


def tighten(case: Case, bounds: Bounds) -> Search[Bounds]:
    """Raise the lower bound to L(c) for the Kafka timestamp c of any copy: by an id of its own, all copies have it."""
    found = yield from find_candidate(case.question, case.anchor, case.matcher, bounds.lower, bounds.end)
    if found is None or found.append_time or found.timestamp_ms is None:
        return bounds
    lookup = yield from ask_lookup(found.timestamp_ms)
    if lookup is None or not bounds.lower < lookup <= found.offset:
        return bounds
    return bounds.at(lookup, found.timestamp_ms, case.question.limits)


def better_bounds(case: Case, bounds: Bounds, scan: Scan) -> Search[Bounds | None]:
    """Bounds for a second scan, where the records read show that ``lower`` was not proven; else None.

    A lookup uses the log's timestamps. Where those are the broker's own, or the anchor's time is from the payload, the
    bound depends on clocks, and a copy may be before it.
    """
    found, time = scan.found, case.anchor.timestamp_ms
    whole = Bounds.of_start(bounds.start, bounds.end)
    if bounds.lower <= bounds.start or time is None:
        return None
    if found is None:
        by_clocks = scan.append_time or not case.question.identity.record_time
        if not by_clocks and scan.before is None:
            previous = yield from last_before(bounds.lower, bounds.start)
            by_clocks = previous is not None and previous.append_time
        return bounds.from_start if by_clocks else None
    stamp = found.timestamp_ms
    if found.append_time:
        if found.offset < bounds.lower:  # a copy before the bound: the clocks differ by more than was stated
            return bounds.from_start
        safe_ms = bounds.safe_ms
        earlier = safe_ms is not None and bounds.safe < bounds.lower
        return bounds.at(bounds.safe, safe_ms or 0, case.question.limits) if earlier else None
    if case.question.identity.record_time or stamp is None:
        return None
    if stamp >= time - case.question.limits.max_disorder_ms:
        return None
    lookup = yield from ask_lookup(stamp)
    if lookup is None or lookup > bounds.lower:  # later than that of a later time
        return whole
    if lookup < bounds.lower:
        return bounds.at(max(lookup, bounds.start), stamp, case.question.limits)
    front = yield from read_front(bounds.start, bounds.lower, stamp, case.question.limits)
    return None if front.newer is None else whole


def checked_scan(case: Case, bounds: Bounds) -> Search[tuple[Case, Bounds, Processed, Scan]]:
    """Scan from ``bounds``; from the log's start if a lookup that they rest on is contradicted (``timebound``, L)."""
    newer = case.candidate
    if newer is None or newer.offset >= bounds.lower or not contradicts(newer, bounds.lower_ms):
        processed, scan = yield from _scan(case, bounds)
        newer = scan.newer_in_front
        if newer is None and bounds.safe <= bounds.lower:
            return case, bounds, processed, scan
    doubt = WRONG_LOOKUP if newer is None else doubt_of(bounds.lower, newer)
    case, bounds = replace(case, why=case.why + doubt), Bounds.of_start(bounds.start, bounds.end)
    return case, bounds, *(yield from _scan(case, bounds))


def _scan(case: Case, bounds: Bounds) -> Search[tuple[Processed, Scan]]:
    limits, processed = case.question.limits, case.processed()
    front = bounds.lower - bounds.begin
    expected = bounds.end - bounds.begin if bounds.lower < bounds.end else front
    stretch = Stretch(
        begin=bounds.begin,
        lower=bounds.lower,
        end=bounds.end,
        budget=limits.scan_records + front,
        first_read=max(1, min(expected, front + FIRST_READ + limits.tail_records, LARGEST_READ)),
        lower_ms=bounds.lower_ms,
        gaps_from=bounds.safe - 1,
        not_before_ms=case.anchor.timestamp_ms if case.question.identity.record_time else None,
        in_full=case.question.is_open,
    )
    return processed, (yield from scan_for_anchor(case.matcher, processed, stretch))


def as_scanned(bounds: Bounds, scan: Scan) -> Bounds:
    """The bounds, with what the scan has read in front of ``safe`` if that is where it began."""
    if bounds.safe_ms is None or bounds.safe_ms != bounds.lower_ms:
        return bounds
    if scan.before is None and bounds.begin > bounds.start:
        return bounds
    return replace(bounds, is_checked=True, last=scan.before)


def check_safe(case: Case, bounds: Bounds, scan: Scan) -> Search[Bounds]:
    """The bounds with ``safe`` checked against the records in front of it (``timebound``, L)."""
    bounds = as_scanned(bounds, scan)
    if bounds.safe_ms is None or bounds.is_checked:
        return bounds
    front = yield from read_front(bounds.start, bounds.safe, bounds.safe_ms, case.question.limits)
    if front.newer is not None:
        return replace(bounds, safe=bounds.start, safe_ms=None)
    return replace(bounds, is_checked=True, last=front.last)


# ---------------------------------------------------------------- times that cannot be true


def impossible(time_ms: int | None) -> str:
    """Why such a time decides nothing, as the beginning of a detail."""
    return f"the anchor's time ({time_ms} ms) is later than its row was written, or than now, so it bounds nothing; "


def all_are_ahead(case: Case, bounds: Bounds, scan: Scan) -> Search[bool]:
    """True if the record in front of the copy has an impossible time too: a clock is wrong, and order holds."""
    latest = case.question.latest_ms
    if scan.found is None or latest is None:
        return False
    previous = yield from last_before(scan.found.offset, bounds.start)
    time = None if previous is None else case.question.identity.trusted_time_of(previous)
    return time is not None and time > latest


def without_time_bound(case: Case, bounds: Bounds) -> tuple[Case, Bounds]:
    """The case of an anchor whose time only names its record: what is older than it need not be processed."""
    judge = judge_by_time(case.question, None, None)
    if case.matcher.by_order:
        judge = judge_by_order(case.matcher, judge, anchor_is_done=case.anchor_is_done)
    case = replace(case, judge=judge, why=case.why + impossible(case.anchor.timestamp_ms))
    return case, replace(bounds, safe=bounds.start, safe_ms=None)
