"""The one strict JSON reader: typed fields out of text that any program may have written.

Everything here raises ``FieldError`` and nothing else, whatever the text holds. The functions read a mapping in which
a field may be null or absent; ``Fields`` reads an object that must have exactly the fields of its format.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NoReturn, TypeVar

from reconciler.core.anchors import Names, encodable
from reconciler.core.text import INT32_MAX as INT32_MAX
from reconciler.core.text import INT64_MAX as INT64_MAX
from reconciler.core.text import INT64_MIN as INT64_MIN

_LONGEST_NAME = 60
"""Characters of a field's name that an error repeats: a file may have one of any length."""
_FINGERPRINT = re.compile(r"[0-9a-fA-F]{32}\Z")

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


class FieldError(ValueError):
    """A field, or the text as a whole (``field`` None), is not what the format says.

    ``problem`` is the end of a sentence about it; ``detail`` is the parser's own word.
    """

    def __init__(self, field: str | None, problem: str, detail: str = "") -> None:
        super().__init__(f"{field} {problem}" if field else problem)
        self.field = field
        self.problem = problem
        self.detail = detail

    @property
    def sentence(self) -> str:
        """The problem with its subject: the field, or "it"."""
        return f"{self.field or 'it'} {self.problem}" + (f" ({self.detail})" if self.detail else "")


def json_value(text: str, *, fractions: bool = True) -> object:
    """The JSON value in ``text``. Repeated keys, NaN and deep nesting are faults like any other.

    With ``fractions=False`` so is every number that is not whole: programs read those differently.
    """
    numbers = None if fractions else _no_fraction
    try:
        return json.loads(text, object_pairs_hook=_unrepeated, parse_constant=_no_constant, parse_float=numbers)
    except FieldError:
        raise
    except (ValueError, RecursionError) as err:
        raise FieldError(None, "is not JSON", str(err)) from err


def json_object(text: str) -> dict[str, object]:
    """The JSON object in ``text``, read as ``json_value`` does."""
    found = json_value(text)
    if not isinstance(found, dict):
        raise FieldError(None, "is not a JSON object")
    return found


