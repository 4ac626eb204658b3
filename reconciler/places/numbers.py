"""The meaning of a bare number in another program's store: the next offset to read, the last processed one, or the
first of the last batch.

No such store says which; its address does (``number=next|last|first``). A number of the wrong meaning shifts a job by
one record a partition: a last processed offset that is taken for the next one skips a record. So nothing here guesses.
"""

from __future__ import annotations

import re
from enum import Enum

from reconciler.config.addresses import pairs, scheme_of
from reconciler.core.anchors import shown
from reconciler.core.json_fields import INT64_MAX
from reconciler.core.text import NotDecimal
from reconciler.places.parameters import Parameters

PARAMETER = "number"
_LAST_PROCESSED = re.compile(r"last|latest|process|consumed|handled|finished|completed|done|seen|max", re.IGNORECASE)


class Number(Enum):
    """The meaning of a kept number."""

    NEXT = "next"
    """The next offset to read, as in Spark's own offsets and a group's commits."""
    LAST = "last"
    """The offset of the last processed record, as in a column with the records' offsets."""
    FIRST = "first"
    """The first offset of the last batch: the job reads from it on, so it reads that batch again at every start."""

    @property
    def words(self) -> str:
        """The meaning, as the end of a sentence."""
        return {
            Number.NEXT: "the next offset to read",
            Number.LAST: "the last one processed: the job goes on at the next",
            Number.FIRST: "the first of its last batch: the job reads that batch again at every start",
        }[self]

    def offset(self, kept: int) -> int:
        """The next offset to read. Below 0 nothing was processed; a last processed -1 says offset 0.

        Raises NotDecimal for a number that has no next one.
        """
        if self is not Number.LAST or kept < -1:
            return kept
        if kept >= INT64_MAX:
            raise NotDecimal("has no next offset of 64 bits")
        return kept + 1

    def kept(self, offset: int) -> int:
        """The number to keep for the next offset to read: the reverse of ``offset``."""
        return offset - 1 if self is Number.LAST and offset >= 0 else offset

    def stored(self, value: object) -> int:
        """``offset`` of a value of any type. Raises ValueError if it is not an offset."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"its offset is {shown(value)}, not a whole number")
        if not -2 <= value <= INT64_MAX - (self is Number.LAST):
            raise ValueError(f"its offset is {shown(value)}, which Kafka cannot have")
        return self.offset(value)


def number_in(parameters: Parameters, *, required: bool = False) -> Number:
    """``number=`` of an address; ``next`` where it may be left out. Raises ConfigError."""
    return Number(parameters.choice(PARAMETER, *(each.value for each in Number), required=required))


def number_of(address: str) -> Number:
    """What the numbers of a store mean, by its address, which is known to be right."""
    given = dict(pairs(address.partition("?")[2]))
    return Number(given.get(PARAMETER, Number.NEXT.value))


def problem_of_number(text: str) -> str | None:
    """Why ``number=`` cannot have this value, as the end of a sentence; None if it can."""
    known = [each.value for each in Number]
    return None if text in known else f"{text!a} is not one of {', '.join(known)}"


def is_undecided(address: str) -> bool:
    """True if the store holds another program's numbers and its address does not give their meaning."""
    given = dict(pairs(address.partition("?")[2]))
    if PARAMETER in given:
        return False
    match scheme_of(address):
        case "postgres" | "postgresql":
            return "table" in given
        case "hbase":
            return given.get("layout") == "cloudera"
        case "zookeeper":
            return True
    return False


def suspicious_name(address: str) -> str | None:
    """The column whose name suggests last processed offsets, where the address is undecided; else None."""
    column = dict(pairs(address.partition("?")[2])).get("offset", "")
    return column if is_undecided(address) and _LAST_PROCESSED.search(column) else None
