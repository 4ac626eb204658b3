"""The files of a checkpoint on any file system that fsspec opens: listed, and read."""

from __future__ import annotations

import math
import os
import posixpath
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from reconciler.core.errors import Changed, ConfigError, ReconcilerError, Refused, Unreachable
from reconciler.fileio import refuse_dangling
from reconciler.places.folder import one_line, open_folder, open_url
from reconciler.waits import waiting

WITHOUT_RENAME = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory"})
CREATES = frozenset({"s3", "s3a", "gs", "gcs", "memory"})
"""Of these, those that create a file in one request, and only where there is none."""
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
        """Everything below the folder, or below another one of its file system, as it is now."""
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
        except PermissionError as err:
            raise Refused(
                f"The files in {self.shown} may not be used by this user: {one_line(err)}.",
                hint="Ask for that permission, or run this as the user that runs the query.",
            ) from err
        except Exception as err:  # every file system has errors of its own
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
    """True for an object that stands for a folder: Hadoop's S3A and consoles make one, and s3fs calls it a file."""
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
