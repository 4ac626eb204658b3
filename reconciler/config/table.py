"""A table of the configuration file: typed values, and nothing that nobody asked for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from reconciler.core.errors import ConfigError

C = TypeVar("C", bound=str)

_DURATION = re.compile(r"\s*([0-9]{1,18})\s*(ms|s|m|h|d)\s*")
UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds in each unit of a duration."""


LONGEST_MS = 36_500 * UNITS["d"]
MOST = 2**63 - 1
"""Of any count: TOML's integers have 64 bits, and Kafka's offsets."""


class Table:
    """A TOML table that gives out typed values and refuses what nobody asked for."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        self._values = dict(values)
        self._name = name
        self._known: list[str] = []

    def where(self, key: str) -> str:
        return f"[{self._name}] {key}" if self._name else f"[{key}]"

    def take(self, key: str, kind: type | tuple[type, ...], default: Any = None, *, required: bool = False) -> Any:
        self._known.append(key)
        if key not in self._values:
            if required:
                raise ConfigError(f"{self.where(key)} is missing.", hint="Add it: the reference shows an example.")
            return default
        value = self._values.pop(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            word = {
                bool: "true or false",
                str: "text in quotes",
                int: "a whole number",
                dict: "a table",
                list: "a list",
            }
            wanted = word.get(kind, "another type") if isinstance(kind, type) else "another type"
            raise ConfigError(f"{self.where(key)} must be {wanted}, not {value!r}.")
        return value

    def text(self, key: str, default: str | None = None, *, required: bool = False) -> Any:
        value = self.take(key, str, default, required=required)
        if required and not value:
            raise ConfigError(f"{self.where(key)} is empty.")
        return value

    def choice(self, key: str, choices: Iterable[C], default: C) -> C:
        """The member of ``choices``, an enum of texts or some texts, that the file names."""
        value: str = self.take(key, str, default)
        for each in choices:
            if each == value:
                return each
        raise ConfigError(f'{self.where(key)} = "{value}" is not one of {", ".join(choices)}.')

    def count(self, key: str, default: int, least: int) -> int:
        value: int = self.take(key, int, default)
        if value < least:
            raise ConfigError(f"{self.where(key)} = {value} must be at least {least}.")
        if value > MOST:
            raise ConfigError(f"{self.where(key)} must be at most {MOST}.")
        return value

    def duration_ms(self, key: str, default: str) -> int:
        value = self.take(key, str, default)
        match = _DURATION.fullmatch(value)
        if not match:
            raise ConfigError(
                f'{self.where(key)} = "{value}" is not a duration.', hint='Write it like "500ms", "5s", "2h".'
            )
        duration = int(match[1]) * UNITS[match[2]]
        if duration > LONGEST_MS:
            raise ConfigError(f'{self.where(key)} = "{value}" is longer than a hundred years.')
        return duration

    def table(self, key: str) -> Table | None:
        value = self.take(key, dict)
        return None if value is None else Table(value, f"{self._name}.{key}" if self._name else key)

    def mapping(self, key: str) -> dict[str, str]:
        """A table of free keys; nested tables spell dotted keys, as TOML reads ``sasl.username`` without quotes."""
        flat: dict[str, str] = {}

        def walk(values: Mapping[str, Any], prefix: str) -> None:
            for name, value in values.items():
                if isinstance(value, dict):
                    walk(value, f"{prefix}{name}.")
                elif isinstance(value, list):
                    raise ConfigError(f"{self.where(key)}: {prefix}{name} cannot be a list.")
                else:
                    flat[prefix + name] = str(value).lower() if isinstance(value, bool) else str(value)

        walk(self.take(key, dict, {}), "")
        return flat

    def done(self) -> None:
        """Refuse the keys that are left."""
        for key in self._values:
            near = difflib.get_close_matches(key, self._known, 1)
            hint = f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(sorted(self._known))}."
            raise ConfigError(f"{self.where(key)} is not a known key.", hint=hint)
