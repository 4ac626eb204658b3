"""Resuming by time, where the anchor's record is not there or has no name.

Argument. Let t be the anchor's time and d the stated disorder. Every unprocessed record is after the anchor in
the source, so its time is at least t - d. All records before L(t - d) are older than that, hence processed: resuming at
L(t - d) skips nothing. Where times come from the payload, the lookup still goes by Kafka timestamps: a record must not
be stamped earlier than its event less d, so that L(t - 2d) is the bound. With LogAppendTime the same holds for the
broker's clock against the producers'.

A lookup of t says that every record in front of its answer has a timestamp before t. An answer that is too high skips
records. Brokers have given such answers: Redpanda (PR 9815), and Kafka with tiered storage where a lookup misses the
remote segment (KAFKA-17637). So no answer is believed alone:

L   The records in front are read. If few enough, all of them, and then the answer is proven; else those right in front,
    where any answer that is too high in an ordered log meets a record of t or later. One such record is enough: then no
    lookup of this log is believed, and the search begins at the log's start.

A search that found nothing has only times to go by. It also asks for the first record's own time, which must give the
first record: a broker that looks into its local segments alone gives another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler.core.anchors import Record
from reconciler.core.matching import Matcher
from reconciler.core.probes import Edges, Search, TimeLookup, as_lookup, as_range, ask_edges, ask_lookup, ask_read
from reconciler.core.question import Limits, Question
from reconciler.core.scan import FIRST_READ, LARGEST_READ, Judge, advance, last_before, read_once
from reconciler.core.verdicts import Finding, MatchedBy, Verdict


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The records around the bound ``lower``; ``previous`` is the last record before it.

    ``tied`` records after it have exactly the anchor's time; ``possibly`` records may have been processed, the unread
    ones included. ``begins_behind_anchor``: all records are newer than the anchor, or as new. ``doubt`` says, as the
    beginning of a detail, why no time lookup was believed.
    """

    start: int
    end: int
    lower: int
    previous: Record | None
    tied: int
    possibly: int
    has_records: bool
    begins_behind_anchor: bool
    doubt: str


def lookup_margin(question: Question) -> int:
    """How much earlier than t the Kafka timestamp of an unprocessed record may be, in ms."""
    disorder = question.limits.max_disorder_ms
    return disorder if question.identity.record_time else 2 * disorder


def judge_by_time(question: Question, earliest_ms: int | None, latest_ms: int | None) -> Judge:
    """Older than ``earliest_ms`` less the disorder is processed; newer than ``latest_ms`` plus the disorder is not."""
    disorder = question.limits.max_disorder_ms

    def judge(record: Record) -> bool | None:
        time = question.identity.trusted_time_of(record)
        if time is None:
            return None
        if earliest_ms is not None and time < earliest_ms - disorder:
            return True
        return False if latest_ms is not None and time > latest_ms + disorder else None

    return judge


def judge_by_order(matcher: Matcher, otherwise: Judge, *, anchor_is_done: bool) -> Judge:
    """Increasing ids decide exactly; ``otherwise`` judges records without an id."""

    def judge(record: Record) -> bool | None:
        order = matcher.compare(record)
        return otherwise(record) if order is None else order < 0 or (order == 0 and anchor_is_done)

    return judge


def time_bound(question: Question, time_ms: int | None) -> Search[TimeBound]:
    """Ask for the log's range and the bound of a time; without a time the log's start is the bound."""
    if time_ms is None:
        edges = yield from ask_edges()
        return TimeBound(start=edges.start, end=edges.end, safe=edges.start)
    asked_ms = max(0, time_ms - lookup_margin(question))
    answers = yield (Edges(), TimeLookup(asked_ms))
    edges = as_range(answers[0])
    safe = edges.place_of(as_lookup(answers[1]))
    return TimeBound(start=edges.start, end=edges.end, safe=safe, safe_ms=asked_ms)


