"""The files of a checkpoint on any file system that fsspec opens: listing, copying byte by byte, making visible.

A torn copy is never taken for a checkpoint:

- Where a directory can be renamed in one step (local, HDFS and other file systems), everything is copied under another
  name beside the new path, and renamed last. The new path is whole, or does not exist.
- Object stores (S3, GCS, Azure's blobs) have no such step. The first file written is a barrier: an entry of the offset
  log, with the number after the last, that no Spark can read. It is removed last, after ``metadata`` is written. So
  Spark refuses to start on a torn copy: every version because of the barrier, and 4.2 also without ``metadata``.
"""

from __future__ import annotations

import os
import posixpath
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.fileio import sync
from reconciler.folder import one_line, open_folder

T = TypeVar("T")

WITHOUT_RENAME = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory"})
MANIFEST = "_reconciler-clone.json"
"""In the checkpoint's own folder. Spark opens only the files and folders there that it knows by name."""
CHUNK = 8 * 1024 * 1024
AT_ONCE = 16
"""Files copied at the same time on file systems of other machines."""
BARRIER = b"This copy is not finished: do not start a query on it.\n"


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
        self.shown = open_folder(url).shown  # raises for a missing package, and hides secrets
        self.url = url
        self._opened: tuple[Any, str] | None = None

    @property
    def is_local(self) -> bool:
        from fsspec.core import split_protocol

        return (split_protocol(self.url)[0] or "file") in ("file", "local")

    @property
    def renames(self) -> bool:
        """True if a folder is renamed in one step: not on object stores, and not where fsspec copies instead."""
        from fsspec.core import split_protocol
        from fsspec.spec import AbstractFileSystem

        protocol = split_protocol(self.url)[0] or "file"
        return protocol not in WITHOUT_RENAME and type(self.open()[0]).mv is not AbstractFileSystem.mv

    def open(self) -> tuple[Any, str]:
        """fsspec's file system, and the folder's path there."""
        if self._opened is None:
            from fsspec.core import url_to_fs

            with self.tried():
                fs, root = url_to_fs(os.path.abspath(self._local_path()) if self.is_local else self.url)
                self._opened = fs, str(root).rstrip("/")
        return self._opened

    def _local_path(self) -> str:
        return self.url.split("://", 1)[1] if "://" in self.url else self.url.removeprefix("file:")

    def listing(self) -> Listed:
        """Everything below the folder, as it is now."""
        fs, root = self.open()
        with self.tried():
            fs.invalidate_cache()
            found = fs.find(root, withdirs=True, detail=True)
        files, folders = {}, set()
        for path, info in found.items():
            name = str(path)[len(root) :].strip("/")
            if info.get("type") == "directory":
                folders.add(name)
            elif name:
                files[name] = (int(info.get("size") or 0), _mark(info))
        return Listed(files, frozenset(folders - {""}))

    def is_empty(self) -> bool:
        """True if there is nothing at this path, or an empty folder."""
        fs, root = self.open()
        with self.tried():
            fs.invalidate_cache()
            try:
                info = fs.info(root)
            except FileNotFoundError:
                return True
            return info.get("type") == "directory" and not fs.find(root)

    def read(self, name: str) -> bytes:
        fs, root = self.open()
        with self.tried():
            return bytes(fs.cat_file(posixpath.join(root, name)))

    @contextmanager
    def tried(self) -> Any:
        """Raise the file system's errors as this product's."""
        try:
            yield
        except (ReconcilerError, FileNotFoundError):
            raise
        except ImportError as err:
            raise ConfigError(f"Files in {self.shown} cannot be opened: {err}.", hint="Install that package.") from err
        except PermissionError as err:
            raise Refused(
                f"The files in {self.shown} may not be used by this user: {one_line(err)}.",
                hint="Ask for that permission, or run this as the user that runs the query.",
            ) from err
        except OSError as err:
            if self.is_local:
                raise Refused(
                    f"The files in {self.shown} cannot be used: {err.strerror or err}.",
                    hint="Check space and mounts on this machine, then run this again.",
                ) from err
            raise self._unreachable(err) from err
        except Exception as err:  # every file system has errors of its own
            raise self._unreachable(err) from err

    def _unreachable(self, err: Exception) -> Unreachable:
        return Unreachable(
            f"The files in {self.shown} could not be used: {one_line(err)}.",
            hint="Check that the file system is up and reachable from here, then run this again.",
        )


def copy_tree(
    source: Tree,
    target: Tree,
    listed: Listed,
    *,
    leave_out: Iterable[str],
    instead: Mapping[str, bytes],
    barrier: str,
    still: Callable[[], None],
) -> None:
    """Copy all listed files but ``leave_out``. ``instead`` has new contents by name, also of files that did not exist.

    ``still`` is called when everything is copied and nothing is visible yet; it raises if the copy must not appear.
    Raises Changed if a listed file vanished, and OutcomeUnknown if the answer to the last step was lost. After any
    other error no part of the copy is left.
    """
    out = set(leave_out) | set(instead)
    names = sorted(name for name in listed.files if name not in out)
    if target.renames:
        _copy_and_rename(source, target, listed, names, instead, still)
    else:
        _copy_in_place(source, target, names, instead, barrier, still)


