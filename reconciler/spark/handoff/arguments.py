"""The arguments of the hand-off's functions, which jobs call: of the right kind, or refused in a sentence."""

from __future__ import annotations

import operator
import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from numbers import Number

from reconciler.core.errors import ConfigError

LARGEST_OFFSET = 2**63 - 1
LATEST_END = -1
"""Spark's number for the latest record."""
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/(?!/)")
_ROOT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*|file:")
_SERVERS = "bootstrap.servers"


def file_path(path: object, what: str) -> str:
    """The path of a file or folder as text; ``what`` names the argument."""
    try:
        text = os.fspath(path)  # type: ignore[call-overload]
    except TypeError:
        text = None
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigError(f"{what} must be a path, not {shown(path)}.", hint="Give a text or a pathlib.Path.")
    return text


def checkpoint_base(base: object) -> tuple[str, str, str]:
    """A checkpoint's location without slashes at its end; the folder that it is in; and its name there.

    Raises ConfigError for a location that has no name of its own: its note would stand in a root, or in a folder that
    is not the query's alone. And for one in a home folder, ``~``: Spark takes that for a folder of this name.
    """
    text = file_path(base, "A checkpoint's location")
    if (found := _SCHEME.match(text)) and found["scheme"] != "file":
        raise ConfigError(
            f"The checkpoint's location {text} may be on another machine, or a folder here.",
            hint=f"Write {found['scheme']}://HOST/PATH, or ./{text}",
        )
    location = text.rstrip("/")
    root = found[0] if (found := _ROOT.match(text)) else ""
    path = location[len(root) :]
    if path.startswith("~"):
        raise ConfigError(
            f"The checkpoint's location {text} begins with ~, and Spark does not know ~ as a home folder.",
            hint=f"Write the whole path; or ./{path} for a folder of this name, which Spark has made so far.",
        )
    parent, name = posixpath.split(path)
    if name in ("", ".", ".."):
        raise ConfigError(
            f"The checkpoint's location {text} is not a folder with a name of its own.",
            hint='Give one for each query, like "/checkpoints/clicks" or "s3://bucket/checkpoints/clicks".',
        )
    return location, f"{root}{parent}" or ".", name


def job_names(job: object) -> list[str] | None:
    """The names of the jobs that are meant; None for the only one."""
    if job is None:
        return None
    names = [job] if isinstance(job, str | bytes) or not isinstance(job, Iterable) else list(job)
    if not names:
        raise ConfigError("No job is named.", hint="Name one, or leave job out where the plan has only one.")
    found = [name for name in names if isinstance(name, str)]
    if len(found) < len(names):
        raise ConfigError(f"job must be a job's name, or several, not {shown(job)}.", hint="Give texts.")
    return found


def key_paths(keys: object) -> tuple[str, ...]:
    """The paths of public keys."""
    if isinstance(keys, str | bytes | os.PathLike) or not isinstance(keys, Iterable):
        raise ConfigError(f"trusted_keys must be a list of paths, not {shown(keys)}.", hint='Like ["ada.pub.pem"].')
    return tuple(file_path(key, "A key in trusted_keys") for key in keys)


def topics(names: Iterable[object]) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"A topic must be named by a text, not by {shown(name)}.", hint='Like also("a", "b").')


def options(given: Mapping[str, object] | None, what: str) -> dict[str, object]:
    """Options by name; those that name the cluster are not empty. ``what`` names the argument."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        kind = type(given).__name__  # and not the text: it may hold a secret
        raise ConfigError(f"{what} must be options by name, not a {kind}.", hint='Like {"name": "value"}.')
    for name, value in given.items():
        if not isinstance(name, str):
            raise ConfigError(f"{what} has the name {shown(name)}, which is no text.", hint="Correct it.")
        if value is None:
            raise ConfigError(f"{what} has no value for {name}.", hint="Give one, or leave the option out.")
        is_cluster = name.lower().removeprefix("kafka.") == _SERVERS
        if is_cluster and (not isinstance(value, str) or not value.strip()):
            raise ConfigError(f"{what} has no cluster in {name}.", hint='Like "kafka-1:9092,kafka-2:9092".')
    return dict(given)


def source_options(given: Mapping[str, object] | None) -> dict[str, str]:
    """Options of Spark's source as texts."""
    found = options(given, "extra")
    for name, value in found.items():
        if not isinstance(value, str | Number):
            raise ConfigError(f"extra has {shown(value)} for {name}.", hint="Give a text, a number, or True or False.")
    return {name: str(value) for name, value in found.items()}


def ends(given: object) -> dict[str, dict[str, int]]:
    """The ends of a batch read by topic and partition. A partition's number may be a text, as in JSON, or an int."""
    if not isinstance(given, Mapping) or not all(isinstance(of, Mapping) for of in given.values()):
        raise ConfigError(
            'ending_offsets must be "latest", or offsets by topic and partition.',
            hint='Like {"a.events": {"0": 90, "1": -1}}.',
        )
    found: dict[str, dict[str, int]] = {}
    for topic, of in given.items():
        ends = found.setdefault(topic, {})
        for number, end in of.items():
            if str(number) in ends:
                raise ConfigError(f"ending_offsets has {topic} partition {number} twice.", hint="Leave one out.")
            ends[str(number)] = _end(end, f"{topic} partition {number}")
    return found


def _end(end: object, place: str) -> int:
    try:
        if isinstance(end, bool):
            raise TypeError
        number = operator.index(end)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or not LATEST_END <= number <= LARGEST_OFFSET:
        raise ConfigError(
            f"ending_offsets has {shown(end)} for {place}, which is not an offset.",
            hint="Give a whole number from 0, or -1 for the latest record.",
        )
    return number


def shown(value: object) -> str:
    """A value for a sentence: short, and in ASCII."""
    text = ascii(value) if isinstance(value, str | bytes | int | float | None) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
