"""Finding the anchor of another numbering in a destination partition, and the offset to resume at.

Theory of operation
-------------------
A destination partition is made of runs: each a stretch of the source partition in source order, perhaps with records
missing; a run that re-sends starts at or before the end of what was sent. From that:

F   First copy. Everything before the first copy of the anchor's record was processed, so resuming right after it skips
    nothing. Resuming after a later copy could: a re-send cut off half way leaves unprocessed records only
    between the copies. This search always resumes after the first copy.
T   Time bound. L(t), the first offset with a timestamp >= t, is at or before every record with timestamp t. With
    t the anchor's own Kafka timestamp, which the mirror preserves, no copy lies before L(t), whatever the disorder.

So the record found by reading forward from L(t) is the first copy, and nothing else needs to be proven. Where t is
not a Kafka timestamp (it comes from the payload, or is unknown), a copy found anywhere supplies the Kafka timestamp c
of all its copies, and L(c) takes the place of L(t). Bisection only finds candidates; it never proves a lower bound.

If the record is not found although all of [L(t), end) was read, it is absent, and time decides (``timebound``).
If the budget ends first, L(t - d) is still safe; the verdict is ``bounded`` and says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.core.anchors import Anchor, Names
from reconciler.core.candidates import find_candidate
from reconciler.core.matching import Matcher, Processed
from reconciler.core.probes import LogEnd, LogStart, Search, TimeLookup, as_int, as_lookup, ask_lookup
from reconciler.core.question import Question
from reconciler.core.scan import FIRST_READ, LARGEST_READ, Replay, Scan, count_replay, last_before, scan_for_anchor
from reconciler.core.timebound import Judge, judge_by_order, judge_by_time, resume_by_time
from reconciler.core.verdicts import Finding, Verdict


def search(question: Question, anchor: Anchor, why: str = "") -> Search[Finding]:
    """Find where the job continues. ``why`` opens the finding's detail with what led here."""
    matcher = Matcher(anchor, question.identity)
    if anchor.names is Names.MAX_TIME or not matcher.pins:
        return (yield from _by_time_alone(question, anchor, why))
    lower, end = yield from _lower_bound(question, anchor)
    if not (anchor.timestamp_ms is not None and question.identity.record_time) and end - lower > LARGEST_READ:
        lower = yield from _tighten(question, anchor, matcher, lower, end)

    processed, scan = yield from _first_copy(question, anchor, matcher, lower, end)
    earlier = yield from _earlier_bound(question, anchor, scan, lower)
    if earlier < lower:
        lower = earlier
        processed, scan = yield from _first_copy(question, anchor, matcher, lower, end)
    if scan.found is not None:
        replay = yield from count_replay(processed, scan, end, question.limits.tail_records)
        return (yield from _conclude_found(question, anchor, matcher, scan, replay, why))
    return (yield from _conclude_not_found(question, anchor, matcher, scan, lower, end, why))


def _first_copy(
    question: Question, anchor: Anchor, matcher: Matcher, lower: int, end: int
) -> Search[tuple[Processed, Scan]]:
    limits = question.limits
    processed = Processed(matcher, limits.max_disorder_ms)
    not_before = anchor.timestamp_ms if question.identity.record_time else None
    first_read = min(max(end - lower, 1), FIRST_READ + limits.tail_records, LARGEST_READ)
    scan = yield from scan_for_anchor(matcher, processed, lower, end, limits.scan_records, first_read, not_before)
    return processed, scan


def _earlier_bound(question: Question, anchor: Anchor, scan: Scan, lower: int) -> Search[int]:
    """L(c) of a found copy whose stamp is older than its payload's time allows; else ``lower``.

    Only then may a copy lie before a bound that was made from the payload's time.
    """
    found, time = scan.found, anchor.timestamp_ms
    if question.identity.record_time or time is None or found is None:
        return lower
    stamp = found.timestamp_ms
    if found.append_time or stamp is None or stamp >= time - question.limits.max_disorder_ms:
        return lower
    lookup = yield from ask_lookup(stamp)
    return lower if lookup is None else min(lower, lookup)


def _by_time_alone(question: Question, anchor: Anchor, why: str) -> Search[Finding]:
    if anchor.timestamp_ms is None:
        return Finding(Verdict.UNRESOLVED, None, detail=f"{why}the anchor names no record and no time")
    latest = anchor.timestamp_ms
    if anchor.names is Names.MAX_TIME:
        latest -= question.limits.max_disorder_ms  # nothing processed is newer than the largest time: no margin
    judge = judge_by_time(question, anchor.timestamp_ms, latest)
    return (yield from resume_by_time(question, anchor.timestamp_ms, judge, absent=False, why=why))