def _copy_and_rename(
    source: Tree,
    target: Tree,
    listed: Listed,
    names: list[str],
    instead: Mapping[str, bytes],
    still: Callable[[], None],
) -> None:
    fs, root = target.open()
    parent, last = posixpath.split(root)
    beside = posixpath.join(parent, f".{last}.unfinished-{secrets.token_hex(4)}")
    try:
        with target.tried():
            fs.makedirs(beside, exist_ok=True)
            for folder in sorted(listed.folders):
                fs.makedirs(posixpath.join(beside, folder), exist_ok=True)
        _copy_files(source, target, names, beside)
        _write_files(target, instead, beside)
        still()
        _publish(target, beside, root)
    finally:
        with suppress(Exception):
            if fs.exists(beside):
                fs.rm(beside, recursive=True)


def _publish(target: Tree, beside: str, root: str) -> None:
    """Give the finished copy its name. Raises OutcomeUnknown where the answer was lost."""
    fs, _ = target.open()
    with target.tried():
        if not target.is_empty():
            raise ConfigError(f"{target.shown} appeared while the copy was made.", hint="Choose another NEW_PATH.")
        if target.is_local:
            _sync(beside)
            os.rename(beside, root)  # takes the place of an empty folder, and of nothing else
            sync(os.path.dirname(root))
            return
        if fs.exists(root):
            fs.rm(root, recursive=True)  # an empty folder, into which the copy would be moved
    try:
        fs.mv(beside, root)
    except Exception as err:
        raise OutcomeUnknown(
            f"Whether {target.shown} exists is not known: the request to rename the finished copy failed "
            f"({one_line(err)}).",
            hint="See with: reconciler checkpoint show. If it exists, it is whole.",
        ) from err
    with target.tried():
        _see_published(target, beside, root)


def _see_published(target: Tree, beside: str, root: str) -> None:
    """WebHDFS refuses in an answer that fsspec ignores, and moves the copy into a folder that exists by now."""
    fs, _ = target.open()
    fs.invalidate_cache()
    astray = posixpath.join(root, posixpath.basename(beside))
    if fs.exists(astray):
        fs.rm(astray, recursive=True)
        raise ConfigError(f"{target.shown} appeared while the copy was made.", hint="Choose another NEW_PATH.")
    if not fs.exists(root) or fs.exists(beside):
        raise Refused(f"The finished copy could not be named {target.shown}.", hint="Choose another NEW_PATH.")


def _copy_in_place(
    source: Tree,
    target: Tree,
    names: list[str],
    instead: Mapping[str, bytes],
    barrier: str,
    still: Callable[[], None],
) -> None:
    fs, root = target.open()
    last = "metadata"
    try:
        _write_files(target, {barrier: BARRIER}, root)
        _copy_files(source, target, [name for name in names if name != last], root)
        _write_files(target, instead, root)
        still()
        _copy_files(source, target, [name for name in names if name == last], root)
    except BaseException:
        with suppress(Exception):
            fs.rm(root, recursive=True)
        raise
    try:
        fs.rm_file(posixpath.join(root, barrier))
    except Exception as err:
        raise OutcomeUnknown(
            f"Whether the barrier {barrier} was removed from {target.shown} is not known ({one_line(err)}).",
            hint=f"The rest is complete: remove {barrier}, and the query can start.",
        ) from err


def _copy_files(source: Tree, target: Tree, names: Iterable[str], to: str) -> None:
    one_place = source.is_local and target.is_local
    with ThreadPoolExecutor(1 if one_place else AT_ONCE) as pool:
        for done in pool.map(lambda name: _copy_file(source, target, name, to), names):
            assert done is None


def _copy_file(source: Tree, target: Tree, name: str, to: str) -> None:
    (fs_from, root), (fs_to, _) = source.open(), target.open()
    came_from, goes_to = posixpath.join(root, name), posixpath.join(to, name)
    try:
        if source.is_local and target.is_local:
            with target.tried():
                os.makedirs(os.path.dirname(goes_to), exist_ok=True)
                shutil.copy2(came_from, goes_to)
            return
        with target.tried():
            if target.renames:
                fs_to.makedirs(posixpath.dirname(goes_to), exist_ok=True)
            with fs_from.open(came_from, "rb") as reading, fs_to.open(goes_to, "wb") as writing:
                shutil.copyfileobj(reading, writing, CHUNK)
    except FileNotFoundError as err:
        raise changed(source, f"{name} vanished") from err


def _write_files(target: Tree, contents: Mapping[str, bytes], to: str) -> None:
    fs, _ = target.open()
    with target.tried():
        for name, data in contents.items():
            path = posixpath.join(to, name)
            if target.renames:
                fs.makedirs(posixpath.dirname(path), exist_ok=True)
            fs.pipe_file(path, data)


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


def _sync(folder: str) -> None:
    """Flush a local copy's files to the disk before it gets its name."""
    for path, _, names in os.walk(folder):
        for name in names:
            sync(os.path.join(path, name))
        sync(path)
