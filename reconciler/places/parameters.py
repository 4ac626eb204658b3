"""The parameters of a store's address, ``…?NAME=VALUE&NAME=VALUE``, and what a bare number in a store means.

A number in another program's store is the next offset to read, the last processed one, or the first of the last batch.
No such store says which; its address does (``number=next|last|first``). A number of the wrong meaning shifts a job by
one record a partition: a last processed offset that is taken for the next one skips a record. So nothing here guesses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from enum import Enum

from reconciler.config.addresses import pairs, scheme_of
from reconciler.config.stores import spec_of
from reconciler.core.anchors import shown
from reconciler.core.errors import ConfigError
from reconciler.core.json_fields import INT64_MAX
from reconciler.core.text import NotDecimal, whole_number
from reconciler.places import common

ENCODED = "write / ? @ : % as %2F %3F %40 %3A %25"
_NAME = re.compile(r"[\w.-]+")


def wrong_address(address: str, example: str, why: str) -> ConfigError:
    """The error for what ``address`` describes. The address itself is not repeated: it may hold a password."""
    return ConfigError(f"{address} is wrong: {why}.", hint=f"Write it like {example}.")


def shown_name(name: str, value: str) -> str:
    """An unknown parameter's name for a message, unless it may be a part of a password with a ``?`` in it."""
    return ascii(name) if _NAME.fullmatch(name) and "@" not in value else f"what follows the ? (in a login, {ENCODED})"


class Parameters:
    """The parameters of ``query``, which a store takes one by one; those left over at the end are unknown.

    ``wrong`` makes the store's ConfigError of the end of a sentence about its address; all methods raise it.
    """

    def __init__(self, query: str, wrong: Callable[[str], ConfigError]) -> None:
        given = pairs(query)
        self._values = dict(given)
        self._wrong = wrong
        self._known: list[str] = []
        if repeated := [name for name, times in Counter(name for name, _ in given).items() if times > 1]:
            raise wrong(f"{min(repeated)}= is given twice")

    def text(self, name: str) -> str | None:
        """The parameter's text, None where the address does not have it."""
        self._known.append(name)
        return self._values.pop(name, None)

    def given_text(self, name: str) -> str | None:
        """The parameter's text, which must not be empty; None where the address does not have it."""
        text = self.text(name)
        if text == "":
            raise self._wrong(f"{name}= is empty")
        return text

    def number(self, name: str, default: int | None, most: int) -> int:
        """A number from 1 to ``most``; without a default it is required."""
        text = self.text(name)
        if text is None and default is None:
            raise self._wrong(f"{name}= is missing")
        found = default if text is None else whole_number(text, most)
        if not found:
            raise self._wrong(f"{name}={text!a} is not a number from 1 to {most:,}")
        return found

    def choice(self, name: str, *choices: str, required: bool = False) -> str:
        """One of the choices; the first is the default, unless the parameter is required."""
        value = self.text(name)
        if value is None and not required:
            return choices[0]
        known = ", ".join(filter(None, choices))
        if value is None:
            raise self._wrong(f"it has no {name}=, which is one of {known}")
        if value not in choices:
            raise self._wrong(f"{name}={value!a} is not one of {known}")
        return value

    def timeout_s(self, default_s: float) -> float:
        """``timeout=`` in seconds, above 0 and up to 600."""
        text = self.text("timeout")
        seconds = default_s if text is None else common.timeout_s(text)
        if seconds is None:
            raise self._wrong(f"timeout={text!a} is not a time in seconds, above 0 and up to 600")
        return seconds

    def check_all_known(self) -> None:
        """Refuse the parameters that nothing has taken."""
        if self._values:
            name, value = min(self._values.items())
            raise self._wrong(f"{shown_name(name, value)} is not one of its parameters ({', '.join(self._known)})")


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
            Number.LAST: "the last one processed: the job continues at the next",
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
    """The meaning of a store's numbers, by its address, which is known to be right."""
    given = dict(pairs(address.partition("?")[2]))
    return Number(given.get(PARAMETER, Number.NEXT.value))


def problem_of_number(text: str) -> str | None:
    """Why ``number=`` cannot have this value, as the end of a sentence; None if it can."""
    known = [each.value for each in Number]
    return None if text in known else f"{text!a} is not one of {', '.join(known)}"


def is_undecided(address: str) -> bool:
    """True if the store holds another program's numbers and its address does not give their meaning."""
    given = dict(pairs(address.partition("?")[2]))
    spec = spec_of(scheme_of(address))
    return PARAMETER not in given and spec is not None and spec.lacks_number(given)


def suspicious_name(address: str) -> str | None:
    """The column whose name suggests last processed offsets, where the address is undecided; else None."""
    column = dict(pairs(address.partition("?")[2])).get("offset", "")
    return column if is_undecided(address) and _LAST_PROCESSED.search(column) else None
