"""A table of the configuration file: typed values, and every fault in it collected.

A fault does not end the reading. The value that is at fault is replaced by the key's default, and ``Table.is_faulty``
says so, so that no second complaint follows from the first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from reconciler.core.errors import ConfigError
from reconciler.near import near_names

C = TypeVar("C", bound=str)

_DURATION = re.compile(r"\s*([0-9]{1,18})\s*(ms|s|m|h|d)\s*")
UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds in each unit of a duration."""
_ALIKE = 0.75
"""The similarity of a misspelt key to the right one; different keys of one table are less similar."""
LONGEST_MS = 36_500 * UNITS["d"]
MOST = 2**63 - 1
"""The largest count: integers have 64 bits in TOML, and so have Kafka's offsets."""
_KINDS = {bool: "true or false", str: "text in quotes", int: "a whole number", dict: "a table", list: "a list"}


class Unknown(str):
    """Stands for a text whose content may not or cannot be used. It equals nothing, so no check concludes from it."""

    __slots__ = ()
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __new__(cls) -> Unknown:
        return super().__new__(cls, "***")


class Faults:
    """Everything that is wrong with a configuration, in the order in which it was read."""

    def __init__(self) -> None:
        self.found: list[ConfigError] = []

    def add(self, message: str, hint: str | None = None) -> None:
        self.found.append(ConfigError(message, hint=hint))

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Adds the ConfigError that ends the block, if one does."""
        try:
            yield
        except ConfigError as error:
            self.found.append(error)


class Table:
    """A TOML table. Its methods return a typed value; for one of another kind they add a fault and return the default.

    Of a table that is not there, no key is missing.
    """

    def __init__(self, values: Mapping[str, Any], name: str, faults: Faults, *, is_there: bool = True) -> None:
        self.is_there = is_there
        self._values = dict(values)
        self._name = name
        self._faults = faults
        self._known: set[str] = set()
        self._faulty: set[str] = set()

    def where(self, key: str) -> str:
        return f"[{self._name}] {key}" if self._name else f"[{key}]"

    def fault(self, key: str, problem: str, hint: str | None = None) -> None:
        """Adds a fault: ``problem`` ends the sentence that begins with the key."""
        self._faulty.add(key)
        self._faults.add(f"{self.where(key)} {problem}", hint)

    def is_faulty(self, *keys: str) -> bool:
        return not self._faulty.isdisjoint(keys)

    def take(
        self, key: str, kind: type, default: Any = None, *, required: bool = False, hint: str | None = None
    ) -> Any:
        self._known.add(key)
        value = self._values.get(key, default)
        if key not in self._values:
            if required and self.is_there:
                self._missing(key)
            return default
        del self._values[key]
        if isinstance(value, Unknown):
            self._faulty.add(key)
            return value if kind is str and default is None else default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            self.fault(key, f"must be {_KINDS[kind]}, not {_shown(value)}.", hint)
            return default
        return value

    def _missing(self, key: str) -> None:
        """Add a fault. It names a key that looks like a misspelling of this one, which is then not a second fault."""
        near = _nearest(key, self._values, _ALIKE)
        if near is not None:
            del self._values[near]
            self.fault(key, f"is missing, and {near} is not a known key.", f"Did you mean {key}?")
        else:
            self.fault(key, "is missing.", "Add it: the reference shows an example.")

    def text(self, key: str, default: str | None = None) -> Any:
        return self.take(key, str, default)

    def required_text(self, key: str) -> str:
        """A text that is not empty; a new ``Unknown`` if there is none."""
        value: str | None = self.take(key, str, required=True)
        if value == "":
            self.fault(key, "is empty.")
        return value or Unknown()

    def filled_text(self, key: str) -> str | None:
        """A text that is not empty, None if it is left out: an unset variable in a script arrives as an empty one."""
        value: str | None = self.text(key)
        if value == "":
            self.fault(key, "is empty.", "Give it, or leave it out.")
            return None
        return value

    def tables(self, key: str, misspelt: str) -> list[Any]:
        """The tables under ``[[key]]``; it is often written ``[key]``, or as ``misspelt``."""
        if isinstance(self._values.get(key), dict):
            problem = f"[{key}] is one table, and must be a list of them."
        elif key not in self._values and misspelt in self._values:
            self._values[key] = self._values.pop(misspelt)
            problem = f"{misspelt} is not a known key."
        else:
            tables: list[Any] = self.take(key, list, [])
            return tables
        self._known.add(key)
        self._faulty.add(key)
        del self._values[key]
        self._faults.add(problem, f"Write [[{key}]], in double brackets, over each of them.")
        return []

    def texts(self, key: str, problem: str, hint: str | None = None, *, required: bool = False) -> tuple[str, ...]:
        """A list of texts, none of them empty; ``problem`` as in ``fault``."""
        texts = self.take(key, list, [], required=required, hint=hint)
        if all(isinstance(text, str) and text for text in texts):
            return tuple(texts)
        self.fault(key, problem, hint)
        return ()

    def one_or_more(self, key: str, problem: str) -> tuple[str, ...]:
        """A text, or a list of texts, none of them empty."""
        if isinstance(self._values.get(key), list):
            return self.texts(key, problem)
        text = self.text(key)
        if text == "":
            self.fault(key, problem)
        return (text,) if text else ()

    def choice(self, key: str, choices: Iterable[C], default: C) -> C:
        """The member of ``choices``, an enum of texts or some texts, that the file names."""
        value: str = self.take(key, str, default)
        for each in choices:
            if each == value:
                return each
        self.fault(key, f'= "{value}" is not one of {", ".join(choices)}.')
        return default

    def count(self, key: str, default: int, least: int) -> int:
        value: int = self.take(key, int, default)
        if least <= value <= MOST:
            return value
        if value < least:
            self.fault(key, f"= {value} must be at least {least}.")
        else:
            self.fault(key, f"must be at most {MOST}.")
        return default

    def duration_ms(self, key: str, default: str) -> int:
        """``500ms``, ``5s``, ``2h``, as milliseconds."""
        value = self.take(key, str, default)
        duration = _milliseconds(value)
        if duration is None:
            self.fault(key, f'= "{value}" is not a duration.', 'Write it like "500ms", "5s", "2h".')
            return _milliseconds(default) or 0
        if duration > LONGEST_MS:
            self.fault(key, f'= "{value}" is longer than a hundred years.')
        return duration

    def has_table(self, key: str) -> bool:
        return isinstance(self._values.get(key), dict)

    def table(self, key: str) -> Table:
        """The table; an empty one, not ``is_there``, if it is left out or is not a table."""
        is_there = self.has_table(key)
        values = self.take(key, dict, {})
        return Table(values, f"{self._name}.{key}" if self._name else key, self._faults, is_there=is_there)

    def mapping(self, key: str) -> dict[str, str]:
        """A table with keys of the user's choice; nested tables stand for dotted keys: TOML reads ``sasl.username``
        without quotes as one. A key in both spellings is a fault: one value would be lost.
        """
        flat: dict[str, str] = {}

        def walk(values: Mapping[str, Any], prefix: str) -> None:
            for name, value in values.items():
                if isinstance(value, dict):
                    walk(value, f"{prefix}{name}.")
                elif isinstance(value, list):
                    self._faults.add(f"{self.where(key)}: {prefix}{name} cannot be a list.")
                    flat[prefix + name] = Unknown()
                elif prefix + name in flat:
                    problem = f"{prefix}{name} is given twice, with quotes and without."
                    self._faults.add(f"{self.where(key)}: {problem}", "Give it once.")
                else:
                    flat[prefix + name] = _as_text(value)

        walk(self.take(key, dict, {}), "")
        return flat

    def one_of(self, key: str, names: Collection[str], what: str) -> str:
        """One of ``names``, required; an ``Unknown`` if it is none. ``what`` says what it is, for the hint."""
        value = self.required_text(key)
        if isinstance(value, Unknown) or value in names:
            return value
        self.fault(key, f'= "{value}" is not one of {", ".join(names)}.', f"It is {what}.")
        return Unknown()

    def tables_by_name(self, names: Iterable[str] | None = None) -> Iterator[tuple[str, Table]]:
        """The tables in this one, by name; with ``names``, a fault for each other one."""
        for name in list(self._values):
            if names is not None and name not in names:
                self.fault(name, "names no cluster.", f"Known are {', '.join(names)}.")
                del self._values[name]
            else:
                yield name, self.table(name)
        self.done()

    def all_texts(self) -> Iterator[tuple[str, str]]:
        """All keys of this table, each with its text."""
        for key in list(self._values):
            text: str | None = self.filled_text(key)
            if text is not None and not self.is_faulty(key):
                yield key, text

    def done(self) -> None:
        """Add a fault for each key that was not taken."""
        for key in self._values:
            near = _nearest(key, self._known)
            hint = f"Did you mean {near}?" if near is not None else f"Known here: {', '.join(sorted(self._known))}."
            self.fault(key, "is not a known key.", hint)


def _as_text(value: Any) -> str:
    if isinstance(value, str):  # an Unknown stays one
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    """A value of the wrong kind. A table or a list is not repeated: it may hold a secret."""
    return next((_KINDS[kind] for kind in (dict, list) if isinstance(value, kind)), repr(value))


def _nearest(key: str, among: Iterable[str], alike: float = 0.6) -> str | None:
    return next(iter(near_names(key, among, 1, alike)), None)


def _milliseconds(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    return int(match[1]) * UNITS[match[2]] if match else None
