"""The files of a checkpoint on any file system that fsspec opens: listing, copying byte by byte, making visible.

A copy is made so that a torn one is never taken for a checkpoint:

- Where a directory can be renamed in one step (local, HDFS, and others that are file systems), all is copied under
  another name beside the new path, and renamed last. The new path is there whole, or not at all.
- On object stores (S3, GCS, Azure's blobs) there is no such step. The first file written is a barrier: an entry of the
  offset log, of the number after the last, that no Spark reads. It goes last, after ``metadata``. So Spark refuses to
  start on a torn copy: every version at the barrier, and 4.2 also for want of ``metadata``.
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
from reconciler.folder import open_folder

T = TypeVar("T")

WITHOUT_RENAME = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory"})
CHUNK = 8 * 1024 * 1024
AT_ONCE = 16
"""Files copied at the same time on file systems of other machines."""
BARRIER = b"This copy is not finished: do not start a query on it.\n"


@dataclass(frozen=True, slots=True)
class Listed:
    """What was in the folder: files with what changes when they do, and folders without files."""

    files: Mapping[str, tuple[int, str]]
    folders: frozenset[str]


class Tree:
    """A folder with all below it, at a local path or a URL.

    Raises ConfigError for what cannot be opened, Refused and Unreachable for what cannot be used.
    """

    def __init__(self, url: str) -> None:
        self.shown = open_folder(url).shown  # says which package is missing, and hides secrets
        self.url = url
        self._opened: tuple[Any, str] | None = None

    @property
    def is_local(self) -> bool:
        from fsspec.core import split_protocol

        return (split_protocol(self.url)[0] or "file") in ("file", "local")

    @property
    def renames(self) -> bool:
        """True if a folder gets another name in one step: not on object stores, and not where fsspec copies for it."""
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
        """Errors of the file system as this product's."""
        try:
            yield
        except (ReconcilerError, FileNotFoundError):
            raise
        except ImportError as err:
            raise ConfigError(f"Files in {self.shown} cannot be opened: {err}.", hint="Install that package.") from err
        except PermissionError as err:
            raise Refused(
                f"The files in {self.shown} may not be used by this user: {_plainly(err)}.",
                hint="Ask for that permission, or run this as the user that runs the query.",
            ) from err
        except OSError as err:
            if self.is_local:
                raise Refused(
                    f"The files in {self.shown} cannot be used: {err.strerror or err}.",
                    hint="See to that on this machine (space, mounts), then run this again.",
                ) from err
            raise self._unreachable(err) from err
        except Exception as err:  # every file system has errors of its own
            raise self._unreachable(err) from err

    def _unreachable(self, err: Exception) -> Unreachable:
        return Unreachable(
            f"The files in {self.shown} could not be used: {_plainly(err)}.",
            hint="See that the file system is up and reachable from here, then run this again.",
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
    """Copy all listed files but ``leave_out``; ``instead`` has other contents, and files that were not there.

    ``still`` is called when everything is copied and nothing is visible yet; it raises if it must not become so.
    Raises Changed if a listed file vanished, and for ``OutcomeUnknown`` see ``_publish``; nothing is left behind else.
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
            raise ConfigError(f"{target.shown} came to be while it was copied.", hint="Choose another NEW_PATH.")
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
            f"Whether {target.shown} is there is not known: the request to rename the finished copy failed "
            f"({_plainly(err)}).",
            hint="See with: reconciler checkpoint show. What is there is whole.",
        ) from err
    with target.tried():
        _see_published(target, beside, root)


def _see_published(target: Tree, beside: str, root: str) -> None:
    """WebHDFS says no in an answer that fsspec does not look at, and puts it below a folder that is there by now."""
    fs, _ = target.open()
    fs.invalidate_cache()
    astray = posixpath.join(root, posixpath.basename(beside))
    if fs.exists(astray):
        fs.rm(astray, recursive=True)
        raise ConfigError(f"{target.shown} came to be while it was copied.", hint="Choose another NEW_PATH.")
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
            f"Whether the barrier {barrier} is out of {target.shown} is not known ({_plainly(err)}).",
            hint=f"All else is there: remove {barrier}, and the query can start.",
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
    """The error of a checkpoint that somebody writes."""
    return Changed(
        f"The checkpoint {source.shown} changed while it was copied: {what}. There is no copy.",
        hint="A query runs on it: stop that, make a new plan, then run this again.",
    )


def _mark(info: Mapping[str, Any]) -> str:
    """What changes when a file is written again, as far as this file system tells."""
    for key in ("ETag", "etag", "md5Hash", "mtime", "modificationTime", "LastModified", "last_modified", "updated"):
        if info.get(key) is not None:
            return str(info[key])
    return ""


def _sync(folder: str) -> None:
    """Have a local copy's files on the disk before it gets its name."""
    for path, _, names in os.walk(folder):
        for name in names:
            sync(os.path.join(path, name))
        sync(path)


def _plainly(error: BaseException) -> str:
    """The first line of what an error says, and nothing that may be a secret."""
    text = str(error).strip().splitlines()
    said = text[0][:200].rstrip(".") if text else type(error).__name__
    return said if "://" not in said else type(error).__name__
