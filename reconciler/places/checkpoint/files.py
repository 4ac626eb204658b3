"""The files of a checkpoint on any file system that fsspec opens: listed, read, and chosen for a copy.

Spark's own files are those of ``OWN``. Connectors and people put others beside them: a schema log that the query needs,
a sink's rows, notes, another query's checkpoint. These are copied as they are found, and may change meanwhile. State
that no restart reads is not copied.

Spark keeps a hundred versions of its state (``spark.sql.streaming.minBatchesToRetain``). The batch N that a restart
runs reads version N: the newest snapshot at or before N, and every change after it. Source: Spark 4.2.0
(``HDFSBackedStateStoreProvider``, ``RocksDB``, ``RocksDBFileManager``, ``AutoSnapshotLoader``). In each folder of a
store:

==============================  ======================================================================
``7.delta``, ``7.changelog``    what changed in version 7
``7.snapshot``, ``7.zip``       version 7 whole; of RocksDB, the list of its files in ``SSTs`` and ``logs``
``7_ID.changelog``, ``7_ID.zip``  the same, of one of several attempts at version 7 (commit log v2)
``SSTs/…``, ``logs/…``          RocksDB's own files, shared by versions
==============================  ======================================================================

The rule, which leaves out too little rather than too much:

- Two snapshots are kept: where the newest is damaged, Spark goes back to the one before (4.1 and later).
- Only the commits say which of several attempts at one version counts: such a version is never used as a snapshot.
- A store without version N, or with a version missing before it, is kept whole, and so is every file that has none of
  these names.
- A snapshot newer than N is of the batch that is repeated. The copy repeats it with fewer records if its end is not
  proven; Spark then writes the batch's changes again, not always its snapshot, and reads a snapshot before changes. So
  it is left out where version N can be read, and the same version has changes. The changes stay: a sink that has the
  batch (Spark's file sink, Delta) does not run it again, and the next batch reads them.
- RocksDB's own files are all kept: which of them a version needs is in its packed list.
"""

from __future__ import annotations

import math
import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from reconciler.core.errors import Changed, ConfigError, ReconcilerError, Refused, Unreachable
from reconciler.fileio import refuse_dangling
from reconciler.places.folder import CONDITIONAL, is_denied, one_line, open_folder, open_url
from reconciler.waits import waiting

CREATES = CONDITIONAL | {"memory"}
WITHOUT_RENAME = CREATES | {"adl", "oss"}
AT_ONCE = 16
"""Requests at the same time to file systems of other machines."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The content of the folder: each file with its size and a mark that changes with it, and the folders."""

    files: Mapping[str, tuple[int, str]]
    folders: frozenset[str]