def look_around(
    question: Question, time_ms: int | None, judge: Judge, *, absent: bool, bound: TimeBound | None = None
) -> Search[Surroundings]:
    """From the time bound, step over the surely processed records, and count the possibly processed ones.

    Invariant: every record before ``lower`` is surely processed. Unless the anchor is known to be ``absent``, a record
    that may be the anchor makes all records before it count, whatever their times, and so do unread records.
    """
    limits = question.limits
    budget = limits.scan_records + limits.tail_records
    if bound is None:
        bound = yield from time_bound(question, time_ms)
    checked = yield from _checked(question, bound)
    doubt = doubt_of(bound.safe, checked.newer) if checked.newer is not None else ""
    start, end, lower = bound.start, bound.end, bound.safe
    previous = checked.last
    if checked.newer is not None:
        lower, previous = start, None

    position, read, tied, possibly, behind, stepping, any_record = lower, 0, 0, 0, 0, True, False
    older = newer = False
    while position < end and read < budget:
        size = min(max(FIRST_READ, read), budget - read, LARGEST_READ)
        records, position = yield from read_once(position, size, end)
        for record in records:
            any_record = True
            processed = judge(record)
            stepping = stepping and processed is True
            if stepping:
                lower, previous = record.offset + 1, record
                continue
            budget = min(budget, read + limits.tail_records)
            behind += 1
            time = record.timestamp_ms if record.append_time else question.identity.timestamp_of(record)
            tied += time_ms is not None and question.identity.trusted_time_of(record) == time_ms
            older = older or processed is True or (time_ms is not None and time is not None and time < time_ms)
            newer = newer or processed is False or (time_ms is not None and time is not None and time >= time_ms)
            possibly = behind if processed is None and not absent else possibly + (processed is not False)
        read += len(records)
    unread = end - position
    possibly = behind + unread if unread and not absent else possibly + unread
    return Surroundings(
        start=start,
        end=end,
        lower=lower,
        previous=previous,
        tied=tied,
        possibly=possibly,
        has_records=any_record or unread > 0 or previous is not None,
        begins_behind_anchor=previous is None and newer and not older,
        doubt=doubt,
    )


def _checked(question: Question, bound: TimeBound) -> Search[Front]:
    """The records in front of a bound, as far as they show whether the lookup that gave it can be right."""
    if bound.safe_ms is None:
        return Front((yield from last_before(bound.safe, bound.start)))
    front = Front(bound.last)
    if not bound.is_checked:
        front = yield from read_front(bound.start, bound.safe, bound.safe_ms, question.limits)
    if front.newer is None:
        front = replace(front, newer=(yield from misses_the_start(bound, question.limits)))
    return front


@dataclass(frozen=True, slots=True)
class TimeEvidence:
    """Facts that a decision by time depends on.

    ``absent``: the anchor's record is not in the log. ``names_it``: a record there has its id, and other content or
    time. ``ties_count``: a record of the anchor's time stands for it.
    ``times_are_sure`` is False where the time itself is a guess (a row's own): then nothing is exact or ``behind``.
    ``why`` opens the detail. ``bound`` is the time bound, if it is known already.
    """

    absent: bool = False
    names_it: bool = False
    ties_count: bool = False
    times_are_sure: bool = True
    why: str = ""
    bound: TimeBound | None = None


def resume_by_time(question: Question, time_ms: int | None, judge: Judge, known: TimeEvidence) -> Search[Finding]:
    """Decide by time, or without one by order alone."""
    around = yield from look_around(question, time_ms, judge, absent=known.absent, bound=known.bound)
    at_most = around.end - around.lower if question.is_open or not known.times_are_sure else around.possibly

    def finding(verdict: Verdict, detail: str, by: MatchedBy | None = None) -> Finding:
        exact = 0 if at_most == 0 and known.times_are_sure else None
        found = Finding(verdict, around.lower, at_most, exact, by, detail=known.why + around.doubt + detail)
        return found.resting_on(around.previous)

    if not around.has_records:
        if around.start == 0:
            return finding(Verdict.BEHIND, "the destination partition is empty: the mirror has not delivered yet")
        return finding(Verdict.LOST, "every record of the destination partition has been deleted")
    older = around.previous is not None and judge(around.previous) is True
    by_lookup = around.previous is not None and around.previous.append_time
    may_be_behind = known.absent or known.ties_count
    if may_be_behind and (older or by_lookup) and around.possibly == 0 and known.times_are_sure:
        rest = "no newer record is there" if around.lower == around.end else "the first newer record follows"
        return finding(Verdict.BEHIND, f"the destination stops before the anchor; {rest}")
    if around.tied and known.ties_count:
        word = "record has" if around.tied == 1 else "records have"
        margin = " less max_disorder" if question.limits.max_disorder_ms else ""
        detail = (
            f"only the anchor's time is known and {around.tied} {word} it: resuming at the first of that time{margin}"
        )
        return finding(Verdict.EARLY, detail, MatchedBy.TIMESTAMP)
    if around.start > 0 and around.begins_behind_anchor and not known.names_it:
        return finding(Verdict.LOST, "the oldest record is newer than the anchor")
    if around.start == 0 and around.begins_behind_anchor and not around.tied and not known.names_it:
        return finding(Verdict.EARLY, "resuming at the log's start, offset 0: the mirror began behind the anchor")
    return finding(Verdict.EARLY, "resuming at the first record that may not have been processed")


