"""Resuming by time, where the anchor's record is not there or has no name.

Argument. Let t be the anchor's time and d the stated disorder. Every unprocessed record stands behind the anchor in
the source, so its time is at least t - d. All records before L(t - d) are older than that, hence processed: resuming at
L(t - d) skips nothing. Where times come from the payload, the lookup still goes by Kafka timestamps, and the argument
needs that a record is not stamped earlier than its event, give or take d. With LogAppendTime the same holds for clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.core.anchors import Record
from reconciler.core.matching import Matcher
from reconciler.core.probes import LogEnd, LogStart, Search, TimeLookup, as_int, as_lookup, ask_read
from reconciler.core.question import Question
from reconciler.core.scan import FIRST_READ, LARGEST_READ, advance, last_before
from reconciler.core.verdicts import Finding, Verdict

Judge = Callable[[Record], bool | None]
"""True: surely processed. False: surely not. None: it may have been."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What lies around the bound ``lower``; ``previous`` is the last record before it.

    ``tied`` records behind it have exactly the anchor's time; ``possibly`` is how many may have been processed, those
    not read included.
    """

    start: int
    end: int
    lower: int
    previous: Record | None
    tied: int
    possibly: int
    has_records: bool


def trusted_time(question: Question, record: Record) -> int | None:
    """The record's time in the job's sense, or None where it has none or a broker overwrote it."""
    if question.identity.record_time and record.append_time:
        return None
    return question.identity.timestamp_of(record)


def judge_by_time(question: Question, earliest_ms: int | None, latest_ms: int | None) -> Judge:
    """Older than ``earliest_ms`` less the disorder is processed; newer than ``latest_ms`` plus the disorder is not."""
    disorder = question.limits.max_disorder_ms

    def judge(record: Record) -> bool | None:
        time = trusted_time(question, record)
        if time is None:
            return None
        if earliest_ms is not None and time < earliest_ms - disorder:
            return True
        return False if latest_ms is not None and time > latest_ms + disorder else None

    return judge


def judge_by_order(matcher: Matcher, otherwise: Judge) -> Judge:
    """Where ids increase along the source, they say it exactly."""

    def judge(record: Record) -> bool | None:
        order = matcher.compare(record)
        return otherwise(record) if order is None else order <= 0

    return judge


def look_around(question: Question, time_ms: int | None, judge: Judge) -> Search[Surroundings]:
    """Find the time bound (the log's start without a time), step over what is surely processed, count what may be.

    Invariant: every record before ``lower`` is surely processed.
    """
    limits = question.limits
    budget = limits.scan_records + limits.tail_records
    if time_ms is None:
        answers = yield (LogStart(), LogEnd())
        start, end = as_int(answers[0]), as_int(answers[1])
        lower = start
    else:
        answers = yield (LogStart(), LogEnd(), TimeLookup(max(0, time_ms - question.limits.max_disorder_ms)))
        start, end, lookup = as_int(answers[0]), as_int(answers[1]), as_lookup(answers[2])
        lower = end if lookup is None else min(max(lookup, start), end)

    position, read, tied, possibly, stepping, any_record = lower, 0, 0, 0, True, False
    while position < end and read < budget:
        chunk = yield from ask_read(position, min(max(FIRST_READ, read), budget - read, LARGEST_READ))
        for record in chunk.records:
            if record.offset >= end:
                break
            any_record = True
            processed = judge(record)
            stepping = stepping and processed is True
            if stepping:
                lower = record.offset + 1
                continue
            budget = min(budget, read + limits.tail_records)
            tied += time_ms is not None and trusted_time(question, record) == time_ms
            possibly += processed is not False
        read += len(chunk.records)
        position = advance(chunk, position, end)
    previous = yield from last_before(lower, start)
    unread = end - position
    has_records = any_record or unread > 0 or previous is not None
    return Surroundings(start, end, lower, previous, tied, possibly + unread, has_records)


def resume_by_time(
    question: Question, time_ms: int | None, judge: Judge, *, absent: bool, why: str = ""
) -> Search[Finding]:
    """Decide by time (or by order alone, without one). ``absent``: the anchor's record is known not to be there."""
    around = yield from look_around(question, time_ms, judge)
    record_offset = around.previous.offset if around.previous else None

    def finding(verdict: Verdict, detail: str, by: str | None = None) -> Finding:
        exact = 0 if around.possibly == 0 else None
        return Finding(verdict, around.lower, around.possibly, exact, by, record_offset, why + detail)

    if not around.has_records:
        if around.start == 0:
            return finding(Verdict.BEHIND, "the destination partition is empty: the mirror has not delivered yet")
        return finding(Verdict.LOST, "every record of the destination partition has been deleted")
    if around.previous is not None and around.possibly == 0:
        rest = "no newer record is there" if around.lower == around.end else "the first newer record follows"
        return finding(Verdict.BEHIND, f"the destination stops before the anchor; {rest}")
    if around.tied and not absent:
        word = "record has" if around.tied == 1 else "records have"
        detail = f"only the anchor's time is known and {around.tied} {word} it: resuming at the first"
        return finding(Verdict.TIED, detail, "timestamp")
    if around.previous is None:
        return finding(Verdict.LOST, "the oldest record is newer than the anchor: records may be gone")
    return finding(Verdict.BOUNDED, "resuming at the first record that may not have been processed")


def remap(question: Question, earliest_ms: int, latest_ms: int) -> Search[Finding]:
    """Resume one destination partition by the times of all stored partitions (partition counts differ).

    Any unprocessed record, whichever partition it came from, has a time >= the earliest anchor's less the disorder;
    a processed one has a time <= the latest anchor's plus the disorder.
    """
    judge = judge_by_time(question, earliest_ms, latest_ms)
    around = yield from look_around(question, earliest_ms, judge)
    gone = around.previous is None and around.start > 0
    detail = "partition counts differ: resuming by the earliest anchor's time over all partitions"
    return Finding(
        Verdict.LOST if gone else Verdict.REMAPPED,
        around.lower,
        around.possibly,
        0 if around.possibly == 0 else None,
        None,
        around.previous.offset if around.previous else None,
        f"{detail}; older records have been deleted and some may be unprocessed" if gone else detail,
    )