class Tree:
    """A folder with everything below it, at a local path or a URL.

    Raises ConfigError if it cannot be opened, Refused and Unreachable if it cannot be used.
    """

    def __init__(self, url: str) -> None:
        self.shown = open_folder(url).shown  # a local path, or a URL without secrets; raises for a missing package
        self.url = url

    @cached_property
    def _protocol(self) -> str:
        from fsspec.core import split_protocol

        return split_protocol(self.url)[0] or "file"

    @property
    def is_local(self) -> bool:
        return self._protocol in ("file", "local")

    @property
    def renames(self) -> bool:
        """True if a folder is renamed in one step: not on object stores, and not where fsspec copies instead."""
        from fsspec.spec import AbstractFileSystem

        return self._protocol not in WITHOUT_RENAME and type(self.fs).mv is not AbstractFileSystem.mv

    @property
    def fs(self) -> Any:
        """fsspec's file system."""
        return self._opened[0]

    @property
    def root(self) -> str:
        """The folder's path in ``fs``."""
        return self._opened[1]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        with self.tried():
            fs, root = open_url(self.shown if self.is_local else self.url)
            return fs, root.rstrip("/")

    def may_share_files_with(self, other: Tree) -> bool:
        """False if the two are certainly on different file systems: of another kind, or of another host and port."""
        hosts = {urlsplit(tree.url).netloc.rpartition("@")[2] for tree in (self, other) if not tree.is_local}
        return type(self.fs) is type(other.fs) and len(hosts - {""}) < 2

    def listing(self, root: str | None = None) -> Listed:
        """Everything below the folder, or below another folder of its file system."""
        root = self.root if root is None else root
        files: dict[str, tuple[int, str]] = {}
        folders = set()
        with self.tried():
            self.fs.invalidate_cache()
            for path, kind, size, mark in self._below(root):
                name = path[len(root) :].strip("/")
                if kind == "directory":
                    folders.add(name)
                elif name:
                    files[name] = (size, mark)
        return Listed(files, frozenset(folders - {""}))

    def _below(self, root: str) -> Iterator[tuple[str, str, int, str]]:
        """Path, kind, size and mark of everything. Raises, where fsspec's ``find`` leaves out what it cannot list."""
        if self.is_local:
            yield from _local_files(root)
            return
        if not self.renames:
            found = self.fs.find(root, withdirs=True, detail=True).values()
            yield from (_entry(info) for info in found)
            return
        folders = [root]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while folders:
                entries = [_entry(info) for each in pool.map(self._listed, folders) for info in each]
                yield from entries
                folders = [path for path, kind, _, _ in entries if kind == "directory"]

    def _listed(self, path: str) -> list[Mapping[str, Any]]:
        with suppress(FileNotFoundError), self.tried():
            return list(self.fs.ls(path, detail=True))
        return []

    def is_empty(self) -> bool:
        """True if there is nothing at this path, or an empty folder."""
        with self.tried():
            self.fs.invalidate_cache()
            try:
                info = self.fs.info(self.root)
            except FileNotFoundError:
                return True
            return info.get("type") == "directory" and all(map(_marks_a_folder, self.fs.find(self.root)))

    @property
    def creates(self) -> bool:
        """True if of two programs that ``create`` a file, one gets FileExistsError."""
        return self._protocol in CREATES

    def create(self, path: str, data: bytes) -> None:
        """Write a file that does not exist, in this folder's file system."""
        mode = {"mode": "create"} if self.creates else {}
        with self.tried():
            self.fs.pipe_file(path, data, **mode)

    def read(self, name: str) -> bytes:
        with self.tried():
            return bytes(self.fs.cat_file(posixpath.join(self.root, name)))

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Raise the file system's errors as this product's, and note the wait for another machine."""
        try:
            with nullcontext() if self.is_local else waiting(self.shown, lambda: math.inf):
                yield
        except (ReconcilerError, FileNotFoundError, FileExistsError):
            raise
        except ImportError as err:
            raise ConfigError(f"Files in {self.shown} cannot be opened: {err}.", hint="Install that package.") from err
        except Exception as err:  # every file system has errors of its own
            if is_denied(err):
                raise Refused(
                    f"The files in {self.shown} may not be used by this user: {one_line(err)}.",
                    hint="Ask for that permission, or run this as the user that runs the query.",
                ) from err
            if self.is_local and isinstance(err, OSError):
                raise Refused(
                    f"The files in {self.shown} cannot be used: {err.strerror or err}.",
                    hint="Check space and mounts on this machine, then run this again.",
                ) from err
            raise Unreachable(
                f"The files in {self.shown} could not be used: {one_line(err)}.",
                hint="Check that the file system is up and reachable from here, then run this again.",
            ) from err


def changed(source: Tree, what: str) -> Changed:
    """The error for a checkpoint that a query writes during the copy."""
    return Changed(
        f"The checkpoint {source.shown} changed while it was copied: {what}. There is no copy.",
        hint="A query runs on it: stop the query, make a new plan, then run this again.",
    )


def _mark(info: Mapping[str, Any]) -> str:
    """A value that changes when a file is written again, if this file system has one."""
    for key in ("ETag", "etag", "md5Hash", "mtime", "modificationTime", "LastModified", "last_modified", "updated"):
        if info.get(key) is not None:
            return str(info[key])
    return ""


def _entry(info: Mapping[str, Any]) -> tuple[str, str, int, str]:
    name, kind = str(info["name"]), str(info.get("type"))
    return name, "directory" if _marks_a_folder(name) else kind, int(info.get("size") or 0), _mark(info)


def _marks_a_folder(name: object) -> bool:
    """True for an object that represents a folder: Hadoop's S3A and consoles make one, and s3fs calls it a file."""
    return str(name).endswith("/")