def _lower_bound(question: Question, anchor: Anchor) -> Search[tuple[int, int]]:
    """(lower, end): no copy of the anchor's record lies before ``lower``."""
    if anchor.timestamp_ms is None:
        answers = yield (LogStart(), LogEnd())
        return as_int(answers[0]), as_int(answers[1])
    # A payload's time may be later than the record's stamp by the stated disorder; a Kafka timestamp is exact.
    margin = 0 if question.identity.record_time else question.limits.max_disorder_ms
    answers = yield (LogEnd(), TimeLookup(max(0, anchor.timestamp_ms - margin)))
    end, lookup = as_int(answers[0]), as_lookup(answers[1])
    return (end if lookup is None else min(lookup, end)), end


def _tighten(question: Question, anchor: Anchor, matcher: Matcher, lower: int, end: int) -> Search[int]:
    """A better lower bound, by the Kafka timestamp of any copy: L(c) is at or before every copy."""
    candidate = yield from find_candidate(question, anchor, matcher, lower, end)
    if candidate is None or candidate.append_time or candidate.timestamp_ms is None:
        return lower
    lookup = yield from ask_lookup(candidate.timestamp_ms)
    return lower if lookup is None else max(lower, min(lookup, candidate.offset))


@dataclass(frozen=True, slots=True)
class _Resume:
    offset: int
    record_offset: int | None


def _conclude_found(
    question: Question, anchor: Anchor, matcher: Matcher, scan: Scan, replay: Replay, why: str
) -> Search[Finding]:
    if scan.found is None or question.stored is None:
        raise ValueError("nothing was found, so there is nothing to conclude from it")
    first_copy = scan.found.offset
    if anchor.names is Names.NEXT:
        resume = yield from _resume_at(first_copy)
    else:
        resume = _Resume(first_copy + 1, first_copy)
    at_most, exact, lag = replay.at_most, replay.exact, question.anchor_lag
    if lag > 0:
        detail = f"{why}the anchor is {lag} offsets older than the stored offset: up to {lag} records in between repeat"
        return Finding(
            Verdict.BOUNDED, resume.offset, at_most + lag, None, matcher.matched_by, resume.record_offset, detail
        )
    here = first_copy == anchor.offset and resume.offset == question.stored.offset
    detail = "the anchor is at its own offset" if here else f"the anchor is at offset {first_copy} here"
    if exact is None:
        detail += f"; up to {at_most} of the records behind it may be processed ones that were sent again"
    return Finding(
        Verdict.MATCH if here else Verdict.MOVED,
        resume.offset,
        at_most,
        exact,
        matcher.matched_by,
        resume.record_offset,
        why + detail,
    )


def _resume_at(offset: int) -> Search[_Resume]:
    answers = yield (LogStart(),)
    previous = yield from last_before(offset, as_int(answers[0]))
    return _Resume(offset, previous.offset if previous else None)


def _conclude_not_found(
    question: Question, anchor: Anchor, matcher: Matcher, scan: Scan, lower: int, end: int, why: str
) -> Search[Finding]:
    judge: Judge = judge_by_time(question, anchor.timestamp_ms, anchor.timestamp_ms)
    if matcher.by_order:
        judge = judge_by_order(matcher, judge)
    if scan.complete:
        note = "the anchor's record is not in the destination; "
        if scan.same_id is not None:
            note = f"offset {scan.same_id} has the anchor's id but other content or time, so it is not trusted; "
        if anchor.timestamp_ms is None and not matcher.by_order:
            return (yield from _absent_without_time(why))
        return (yield from resume_by_time(question, anchor.timestamp_ms, judge, absent=True, why=why + note))
    candidate = yield from find_candidate(question, anchor, matcher, lower, end)
    note = f"the anchor was not found within {question.limits.scan_records} records of offset {lower}; "
    if candidate is not None:
        need = candidate.offset - lower + 1
        note += f"a copy is at {candidate.offset}: [search] scan_records = {need} would prove it; "
    if anchor.timestamp_ms is None and not matcher.by_order:
        detail = f"{why}{note}without a time, only the log's start is safe"
        return Finding(Verdict.BOUNDED, lower, end - lower, None, detail=detail)
    return (yield from resume_by_time(question, anchor.timestamp_ms, judge, absent=True, why=why + note))


def _absent_without_time(why: str) -> Search[Finding]:
    answers = yield (LogStart(), LogEnd())
    start, end = as_int(answers[0]), as_int(answers[1])
    if start == end == 0:
        detail = "the destination partition is empty: the mirror has not delivered yet"
        return Finding(Verdict.BEHIND, 0, 0, 0, detail=why + detail)
    return Finding(
        Verdict.UNRESOLVED, None, detail=f"{why}the anchor's record is not in the destination and its time is not known"
    )
