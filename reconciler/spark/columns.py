"""Columns that a person names as FIELD=NAME."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from reconciler.core.errors import ConfigError


def refuse_unknown(kind: Any, given: Iterable[str]) -> None:
    """Raise ConfigError for names that are no fields of the dataclass ``kind``."""
    known = [field.name for field in fields(kind)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ConfigError(f"There is no field {', '.join(unknown)}.", hint=f"Known here: {', '.join(known)}.")
