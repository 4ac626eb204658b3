"""Values as TOML 1.0 spells them. The standard library only reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any


def toml_value(value: Any) -> str:
    """A value on one line: tables are inline tables."""
    if isinstance(value, str):
        # JSON's escapes are TOML's too, but for the one control character that JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_value(key)} = {toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return repr(value)


def toml_text(content: Mapping[str, Any]) -> str:
    """A whole file, a line for each top-level key."""
    return "".join(f"{toml_value(key)} = {toml_value(value)}\n" for key, value in content.items())
