"""All that is wrong with a configuration, where loading it ends at the first mistake.

What a complaint is about is found by trying: the key whose removal changes the complaint, or the required one for which
a placeholder does. With that mended, in memory, the file is loaded again, until nothing is complained of.
"""

from __future__ import annotations

import copy
import os
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from reconciler.config.file import Config, load_config
from reconciler.config.toml_text import toml_text
from reconciler.core.errors import ConfigError

MOST = 50
_JOB = ("group", "topics", "store", "name")
"""What a job must have. Its name is the last thing to change, since complaints go by it."""
_REQUIRED = frozenset(
    {
        ("source",),
        ("source", "alias"),
        ("destination",),
        ("destination", "bootstrap_servers"),
        ("jobs",),
        *(("jobs", key) for key in _JOB),
    }
)
"""These are mended, and not left out: another complaint would come of it."""


def load_or_complain(path: Path) -> Config | list[ConfigError]:
    """The configuration; or all complaints about it, in the order of the file's reading.

    Raises ConfigError for a file that cannot be read, or is not TOML: there is nothing more to say then.
    """
    try:
        return load_config(path)
    except ConfigError as error:
        first = error
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise first from None
    return _complaints(content, first, path)


def _complaints(content: dict[str, Any], first: ConfigError, path: Path) -> list[ConfigError]:
    found: list[ConfigError] = []
    complaint: ConfigError | None = first
    while complaint is not None and len(found) < MOST:
        found.append(complaint)
        mended = _mended(content, {each.message for each in found}, path)
        if mended is None:
            break
        content, complaint = mended
    return found


def _mended(content: dict[str, Any], told: Set[str], path: Path) -> tuple[dict[str, Any], ConfigError | None] | None:
    """The content without what is complained of, and the next complaint; None where no single change helps."""
    for candidate in _candidates(content):
        after = _complaint(candidate, path)
        if after is None or after.message not in told:
            return candidate, after
    return None


def _candidates(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The content with one thing changed: a placeholder for what is required, or a key left out."""
    places: list[tuple[tuple[Any, ...], Any]] = [
        (("source", "alias"), "source"),
        (("destination", "bootstrap_servers"), "placeholder:9092"),
    ]
    jobs = content.get("jobs")
    count = len(jobs) if isinstance(jobs, list) else 0
    places += [
        (("jobs", number, key), [f"topic-{number}"] if key == "topics" else _placeholder(key, number))
        for number in range(count)
        for key in _JOB[:-1]
    ]
    if not count:
        places.append((("jobs",), [{key: ["topic"] if key == "topics" else _placeholder(key, 0) for key in _JOB}]))
    for place, value in places:
        changed = _changed(content, place, value)
        if changed is not None:
            yield changed
    for place in _keys(content):
        yield _without(content, place)
    for number in range(count):
        if (changed := _changed(content, ("jobs", number, "name"), _placeholder("name", number))) is not None:
            yield changed


def _placeholder(key: str, number: int) -> str:
    return f"memory:{number}" if key == "store" else f"{key}-{number}"


def _changed(content: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any] | None:
    """A copy with a value at a place, and the tables that lead there; None where something else stands in its way."""
    whole = copy.deepcopy(content)
    here: Any = whole
    for step in place[:-1]:
        if isinstance(here, dict):
            here = here.setdefault(step, {})
        elif isinstance(here, list):
            here = here[step]
        else:
            return None
    if not isinstance(here, dict):
        return None
    here[place[-1]] = value
    return whole


def _keys(values: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key of the file that may be left out, the innermost first."""
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in items:
        if isinstance(value, dict | list):
            yield from _keys(value, (*before, key))
        if isinstance(key, str) and (*before[:1], key) not in _REQUIRED:
            yield (*before, key)


def _without(content: dict[str, Any], place: tuple[Any, ...]) -> dict[str, Any]:
    whole = copy.deepcopy(content)
    here: Any = whole
    for step in place[:-1]:
        here = here[step]
    del here[place[-1]]
    return whole


def _complaint(content: Mapping[str, Any], path: Path) -> ConfigError | None:
    """What loading such a file ends with. It is written for that, readable by its owner only, and removed."""
    handle, name = tempfile.mkstemp(prefix="reconciler-", suffix=".toml")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(toml_text(content))
        load_config(Path(name))
    except ConfigError as error:
        return ConfigError(error.message.replace(name, str(path)), hint=error.hint)
    finally:
        os.unlink(name)
    return None