def _local_files(folder: str) -> Iterator[tuple[str, str, int, str]]:
    found: list[os.DirEntry[str]] = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir():
            yield entry.path, "directory", 0, ""
            yield from _local_files(entry.path)
        elif (about := _status(entry)) is not None:
            yield entry.path, "file", about.st_size, str(about.st_mtime_ns)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """The file's status; None if it vanished. Raises Refused for a link whose file is not there to be copied."""
    try:
        return entry.stat()
    except FileNotFoundError:
        refuse_dangling(entry.path)
        return None


OWN = frozenset({"metadata", "offsets", "commits", "sources", "state"})
STATE = "state/"
KEPT_SNAPSHOTS = 2
_VERSIONED = re.compile(r"(0|[1-9]\d{0,18})(?:_([0-9a-fA-F-]{36}))?\.(delta|changelog|snapshot|zip)")
_WHOLE = ("snapshot", "zip")
_CHANGES = ("delta", "changelog")


def older_state(names: Collection[str], version: int) -> frozenset[str]:
    """The files that no restart reads which begins with ``version`` of the state."""
    stores = _stores(names)
    bases = {folder: base for folder, files in stores.items() if (base := _base(list(files.values()), version)) > 0}
    left_out = {
        f"{folder}/{last}" for folder, base in bases.items() for last, of in stores[folder].items() if of[0] < base
    }
    return _withside_files(left_out, names)


def repeated_state(names: Collection[str], version: int) -> frozenset[str]:
    """The snapshots that the batch which reads ``version`` made when it ran before."""
    found = {f"{folder}/{last}" for folder, files in _stores(names).items() for last in _newer(files, version)}
    return _withside_files(found, names)


def _stores(names: Collection[str]) -> dict[str, dict[str, tuple[int, str, str]]]:
    """By folder and name: the version, the attempt's id or nothing, and the kind."""
    stores: dict[str, dict[str, tuple[int, str, str]]] = defaultdict(dict)
    for name in names:
        folder, last = posixpath.split(name)
        found = _VERSIONED.fullmatch(last) if name.startswith(STATE) else None
        if found is not None:
            stores[folder][last] = int(found[1]), found[2] or "", found[3]
    return stores


def _withside_files(left_out: Collection[str], names: Collection[str]) -> frozenset[str]:
    return frozenset({*left_out, *({side for name in left_out for side in side_files(name)} & set(names))})


def _newer(files: Mapping[str, tuple[int, str, str]], version: int) -> set[str]:
    """The snapshots after ``version``, if their changes exist, too. Attempts with ids are found by the commits."""
    numbers = {number for number, _, _ in files.values()}
    base = max((number for number, _, kind in files.values() if kind in _WHOLE and number <= version), default=0)
    if not numbers.issuperset(range(base or 1, version + 1)):
        return set()
    newer = {last: (number, kind) for last, (number, id_, kind) in files.items() if number > version and not id_}
    changed = {number for number, kind in newer.values() if kind in _CHANGES}
    return {last for last, (number, kind) in newer.items() if kind in _WHOLE and number in changed}


def _base(files: Iterable[tuple[int, str, str]], version: int) -> int:
    """The lowest version to keep; 0 keeps all."""
    attempts: dict[int, set[str]] = defaultdict(set)
    whole = set()
    for number, attempt, kind in files:
        attempts[number].add(attempt)
        if kind in _WHOLE:
            whole.add(number)
    snapshots = sorted(n for n in whole if n <= version and len(attempts[n]) == 1)
    if len(snapshots) < KEPT_SNAPSHOTS:
        return 0
    base = snapshots[-KEPT_SNAPSHOTS]
    return base if all(number in attempts for number in range(base, version + 1)) else 0


def side_files(name: str) -> tuple[str, str, str]:
    """A file's checksums: Hadoop's on local file systems, Spark's own, and Hadoop's of Spark's."""
    folder, last = posixpath.split(name)
    return f"{folder}/.{last}.crc", f"{name}.crc", f"{folder}/.{last}.crc.crc"


# ---------------------------------------------------------------- whose files


def is_own(name: str) -> bool:
    """True for a file that Spark wrote for the query, or for the folder of such files."""
    return name.partition("/")[0] in OWN