def _unrepeated(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FieldError(None, "repeats a key")
    return found


def _no_constant(name: str) -> NoReturn:
    raise FieldError(None, f"holds {name}, which is not JSON")


def _no_fraction(number: str) -> NoReturn:
    raise FieldError(None, f"holds {number[:40]}, which is not a whole number")


def compact(content: Mapping[str, Any] | Sequence[Any]) -> str:
    """These JSON values as one line of ASCII text, without spaces, in the order given."""
    return json.dumps(content, separators=(",", ":"))


def canonical(content: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """The one byte sequence for these JSON values: keys sorted, no spaces, only needed escapes, UTF-8."""
    return _CANONICAL(content).encode()


def digest_without(content: Mapping[str, Any], own: str) -> str:
    """SHA-256 in hex over the canonical JSON of everything but the field ``own``, which holds the digest."""
    try:
        text = canonical({key: content[key] for key in content if key != own})
    except (UnicodeEncodeError, RecursionError) as err:
        raise FieldError(None, "is not valid Unicode, or nested too deeply") from err
    return hashlib.sha256(text).hexdigest()


# ---------------------------------------------------------------- fields that may be null or absent


def integer(fields: Mapping[str, object], key: str, low: int = INT64_MIN, high: int = INT64_MAX) -> int | None:
    """A whole number within [low, high], or None where it is null or absent."""
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise FieldError(key, "is not a whole number")
    if not low <= value <= high:
        raise FieldError(key, f"is not between {low} and {high}")
    return value


def string(fields: Mapping[str, object], key: str) -> str | None:
    """Text that can be encoded (no lone surrogates), or None where it is null or absent."""
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise FieldError(key, "is not text")
    if not encodable(value):
        raise FieldError(key, "is not valid Unicode")
    return value


def base64_bytes(fields: Mapping[str, object], key: str) -> bytes | None:
    """Bytes from standard base64 with its padding, or None where it is null or absent."""
    value = string(fields, key)
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as err:
        raise FieldError(key, "is not base64") from err


def fingerprint_hex(fields: Mapping[str, object], key: str) -> str | None:
    """32 hex digits, in lower case, or None where it is null or absent."""
    value = string(fields, key)
    if value is None:
        return None
    if not _FINGERPRINT.match(value):
        raise FieldError(key, "is not 32 hex digits")
    return value.lower()


def names(fields: Mapping[str, object], key: str) -> Names:
    """Which record an anchor names; the rule (``last``) where it is null or absent."""
    return _member(fields, key, Names) or Names.LAST


def _member(fields: Mapping[str, object], key: str, kind: type[E]) -> E | None:
    value = string(fields, key)
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError as err:
        raise FieldError(key, f"is not one of {', '.join(member.value for member in kind)}") from err


def flag(fields: Mapping[str, object], key: str) -> bool:
    """True or false; false where it is null or absent."""
    value = fields.get(key)
    if value is not None and not isinstance(value, bool):
        raise FieldError(key, "is neither true nor false")
    return bool(value)


def required(value: T | None, key: str) -> T:
    """``value``, which was read from the field ``key``, unless it is None."""
    if value is None:
        raise FieldError(key, "is missing")
    return value


def required_text(fields: Mapping[str, object], key: str) -> str:
    """Text that is not empty."""
    value = string(fields, key)
    if not value:
        raise FieldError(key, "is missing or empty")
    return value


def no_unknown(fields: Mapping[str, object], known: frozenset[str]) -> None:
    """Raise FieldError for the first key that is not a known one."""
    unknown = sorted(fields.keys() - known)
    if unknown:
        raise FieldError(ascii(unknown[0][:_LONGEST_NAME])[1:-1], "is not a field of this format")


def require_format(fields: Mapping[str, object], form: str, known: frozenset[str]) -> None:
    """Raise FieldError for an object of another format than ``form``, or with a field that is not a known one."""
    no_unknown(fields, known)
    if required_text(fields, "format") != form:
        raise FieldError("format", f"is not {form}")


# ---------------------------------------------------------------- objects that have all fields of their format


class Fields:
    """An object that has exactly the fields ``names``; only those called ``…_or_null`` may be null.

    Fields that the format has grown by are ``optional``: null where they are absent.

    ``where`` is the object's place in the file, for the error's sentence; it is empty for the file as a whole.
    """

    __slots__ = ("_values", "_where")

    def __init__(
        self, value: object, where: str, names: frozenset[str], optional: frozenset[str] = frozenset()
    ) -> None:
        self._where = where
        if not isinstance(value, dict):
            raise FieldError(where or None, "is not an object")
        if value.keys() - optional != names:
            lacking = sorted(names - value.keys())
            problem = f"lacks the field {lacking[0]}" if lacking else "has a field that the format does not know"
            raise FieldError(where or None, problem)
        self._values: dict[str, object] = {self.place(name): value.get(name) for name in names | optional}

    def place(self, name: str) -> str:
        """Where the field is in the file, as ``jobs[0].partitions``."""
        return f"{self._where}.{name}" if self._where else name

    def value(self, name: str) -> object:
        return self._values[self.place(name)]

    def items(self, name: str) -> list[object]:
        found = self.value(name)
        if not isinstance(found, list):
            raise FieldError(self.place(name), "is not a list")
        return found

    def text(self, name: str) -> str:
        """Text that is not empty."""
        return required_text(self._values, self.place(name))

    def any_text(self, name: str) -> str:
        """Text, perhaps empty."""
        return required(self.text_or_null(name), self.place(name))

    def text_or_null(self, name: str) -> str | None:
        return string(self._values, self.place(name))

    def number(self, name: str, low: int = 0, high: int = INT64_MAX) -> int:
        return required(self.number_or_null(name, low, high), self.place(name))

    def number_or_null(self, name: str, low: int = 0, high: int = INT64_MAX) -> int | None:
        return integer(self._values, self.place(name), low, high)

    def flag(self, name: str) -> bool:
        found = self.value(name)
        if not isinstance(found, bool):
            raise FieldError(self.place(name), "is not true or false")
        return found

    def flag_or_absent(self, name: str) -> bool:
        """False where it is absent."""
        return flag(self._values, self.place(name))

    def member(self, name: str, kind: type[E]) -> E:
        """The member of an enum of texts."""
        return required(self.member_or_null(name, kind), self.place(name))

    def member_or_null(self, name: str, kind: type[E]) -> E | None:
        return _member(self._values, self.place(name), kind)

    def matching(self, name: str, pattern: re.Pattern[str], meaning: str) -> str:
        """Text all of which matches ``pattern``; ``meaning`` says in words what that is."""
        found = self.value(name)
        if not isinstance(found, str) or not pattern.fullmatch(found):
            raise FieldError(self.place(name), f"is not {meaning}")
        return found

    def matching_or_null(self, name: str, pattern: re.Pattern[str], meaning: str) -> str | None:
        return None if self.value(name) is None else self.matching(name, pattern, meaning)

    def base64_of(self, name: str, size: int) -> bytes:
        """``size`` bytes from the one base64 text that stands for them."""
        found = required(base64_bytes(self._values, self.place(name)), self.place(name))
        if len(found) != size or base64.b64encode(found).decode() != self.value(name):
            raise FieldError(self.place(name), f"is not base64 of {size} bytes")
        return found
