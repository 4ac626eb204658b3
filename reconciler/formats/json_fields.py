"""Reading typed fields out of JSON that anybody may have written.

Everything here raises ``FieldError`` and nothing else, whatever the text holds.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import NoReturn

from reconciler.core.anchors import Names

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INT32_MAX = 2**31 - 1

_FINGERPRINT = re.compile(r"[0-9a-fA-F]{32}\Z")


class FieldError(ValueError):
    """A field, or the text as a whole (``field`` None), is not what the format says."""

    def __init__(self, field: str | None, problem: str) -> None:
        super().__init__(f"{field} {problem}" if field else problem)
        self.field = field
        self.problem = problem


def json_object(text: str) -> dict[str, object]:
    """The JSON object in ``text``; repeated keys, NaN and endless nesting are faults like any other."""
    try:
        found = json.loads(text, object_pairs_hook=_unrepeated, parse_constant=_no_constant)
    except FieldError:
        raise
    except (ValueError, RecursionError) as err:
        raise FieldError(None, "is not JSON") from err
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


def encodable(text: str) -> bool:
    """False for text with lone surrogates, which no store can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    value = string(fields, key)
    if value is None:
        return Names.LAST
    try:
        return Names(value)
    except ValueError as err:
        raise FieldError(key, f"is not one of {', '.join(name.value for name in Names)}") from err
