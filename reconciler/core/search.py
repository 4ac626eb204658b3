"""Finding the anchor of another numbering in a destination partition, and the offset to resume at.

Theory of operation
-------------------
A destination partition is made of runs: each a stretch of the source partition in source order, perhaps with records
missing; a run that re-sends starts at or before the end of the run before it. From that:

F   First copy. Everything before the first copy of the anchor's record was processed, so resuming right after it skips
    nothing. Resuming after a later copy could: a re-send cut off half way leaves unprocessed records only
    between the copies. Where no two records share an id, ``resent`` can prove a later copy as good.
T   Time bound. L(t), the first offset with a timestamp >= t, is at or before every record with timestamp t. With
    t the anchor's own Kafka timestamp, which the mirror preserves, no copy is before L(t), whatever the disorder.
W   Whole log. F needs the first copy to be there still. It is if nothing was deleted in front (start 0), or if a record
    older than t less the disorder survives: the records from it up to the next copy of the anchor, was processed
    too, because every run starts at or before the end of the one before. Compaction can remove a first copy and keep
    a later one: then a gap in the numbering is a doubt. In doubt, the first record that is not surely processed is
    the resume point, and the verdict is ``early``.

So the record found by reading forward from L(t) is the first copy. Where t is not a Kafka timestamp (it comes from the
payload, or is unknown) and no two records share an id, a copy found anywhere supplies the Kafka timestamp c of all its
copies, and L(c) takes the place of L(t). Bisection only finds candidates; it never proves a lower bound.

If the record is not found although the whole log from the bound was read, it is absent, and time decides
(``timebound``). If the budget ends first, the time bound is still safe; the verdict is ``early`` and says so.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from reconciler.core.anchors import Anchor, Names, Record
from reconciler.core.bounds import (
    Bounds,
    Case,
    all_are_ahead,
    as_scanned,
    better_bounds,
    check_safe,
    checked_scan,
    find_candidate,
    first_bounds,
    impossible,
    tighten,
    without_time_bound,
)
from reconciler.core.matching import Matcher, Processed
from reconciler.core.probes import (
    Search,
    ask_edges,
    ask_read,
)
from reconciler.core.question import Question
from reconciler.core.resent import Around, Replay, Stepped, count_replay, step_over
from reconciler.core.scan import (
    FIRST_READ,
    LARGEST_READ,
    Scan,
    Stretch,
    advance,
    count_possible,
    first_unproven,
    has_gap,
    last_before,
    last_equal,
    scan_for_anchor,
)
from reconciler.core.timebound import (
    TimeEvidence,
    judge_by_order,
    judge_by_time,
    lookup_margin,
    resume_by_time,
)
from reconciler.core.verdicts import Finding, Verdict


def search(
    question: Question,
    anchor: Anchor,
    why: str = "",
    *,
    mirrored: bool = True,
    candidate: Record | None = None,
    may_step: bool = True,
) -> Search[Finding]:
    """Find where the job continues. ``why`` opens the finding's detail with the reason for this search.

    ``mirrored`` False: the log was cut and written again, so F does not hold, and only order and time decide.
    ``candidate`` is a known copy of the anchor. ``may_step`` False: resume at the first copy, wherever it came again.
    """
    matcher = Matcher(anchor, question.identity)
    if anchor.names is Names.MAX_TIME or not matcher.pins:
        return (yield from _by_time_alone(question, anchor, why))
    judge = judge_by_time(question, anchor.timestamp_ms, anchor.timestamp_ms)
    if matcher.by_order:
        judge = judge_by_order(matcher, judge, anchor_is_done=anchor.names is not Names.NEXT)
    case = Case(question, anchor, matcher, judge, why, mirrored, candidate, may_step)
    if anchor.timestamp_ms is None:
        return (yield from _without_time(case))
    bounds = yield from first_bounds(case)
    if not question.identity.record_time and matcher.tells_copies and bounds.end - bounds.lower > LARGEST_READ:
        bounds = yield from tighten(case, bounds)
    case, bounds, processed, scan = yield from checked_scan(case, bounds)
    retry = yield from better_bounds(case, bounds, scan)
    if retry is not None:
        case, bounds, processed, scan = yield from checked_scan(case, retry)
    if question.latest_ms is not None and not (yield from all_are_ahead(case, bounds, scan)):
        case, bounds = without_time_bound(case, bounds)
    if scan.found is not None:
        return (yield from _conclude_found(case, bounds, processed, scan, scan.found))
    return (yield from _conclude_not_found(case, bounds, scan))


# ---------------------------------------------------------------- conclusions


def _by_time_alone(question: Question, anchor: Anchor, why: str) -> Search[Finding]:
    if anchor.timestamp_ms is None:
        return Finding(Verdict.UNRESOLVED, None, detail=f"{why}the anchor names no record and no time")
    latest = anchor.timestamp_ms
    if anchor.names is Names.MAX_TIME:
        latest -= question.limits.max_disorder_ms  # nothing processed is newer than the largest time: no margin
    if question.latest_ms is not None:
        edges = yield from ask_edges()
        return _nothing_bounds(why + impossible(anchor.timestamp_ms), edges.start)
    judge = judge_by_time(question, anchor.timestamp_ms, latest)
    return (yield from resume_by_time(question, anchor.timestamp_ms, judge, TimeEvidence(ties_count=True, why=why)))


def _without_time(case: Case) -> Search[Finding]:
    """Find a copy to learn the anchor's time, then search with that.

    With an increasing id any copy will do. Other anchors may equal records of another time, and only the first in the
    whole log surely does not lie after the real one.
    """
    edges = yield from ask_edges()
    found: Record | None = None
    complete = False
    if case.matcher.by_order:
        found = yield from find_candidate(case.question, case.anchor, case.matcher, edges.start, edges.end)
    if found is None or case.question.identity.trusted_time_of(found) is None:
        stretch = Stretch(edges.start, edges.start, edges.end, case.question.limits.scan_records, FIRST_READ)
        processed = case.processed()
        scan = yield from scan_for_anchor(case.matcher, processed, stretch)
        found, complete = scan.found, scan.complete
        if found is not None and case.question.identity.trusted_time_of(found) is None:
            bounds = Bounds.of_start(edges.start, edges.end)
            finding = yield from _conclude_found(case, bounds, processed, scan, found)
            # Behind a time that the broker overwrote, every record counts already.
            settled = case.question.identity.record_time or case.matcher.tells_copies
            return finding if settled else (yield from _unless_an_equal_one_follows(case, finding, edges.end))
    time = None if found is None else case.question.identity.trusted_time_of(found)
    if found is not None and time is not None:
        timed = replace(case.anchor, timestamp_ms=time)
        words = {"mirrored": case.mirrored, "may_step": case.may_step}
        finding = yield from search(case.question, timed, case.why, candidate=found, **words)
        by_order = case.matcher.by_order
        return finding if by_order else (yield from _unless_an_equal_one_follows(case, finding, edges.end))
    if case.matcher.by_order:
        return (yield from resume_by_time(case.question, None, case.judge, TimeEvidence(absent=complete, why=case.why)))
    if edges.start == edges.end == 0:
        detail = "the destination partition is empty: the mirror has not delivered yet"
        return Finding(Verdict.BEHIND, 0, 0, 0, detail=case.why + detail)
    note = "its record is not in the destination" if complete else "its record was not found within the budget"
    detail = f"{case.why}the anchor has no time, and {note}: only the log's start is safe"
    verdict = Verdict.LOST if complete and edges.start > 0 else Verdict.EARLY
    return Finding(verdict, edges.start, edges.end - edges.start, None, detail=detail)


def _unless_an_equal_one_follows(case: Case, finding: Finding, end: int) -> Search[Finding]:
    """The finding; ``early`` if an equal record behind it may be the anchor, and so all before that processed."""
    begin, budget = finding.resume_offset, case.question.limits.tail_records
    last = None if begin is None else (yield from last_equal(case.matcher, begin, end, budget))
    if begin is None or last is None:
        return finding
    detail = finding.detail + f"; offset {last} holds an equal record, and its time is not known"
    verdict = max(finding.verdict, Verdict.EARLY)
    return replace(finding, verdict=verdict, replay_at_most=end - begin, replay_exact=None, detail=detail)


def _conclude_found(case: Case, bounds: Bounds, processed: Processed, scan: Scan, copy: Record) -> Search[Finding]:
    question = case.question
    if not case.mirrored or bounds.start > 0 or question.compacted is not False:
        bounds = yield from check_safe(case, bounds, scan)
    settled = case.mirrored and (bounds.start == 0 or (yield from _older_survives(case, bounds)))
    doubtful = not settled
    if settled and question.compacted is not False:
        front = max(bounds.start, bounds.safe - 1)
        has_gaps = scan.gap or (bounds.begin > front and (yield from has_gap(front, bounds.begin)))
        doubtful = has_gaps and (yield from question.may_be_compacted())
    # With times from the payload, a Kafka timestamp does not show whether a first copy was before the log's start.
    hidden = doubtful or (bounds.start > 0 and not question.identity.record_time)
    count = partial(
        count_replay,
        processed,
        end=bounds.end,
        budget=question.limits.tail_records,
        lag=max(0, question.anchor_lag),
        is_open=question.is_open,
        may_be_hidden=hidden,
    )
    replay = yield from count(scan)
    if doubtful:
        # A removed copy left a gap directly before the first record that followed it and is still there.
        begin = max(bounds.start, min(bounds.safe, bounds.lower) - settled)
        resume = yield from first_unproven(case.judge, begin, copy.offset, only_after_gap=settled)
        if resume < copy.offset:
            return (yield from _land_early(case, bounds, replay, resume, copy))
    if case.may_step and replay.sent_again is not None and (case.matcher.by_order or not doubtful):
        begin = replay.begin if case.anchor_is_done else copy.offset
        left = question.limits.scan_records - (copy.offset - bounds.looked_at)
        around = Around(bounds.start, bounds.looked_at, begin, replay.sent_again, bounds.end, left)
        stepped = yield from step_over(processed, around)
        if stepped is not None:
            behind = replace(scan, rest=(), newer=0, position=stepped.place + 1)
            replay = yield from count(behind, leads=False)
            return _found(case, replay, copy, stepped.place + 1, stepped.place, stepped)
    if case.anchor_is_done:
        return _found(case, replay, copy, replay.begin, replay.begin - 1)
    previous = yield from last_before(copy.offset, bounds.start)
    return _found(case, replay, copy, copy.offset, None).resting_on(previous)


def _older_survives(case: Case, bounds: Bounds) -> Search[bool]:
    """True if a surely processed record is still there before all that may be unprocessed (W)."""
    if bounds.last is not None:
        return True
    chunk = yield from ask_read(bounds.start, 1)
    advance(chunk, bounds.start, min(bounds.start + 1, bounds.end))
    return bool(chunk.records) and case.judge(chunk.records[0]) is True


def _land_early(case: Case, bounds: Bounds, replay: Replay, resume: int, copy: Record) -> Search[Finding]:
    previous = yield from last_before(resume, bounds.start)
    front_end = copy.offset + case.anchor_is_done
    in_front = front_end - resume
    if case.matcher.by_order and not case.question.is_open:  # ids prove it; times only if max_disorder is right
        by_id = judge_by_order(case.matcher, lambda _: None, anchor_is_done=case.anchor_is_done)
        in_front = yield from count_possible(by_id, resume, front_end)
    stepped_over = replay.begin - copy.offset - 1
    at_most = min(bounds.end - resume, in_front + stepped_over + replay.at_most)
    detail = (
        f"a copy of the anchor is at offset {copy.offset}, but an earlier one may have been deleted: "
        "resuming at the first record that may not have been processed"
    )
    by, detail = case.matcher.matched_by, case.why + detail
    return Finding(Verdict.EARLY, resume, at_most, None, by, detail=detail).resting_on(previous)


def _found(
    case: Case, replay: Replay, copy: Record, resume: int, record_offset: int | None, stepped: Stepped | None = None
) -> Finding:
    lag, at_most, exact = case.question.anchor_lag, replay.at_most, replay.exact
    stored = case.question.stored
    here = copy.offset == case.anchor.offset and stored is not None and resume == stored.offset
    verdict = Verdict.EXACT
    detail = "the anchor is at its own offset" if here else f"the anchor is at offset {copy.offset} here"
    if lag > 0:
        verdict, exact = Verdict.EARLY, None
        offsets, records = ("offset", "record") if lag == 1 else ("offsets", "records")
        detail = f"the anchor is {lag} {offsets} older than the stored offset: up to {lag} {records} in between repeat"
    elif exact is None:
        detail += f"; up to {at_most} of the records after it may be processed ones that were sent again"
    finding = Finding(verdict, resume, at_most, exact, case.matcher.matched_by, record_offset, case.why + detail)
    if verdict is Verdict.EARLY and record_offset == copy.offset:
        finding = finding.resting_on(copy)
    return finding if stepped is None else stepped.note_in(finding)


def _why_absent(case: Case, scan: Scan) -> str:
    """Why no record of a whole log is the anchor, as the beginning of a detail."""
    if misread := _misread(case, scan):
        return misread
    if scan.same_id is not None:
        return f"offset {scan.same_id} has the anchor's id but other content or time, so it is not trusted; "
    return "the anchor's record is not in the destination; "


def _misread(case: Case, scan: Scan) -> str:
    """The sign that the identity settings are not those with which the anchor was recorded; empty without one."""
    identity, check = case.question.identity, "check [jobs.identity]"
    records = f"none of the {scan.read:,} records"
    if scan.read and not scan.has_ids:
        return f"anchors have ids, and {records} read has {identity.id_name}: {check} id; "
    if scan.read and not scan.has_times:
        return f"anchors have times, and {records} read has {identity.time_name}: {check} timestamp; "
    if scan.other_id is not None and scan.same_id is None:
        return f"offset {scan.other_id} has the anchor's content and time, and another id: {check} id; "
    return ""


def _nothing_bounds(why: str, start: int) -> Finding:
    return Finding(Verdict.UNRESOLVED, None, detail=f"{why}only the log's start, offset {start:,}, is safe")


def _conclude_not_found(case: Case, bounds: Bounds, scan: Scan) -> Search[Finding]:
    if case.question.latest_ms is not None and not case.matcher.by_order:
        return _nothing_bounds(case.why + (_why_absent(case, scan) if scan.complete else ""), bounds.start)
    time = case.anchor.timestamp_ms if case.question.latest_ms is None else None
    bounds = as_scanned(bounds, scan)
    if scan.complete:
        note = _why_absent(case, scan)
        named = scan.same_id is not None
        known = TimeEvidence(absent=not _misread(case, scan), names_it=named, why=case.why + note, bound=bounds)
        return (yield from resume_by_time(case.question, time, case.judge, known))
    candidate = case.candidate or (
        yield from find_candidate(case.question, case.anchor, case.matcher, bounds.lower, bounds.end)
    )
    scanned = case.question.limits.scan_records
    note = f"the anchor was not found within {scanned} records of offset {bounds.lower}; {_misread(case, scan)}"
    if candidate is not None:
        need = candidate.offset - bounds.lower + 1
        note += f"a copy is at {candidate.offset}: [search] scan_records = {need} would prove it; "
        if candidate.timestamp_ms is not None and not case.question.identity.record_time:
            time_here = candidate.timestamp_ms + lookup_margin(case.question)
            time = time_here if time is None else min(time, time_here)
    known = TimeEvidence(why=case.why + note, bound=bounds if time in (None, case.anchor.timestamp_ms) else None)
    return (yield from resume_by_time(case.question, time, case.judge, known))
