"""The arguments of the hand-off's functions, which jobs call: of the right kind, or refused in a sentence."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping

from reconciler.core.errors import ConfigError

LARGEST_OFFSET = 2**63 - 1
LATEST_END = -1
"""Spark's number for the latest record."""
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/(?!/)")
_ROOT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*|file:")
_SERVERS = "bootstrap.servers"


def checkpoint_base(base: str | os.PathLike[str]) -> tuple[str, str, str]:
    """A checkpoint's location without slashes at its end; the folder that it is in; and its name there.

    Raises ConfigError for a location that has no name of its own: its note would stand in a root, or in a folder that
    is not the query's alone. And for one in a home folder, ``~``: Spark takes that for a folder of this name.
    """
    text = os.fspath(base)
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


def job_names(job: str | Iterable[str] | None) -> list[str] | None:
    """The names of the jobs that are meant; None for the only one."""
    if job is None:
        return None
    names = [job] if isinstance(job, str) else list(job)
    if not names:
        raise ConfigError("No job is named.", hint="Name one, or leave job out where the plan has only one.")
    return names


def options(given: Mapping[str, object] | None, what: str) -> dict[str, str]:
    """Options as texts by name; those that name the cluster are not empty. ``what`` names the argument."""
    found = dict(given or {})
    for name, value in found.items():
        is_cluster = name.lower().removeprefix("kafka.") == _SERVERS
        if value is None or (is_cluster and not str(value).strip()):
            raise ConfigError(f"{what} has no value for {name}.", hint="Give one, or leave the option out.")
    return {name: str(value) for name, value in found.items()}


def ends(given: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The ends of a batch read by topic and partition. A partition's number may be a text, as in JSON, or an int."""
    found = {topic: {str(number): end for number, end in of.items()} for topic, of in given.items()}
    for topic, of in found.items():
        for number, end in of.items():
            if not isinstance(end, int) or not LATEST_END <= end <= LARGEST_OFFSET:
                raise ConfigError(
                    f"ending_offsets has {end!a} for {topic} partition {number}, which is not an offset.",
                    hint="Give a whole number from 0, or -1 for the latest record.",
                )
    return found
