"""Which files below a checkpoint's folder are its query's own.

Spark's own are those of ``OWN``. Connectors and people put others beside them: a schema log that the query needs, a
sink's rows, notes. These are copied as they are found, and may change meanwhile. Another query's checkpoint is not
copied.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from reconciler.checkpoints.files import Listed

OWN = frozenset({"metadata", "offsets", "commits", "sources", "state"})
_BESIDE_OFFSETS = ("metadata", "commits", "sources", "state")


def is_own(name: str) -> bool:
    """True for a file that Spark wrote for the query, or for the folder of such files."""
    return name.partition("/")[0] in OWN


def without_other_checkpoints(listed: Listed) -> tuple[Listed, tuple[str, ...]]:
    """The listing without the checkpoints of other queries, and the folders of these."""
    others = tuple(sorted(_checkpoints_below(listed)))
    if not others:
        return listed, ()
    inside = tuple(f"{folder}/" for folder in others)
    files = {name: mark for name, mark in listed.files.items() if not name.startswith(inside)}
    folders = frozenset(name for name in listed.folders if not f"{name}/".startswith(inside))
    return Listed(files, folders), others


def _checkpoints_below(listed: Listed) -> Iterator[str]:
    """The folders, not those in another one of these, that have ``offsets`` and another part of a checkpoint."""
    names = {folder for name in listed.files for folder in _and_above(name)} | listed.folders
    found: set[str] = set()
    for name in sorted(names, key=len):
        place, last = posixpath.split(name)
        if last != "offsets" or not place or is_own(name) or not found.isdisjoint(_and_above(place)):
            continue
        if any(f"{place}/{part}" in names for part in _BESIDE_OFFSETS):
            found.add(place)
            yield place


def _and_above(name: str) -> Iterator[str]:
    while name:
        yield name
        name = posixpath.dirname(name)
