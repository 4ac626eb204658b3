"""The source's offsets that mirrored records carry: how they are written, and where they go back.

A mirror writes them as text, or as bytes of either order. One number can be read in several ways. So several records of
a partition decide, at once for all of them: from record to record the offsets grow by little.

Places where the offsets go back are found by bisection. Within one stretch of a mirrored log no more offsets lie
between two records than numbers, unless a transaction's markers do. Where more lie, the half that exceeds by more is
looked at. So a log without such a place costs two reads, and one with it a logarithm. Gaps in the source's numbering
can hide a place: nothing found proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from reconciler.core.anchors import Identity, Record
from reconciler.core.probes import Search
from reconciler.core.scan import FIRST_READ, last_before, read_once

Spelling = Callable[[object], int | None]
"""Reads a value as an offset; None if it is none in this spelling."""

WIDTHS = (4, 8)
MOST = 2**48
"""No partition has offsets as large as this; the other order of bytes nearly always gives a larger one."""
LITTLE = 2**16
"""Offsets of records that follow one another differ by less. In the wrong order of bytes they differ by more."""
ENOUGH = 8
"""Equal numbers that no offsets have, not even of a record that was sent again and again."""
_DIGITS = re.compile(rb'[0-9]{1,19}|"[0-9]{1,19}"')


def as_number(value: object) -> int | None:
    """A whole number, or decimal text, also in quotes."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes) and _DIGITS.fullmatch(value):
        value = int(value.strip(b'"'))
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 2**63 else None


def _as_bytes(order: Literal["big", "little"]) -> Spelling:
    def read(value: object) -> int | None:
        if not isinstance(value, bytes) or len(value) not in WIDTHS:
            return None
        number = int.from_bytes(value, order)
        return number if number < MOST else None

    return read


SPELLINGS: tuple[Spelling, ...] = (as_number, _as_bytes("big"), _as_bytes("little"))
"""Digits are text, also where there are 4 or 8 of them."""


def reader_of(identity: Identity, records: Sequence[Record]) -> Callable[[Record], int | None] | str:
    """Reads the source's offset off any record of the partition that ``records`` are of; or why that cannot be told,
    as a sentence without a full stop."""
    value_of, name = identity.source_value_of, identity.source_value_name
    assert value_of is not None, "asked only where records carry numbers"
    held = [(record.offset, value) for record in records if (value := value_of(record)) is not None]
    if not held:
        return f"none of the {len(records):,} records read has {name}"
    read = [
        (spelling, [number for _, value in held if (number := spelling(value)) is not None]) for spelling in SPELLINGS
    ]
    most = max(len(numbers) for _, numbers in read)
    if most * 4 < len(held) * 3:  # a few may be another program's
        offset, value = next(each for each in held if as_number(each[1]) is None)
        return f"{name} of record {offset:,} holds {_shown(value)}, which is neither decimal text nor 4 or 8 bytes"
    best = [(spelling, numbers) for spelling, numbers in read if len(numbers) == most]
    spelling, numbers = max(best, key=lambda each: _small_steps(each[1]))
    if len(numbers) >= ENOUGH and len(set(numbers)) == 1:
        return f"{name} holds {numbers[0]:,} in all of the {len(numbers):,} records read, so it is no offset"
    others = [other for other_spelling, other in best if other_spelling is not spelling and other != numbers]
    if spelling is not as_number and any(_small_steps(other) == _small_steps(numbers) for other in others):
        offset, value = held[0]
        return f"{name} of record {offset:,} holds {_shown(value)}, and too few records show the order of its bytes"
    return lambda record: spelling(value_of(record))


def _small_steps(numbers: Sequence[int]) -> int:
    return sum(0 < late - early < LITTLE for early, late in pairwise(numbers))


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes ({value[:8].hex(' ')}{' …' if len(value) > 8 else ''})"
    return ascii(value)[:40]


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
