"""A plan file's JSON, field by field. Whoever can write the file can make its checksum fit: nothing in it is believed.

Everything here raises ``PlanError`` and nothing else, whatever the text holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import NoReturn

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
INT32_MAX = 2**31 - 1

_TIME = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z", re.ASCII
)
_FINGERPRINT = re.compile(r".{32}", re.DOTALL)  # what an anchor takes, whoever made it
_ID_HASH = re.compile(r"[0-9a-f]{16}", re.ASCII)


class PlanError(ValueError):
    """The text is not what the format says: where, and in what."""


def load(text: str) -> object:
    """The JSON value in ``text``. Repeated keys are refused, and so are NaN, infinities and fractions, of which a plan
    has none: programs that read them differently would not see one and the same plan."""
    try:
        return json.loads(text, object_pairs_hook=_unrepeated, parse_constant=_no_constant, parse_float=_no_fraction)
    except PlanError:
        raise
    except (ValueError, RecursionError) as error:
        raise PlanError(f"it is not JSON ({error})") from error


def _unrepeated(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise PlanError("it repeats a key")
    return found


def _no_constant(name: str) -> NoReturn:
    raise PlanError(f"it holds {name}, which is not JSON")


def _no_fraction(number: str) -> NoReturn:
    raise PlanError(f"it holds {number[:40]}, and a plan has whole numbers only")


class Fields:
    """An object that has exactly the fields ``names``; each is taken as what it must be.

    ``where`` is its place in the file, for the error's sentence.
    """

    __slots__ = ("_values", "_where")

    def __init__(self, value: object, where: str, names: frozenset[str]) -> None:
        self._where = where
        if not isinstance(value, dict):
            raise PlanError(f"{where or 'it'} is not an object")
        if value.keys() != names:
            lacking = sorted(names - value.keys())
            word = f"lacks the field {lacking[0]}" if lacking else "has a field that the format does not know"
            raise PlanError(f"{where or 'it'} {word}")
        self._values = value

    def place(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name

    def _wrong(self, name: str, problem: str) -> PlanError:
        return PlanError(f"{self.place(name)} is not {problem}")

    def value(self, name: str) -> object:
        return self._values[name]

    def items(self, name: str) -> list[object]:
        found = self._values[name]
        if not isinstance(found, list):
            raise self._wrong(name, "a list")
        return found

    def text(self, name: str) -> str:
        """Text that is not empty."""
        found = self._values[name]
        if not isinstance(found, str) or not found:
            raise self._wrong(name, "text")
        return found

    def any_text(self, name: str) -> str:
        """Text, perhaps empty."""
        return "" if self._values[name] == "" else self.text(name)

    def text_or_null(self, name: str) -> str | None:
        return None if self._values[name] is None else self.any_text(name)

    def number(self, name: str, low: int = 0, high: int = INT64_MAX) -> int:
        found = self._values[name]
        if type(found) is not int or not low <= found <= high:  # true and false are ints to isinstance
            raise self._wrong(name, f"a whole number from {low} to {high}")
        return found

    def number_or_null(self, name: str, low: int = 0) -> int | None:
        return None if self._values[name] is None else self.number(name, low)

    def flag(self, name: str) -> bool:
        found = self._values[name]
        if not isinstance(found, bool):
            raise self._wrong(name, "true or false")
        return found

    def choice(self, name: str, choices: Collection[str]) -> str:
        found = self._values[name]
        if not isinstance(found, str) or found not in choices:
            raise self._wrong(name, f"one of {', '.join(choices)}")
        return found

    def time(self, name: str) -> str:
        """RFC 3339 in UTC to the second, the one layout in which later times are larger texts."""
        return self._spelled(name, _TIME, "a time like 2026-01-31T06:00:00Z")

    def fingerprint_or_null(self, name: str) -> str | None:
        return None if self._values[name] is None else self._spelled(name, _FINGERPRINT, "text of 32 characters")

    def id_hash_or_null(self, name: str) -> str | None:
        return None if self._values[name] is None else self._spelled(name, _ID_HASH, "16 hex digits")

    def _spelled(self, name: str, pattern: re.Pattern[str], problem: str) -> str:
        found = self._values[name]
        if not isinstance(found, str) or not pattern.fullmatch(found):
            raise self._wrong(name, problem)
        return found
