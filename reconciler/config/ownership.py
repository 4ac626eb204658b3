"""Refuses code that a configuration may not run: a module that ``[policy] python`` does not list, or any module if
other users may change the file.

A module's code runs with the rights of the command. Job tables are often written by users other than the file's owner,
or generated; the list is the owner's permission, in one place.

Another user who owns the file, or may write to it or to a folder above it, can choose that code: an owner may change
the mode back, and a folder's writer may put another file in its place. In a folder with the sticky bit (``/tmp``) only
an entry's owner may do that; on a file system that is mounted read-only (a volume in a container) it cannot be done.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from reconciler.config.addresses import pairs, split
from reconciler.core.errors import ConfigError

ROOT = 0
_KIND = "python:"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file or folder: its owner and its mode. ``read_only``: nothing in its file system can be changed."""

    path: Path
    owner: int
    mode: int
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why other users may choose the content: a clause, and what to do."""

    why: str
    hint: str


def doubt_about(path: Path, opened: os.stat_result) -> Doubt | None:
    """Why other users may choose the content of the file ``path``, which has been opened; None if they may not."""
    if os.name != "posix":
        return None
    try:
        file = FileEntry(path, opened.st_uid, opened.st_mode, _is_read_only(path))
        return first_doubt(file, list(folders_above(path)), os.geteuid())
    except OSError as error:
        return Doubt(f"its folders cannot be examined ({error.strerror})", "Give the file's own path.")


def first_doubt(file: FileEntry, folders: list[FileEntry], uid: int) -> Doubt | None:
    """The first reason to doubt it. ``uid`` is the user who runs the command."""
    for entry in (file, *(folder for folder in folders if not folder.read_only)):
        what = "the file" if entry is file else f"its folder {entry.path}"
        if entry.owner not in (ROOT, uid):
            why = f"{what} belongs to user {entry.owner}, not to root or to the user who runs the command ({uid})"
            return Doubt(why, f"Check the file's content, then let it belong to root: chown root {entry.path}")
        is_sticky = entry is not file and entry.mode & stat.S_ISVTX
        if not (entry.read_only or is_sticky) and entry.mode & (stat.S_IWGRP | stat.S_IWOTH):
            why = f"{what} is writable by other users, who can replace it"
            return Doubt(why, f"Check the file's content, then run: chmod go-w {entry.path}")
    return None


def folders_above(path: Path) -> Iterator[FileEntry]:
    """Every folder above the file, by its given path and by its path without symbolic links, the nearest first."""
    named, real = path.absolute(), path.resolve()
    for folder in dict.fromkeys((*real.parents, *named.parents)):
        found = folder.stat()
        yield FileEntry(folder, found.st_uid, found.st_mode, _is_read_only(folder))


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


# ---------------------------------------------------------------- modules


def refuse_unlisted(where: str, text: str, allowed: tuple[str, ...]) -> None:
    """Raise ConfigError where ``text``, an id or a store's address, names a module that is not allowed."""
    for module in _modules(text):
        if module not in allowed:
            raise ConfigError(
                f"{where} names the Python module {module!r}, which [policy] python does not allow: its code would run "
                "with the rights of this command.",
                hint=f'If you trust it, allow it: [policy] python = ["{module}"]. Nothing of it was run.',
            )


def _modules(text: str) -> Iterator[str]:
    for value in (text, *_parameters(text)):
        if value.strip().startswith(_KIND):
            yield value.strip().removeprefix(_KIND).partition(":")[0]


def _parameters(address: str) -> list[str]:
    """The values of an address's parameters, as stores parse them."""
    try:
        queries = {split(address).query, urlsplit(address).query}
    except ValueError:  # the standard library knows one host only
        queries = {split(address).query}
    return [value for query in queries for _, value in pairs(query)]
