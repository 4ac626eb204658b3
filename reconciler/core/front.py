"""Whether the records in front of a time lookup's answer contradict it.

A lookup of t says that every record in front of its answer has a timestamp before t, and all that a search concludes
from times rests on that: an answer that is too high skips records. Brokers have given such answers: Redpanda (PR 9815),
and Kafka with tiered storage where a lookup misses the remote segment (KAFKA-17637). So no answer is believed alone:

L   The records in front are read. If few enough, all of them, and then the answer is proven; else those right in front,
    where any answer that is too high in an ordered log meets a record of t or later. One such record is enough: then no
    lookup of this log is believed, and the search begins at the log's start.

A search that found nothing has only times to go by. It also asks for the first record's own time, which must give the
first record: a broker that looks into its local segments alone gives another.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.core.anchors import Record
from reconciler.core.probes import Search, ask_lookup, ask_read
from reconciler.core.question import Limits
from reconciler.core.scan import LARGEST_READ, advance, last_before, read_once

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