def remap(question: Question, earliest_ms: int | None, latest_ms: int | None) -> Search[Finding]:
    """Resume one destination partition by the times of all stored partitions (partition counts differ).

    An unprocessed record of any partition has a time >= the earliest anchor's less the disorder; a processed one has a
    time <= the latest anchor's plus the disorder. ``earliest_ms`` None: some partition was not read at all, so only the
    log's start is safe. ``latest_ms`` None: the processed records have no latest time.
    """
    judge = judge_by_time(question, earliest_ms, latest_ms)
    around = yield from look_around(question, earliest_ms, judge, absent=False)
    gone = around.start > 0 and (around.begins_behind_anchor or earliest_ms is None)
    # A record that lags behind its anchor may be in any partition.
    at_most = around.end - around.lower if question.is_open else around.possibly
    detail = "partition counts differ: resuming by the earliest anchor's time over all partitions"
    if earliest_ms is None:
        detail = "partition counts differ, and no time bounds what was not read: resuming at the log's start"
    if gone:
        detail += "; older records have been deleted and some may be unprocessed"
    verdict, exact = Verdict.LOST if gone else Verdict.EARLY, 0 if at_most == 0 else None
    found = Finding(verdict, around.lower, at_most, exact, detail=detail, spread=True)
    return found.resting_on(around.previous)


NEAR = 64
"""Offsets right in front of an answer that are read in any case."""
WHOLE = LARGEST_READ // 2
"""At most so many are read to prove an answer: the records behind it still come with the same read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBound:
    """The log's range, and an offset ``safe`` that no unprocessed record is before.

    ``safe_ms`` is the time whose lookup gave ``safe``; None if no lookup did, and nothing has to be checked.
    ``is_checked``: the records right in front were read, and ``last`` is the last of them, if there is one.
    """

    start: int
    end: int
    safe: int
    safe_ms: int | None = None
    is_checked: bool = False
    last: Record | None = None


@dataclass(frozen=True, slots=True)
class Front:
    """The records in front of an answer: the last one, and one of them that contradicts the answer."""

    last: Record | None
    newer: Record | None = None


def front_begin(start: int, answer: int, limits: Limits) -> int:
    """Where to begin to read in front of an answer: at the log's start, if that is near enough.

    ``tail_records`` is a partition's share of what a run may read to count the replay. As much is read here at most, so
    that a plan of many partitions stays quick.
    """
    width = max(NEAR, min(limits.tail_records, WHOLE))
    return start if answer - start <= width else answer - NEAR


def contradicts(record: Record, asked_ms: int | None) -> bool:
    """Whether a record in front of the answer to this time shows that the answer is wrong."""
    return asked_ms is not None and record.timestamp_ms is not None and record.timestamp_ms >= asked_ms


def doubt_of(answer: int, newer: Record) -> str:
    """Why lookups are not believed, as the beginning of a detail."""
    return (
        f"the broker's time lookup is wrong: it gave offset {answer:,}, and record {newer.offset:,} in front of it is "
        "not older than the time asked for; so "
    )


def read_front(start: int, answer: int, asked_ms: int, limits: Limits) -> Search[Front]:
    """Read the records in front of an answer. Usually one read."""
    begin = position = front_begin(start, answer, limits)
    last: Record | None = None
    while position < answer:
        records, position = yield from read_once(position, min(answer - position, LARGEST_READ), answer)
        for record in records:
            last = record
            if contradicts(record, asked_ms):
                return Front(last, record)
    if last is None and begin > start:
        last = yield from last_before(begin, start)
        if last is not None and contradicts(last, asked_ms):
            return Front(last, last)
    return Front(last)


def misses_the_start(bound: TimeBound, limits: Limits) -> Search[Record | None]:
    """The log's first record, if a lookup of its own time gives a later offset. Not asked if all in front was read."""
    if bound.safe_ms is None or front_begin(bound.start, bound.safe, limits) == bound.start:
        return None
    chunk = yield from ask_read(bound.start, 1)
    advance(chunk, bound.start, min(bound.start + 1, bound.end))
    first = chunk.records[0] if chunk.records else None
    if first is None or first.timestamp_ms is None or first.timestamp_ms < 0:
        return None
    lookup = yield from ask_lookup(first.timestamp_ms)
    return first if lookup is None or lookup > first.offset else None
