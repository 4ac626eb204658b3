"""A folder on any file system that fsspec opens: listing, reading, and making files that nobody else has made.

A file comes into being whole, or not at all; of two programs that make the same one, one is told so. How:

=========================  =================================================================================
local                      written under another name, then given its own by link(2), which replaces nothing
memory                     under a lock of this process
s3, gcs                    one conditional request (If-None-Match, ifGenerationMatch)
webhdfs                    written under another name, then renamed, which HDFS refuses where there is a file
others (hdfs, sftp, abfs)  renamed after looking; of two at the very same moment, the later one replaces the other
=========================  =================================================================================

pyarrow's own ``hdfs://`` is among the others because its rename first deletes what is there.

Every call on another machine ends after ``TIMEOUT_S``; what it was doing may then still happen.
"""

from __future__ import annotations

import errno
import os
import posixpath
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import time
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from reconciler.config.addresses import without_secrets
from reconciler.core.errors import ConfigError, OutcomeUnknown, Refused, Unreachable
from reconciler.fileio import sync_names

T = TypeVar("T")

TIMEOUT_S = 15.0
UNFINISHED = ".unfinished-"
"""What the names of files begin with that are being written."""
LEFT_OVER_S = 24 * 3600

_CONDITIONAL = frozenset({"s3", "s3a", "gs", "gcs"})
_RENAMES_ONLY_TO_NEW = frozenset({"webhdfs", "webHDFS"})


class Folder(Protocol):
    """A directory and those below it; names are relative, with slashes.

    Raises Refused (not allowed), Unreachable (no answer; nothing was changed), and OutcomeUnknown (no answer to a
    change). Names that are not there raise FileNotFoundError.
    """

    @property
    def shown(self) -> str:
        """The folder's address, for sentences: without secrets."""

    @property
    def exclusive(self) -> bool:
        """Whether ``publish`` never replaces a file, whatever happens at the same moment."""

    def exists(self) -> bool: ...

    def make(self) -> None:
        """Make the folder itself."""

    def names(self, below: str = "") -> list[str]:
        """What is in the folder, or in one below it: plain names, in no order. Empty where there is none."""

    def read(self, name: str) -> bytes: ...

    def publish(self, name: str, data: bytes) -> None:
        """Make a new file, whole. Raises FileExistsError where there is one."""

    def remove(self, name: str) -> None:
        """Remove a file; one that is gone already is no error."""

    def may_be_written(self, below: str) -> bool:
        """False only where it is known that this user may not write here."""

    def tidy(self, below: str) -> None:
        """Remove what writers that died left unfinished long ago."""


def open_folder(url: str) -> Folder:
    """The folder at a local path or a URL that fsspec knows. Contacts nothing.

    Raises ConfigError for a protocol that fsspec does not know, or whose package is not installed.
    """
    from fsspec.core import split_protocol
    from fsspec.registry import get_filesystem_class

    protocol = split_protocol(url)[0] or "file"
    try:
        kind = get_filesystem_class(protocol)
    except ImportError as err:
        raise ConfigError(f"Files under {protocol}:// need a Python package: {err}.", hint="Install it.") from err
    except ValueError as err:
        raise ConfigError(
            f"fsspec knows no file system {protocol!r}.",
            hint="Write a local path, or a URL such as webhdfs://HOST:9870/PATH or s3://BUCKET/PATH.",
        ) from err
    if protocol in ("file", "local"):
        return LocalFolder(os.path.abspath(kind._strip_protocol(url)))
    return SharedFolder(url, protocol)


class LocalFolder:
    """A directory of this machine."""

    exclusive = True

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def shown(self) -> str:
        return self._path

    def exists(self) -> bool:
        return self._tried(lambda: os.path.isdir(self._path))

    def make(self) -> None:
        self._tried(lambda: os.makedirs(self._path, exist_ok=True))

    def names(self, below: str = "") -> list[str]:
        try:
            return self._tried(lambda: os.listdir(self._at(below)))
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes:
        def read() -> bytes:
            with open(self._at(name), "rb") as file:
                return file.read()

        return self._tried(read)

    def publish(self, name: str, data: bytes) -> None:
        self._tried(lambda: self._publish(self._at(name), data))

    def _publish(self, path: str, data: bytes) -> None:
        parent = os.path.dirname(path)
        os.makedirs(parent, exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(dir=parent, prefix=UNFINISHED)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(unfinished, 0o644)
            _name(unfinished, path, data)
        finally:
            os.unlink(unfinished)
        sync_names(parent)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._tried(lambda: os.unlink(self._at(name)))

    def may_be_written(self, below: str) -> bool:
        path = self._at(below)
        effective = os.access in os.supports_effective_ids
        return os.access(path if os.path.isdir(path) else self._path, os.W_OK | os.X_OK, effective_ids=effective)

    def tidy(self, below: str) -> None:
        for name in self.names(below):
            path = posixpath.join(self._at(below), name)
            if name.startswith(UNFINISHED):
                with suppress(OSError):
                    if time() - os.stat(path).st_mtime > LEFT_OVER_S:
                        os.unlink(path)

    def _at(self, name: str) -> str:
        return os.path.join(self._path, name) if name else self._path

    def _tried(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as err:
            raise Refused(
                f"The files in {self._path} cannot be used: {err.strerror or err}.",
                hint="See to that on this machine (permissions, space, mounts), then run this again.",
            ) from err


class SharedFolder:
    """A folder on a file system that other machines share, or of this process."""

    def __init__(self, url: str, protocol: str) -> None:
        self._url = url
        self._protocol = protocol
        self._opened: tuple[Any, str] | None = None
        self._lock = _lock_of(url)

    @property
    def shown(self) -> str:
        parts = urlsplit(self._url)
        return without_secrets(self._url) if parts.netloc else self._url

    @property
    def exclusive(self) -> bool:
        return self._protocol == "memory" or self._protocol in _CONDITIONAL | _RENAMES_ONLY_TO_NEW

    def exists(self) -> bool:
        return self._ask(_exists)

    def make(self) -> None:
        def make(fs: Any, root: str) -> None:
            fs.makedirs(root, exist_ok=True)
            if not _exists(fs, root):  # an object store knows no empty folders
                fs.pipe_file(posixpath.join(root, "README"), b"Manifests of offsets, a folder for each group.\n")

        self._ask(make, changes="make the folder")

    def names(self, below: str = "") -> list[str]:
        def names(fs: Any, root: str) -> Iterable[str]:
            fs.invalidate_cache()
            path = posixpath.join(root, below) if below else root
            found = [str(name).rstrip("/") for name in fs.ls(path, detail=False)]
            return [] if found == [path.rstrip("/")] else found  # a file's listing is itself

        try:
            return [posixpath.basename(name) for name in self._ask(names)]
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes:
        return bytes(self._ask(lambda fs, root: fs.cat_file(posixpath.join(root, name))))

    def publish(self, name: str, data: bytes) -> None:
        doing = f"write {name}"

        def create(fs: Any, root: str) -> None:
            with self._lock:
                fs.pipe_file(posixpath.join(root, name), data, mode="create")

        if self._protocol == "memory" or self._protocol in _CONDITIONAL:
            self._ask(create, changes=doing)
            return
        unfinished = posixpath.join(posixpath.dirname(name), f"{UNFINISHED}{secrets.token_hex(8)}")
        self._ask(lambda fs, root: _write(fs, posixpath.join(root, unfinished), data))
        try:
            self._ask(lambda fs, root: self._rename(fs, root, unfinished, name), changes=doing)
        except FileExistsError:
            self.remove(unfinished)
            raise

    def _rename(self, fs: Any, root: str, unfinished: str, name: str) -> None:
        source, target = posixpath.join(root, unfinished), posixpath.join(root, name)
        if not self.exclusive and _exists(fs, target):
            raise FileExistsError(target)
        fs.mv(source, target)
        if _exists(fs, source):  # WebHDFS says so in its answer only, which fsspec does not look at
            raise FileExistsError(target)

    def remove(self, name: str) -> None:
        def remove(fs: Any, root: str) -> None:
            with suppress(FileNotFoundError):
                fs.rm_file(posixpath.join(root, name))

        self._ask(remove, changes=f"remove {name}")

    def may_be_written(self, below: str) -> bool:
        return True

    def tidy(self, below: str) -> None:
        """Nothing: clocks of other machines are not compared with this one's."""

    def _ask(self, act: Callable[[Any, str], T], *, changes: str | None = None) -> T:
        """``act`` on the file system, in time. ``changes`` says what it does, if it does anything."""

        def opened() -> T:
            if self._opened is None:
                from fsspec.core import url_to_fs

                self._opened = url_to_fs(self._url)
            return act(*self._opened)

        try:
            return opened() if self._protocol == "memory" else _in_time(opened)
        except FileNotFoundError as err:
            if not changes:
                raise
            raise Refused(
                f"Could not {changes}: there is no {self.shown} any more.", hint="See who removed it."
            ) from err
        except (FileExistsError, ConfigError):
            raise
        except ImportError as err:
            raise ConfigError(f"Files under {self._protocol}:// cannot be opened: {err}.", hint="Install it.") from err
        except PermissionError as err:
            raise self._forbidden(err) from err
        except TimeoutError as err:
            if changes:
                raise OutcomeUnknown(
                    f"Whether the files in {self.shown} were changed is not known: there was no answer in"
                    f" {TIMEOUT_S:g} s to the request to {changes}.",
                    hint="Run this again: it reads what is there and writes only what is missing.",
                ) from err
            raise self._unreachable(f"no answer in {TIMEOUT_S:g} s") from err
        except Exception as err:  # every file system has errors of its own
            if getattr(getattr(err, "response", None), "status_code", None) in (401, 403):
                raise self._forbidden(err) from err
            if changes and not _not_connected(err):
                raise OutcomeUnknown(
                    f"Whether the files in {self.shown} were changed is not known: the request to {changes} failed"
                    f" ({_plainly(err)}).",
                    hint="Run this again: it reads what is there and writes only what is missing.",
                ) from err
            raise self._unreachable(_plainly(err)) from err

    def _forbidden(self, err: Exception) -> Refused:
        return Refused(
            f"The files in {self.shown} may not be used by this user: {_plainly(err)}.",
            hint="Ask for that permission, or correct the credentials.",
        )

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(
            f"The files in {self.shown} could not be reached: {why}.",
            hint="See that the file system is up and reachable from here, then run this again.",
        )


def _exists(fs: Any, path: str) -> bool:
    """fsspec's own ``exists`` takes every error for a no."""
    fs.invalidate_cache()
    try:
        fs.info(path)
    except FileNotFoundError:
        return False
    return True


def _write(fs: Any, path: str, data: bytes) -> None:
    fs.makedirs(posixpath.dirname(path), exist_ok=True)
    fs.pipe_file(path, data)


def _in_time(act: Callable[[], T]) -> T:
    """The result of ``act``, or TimeoutError: it goes on in a thread of its own that nobody waits for."""
    done: SimpleQueue[tuple[bool, Any]] = SimpleQueue()

    def run() -> None:
        try:
            done.put((True, act()))
        except BaseException as err:  # noqa: BLE001 - raised again below
            done.put((False, err))

    threading.Thread(target=run, name="reconciler-files", daemon=True).start()
    try:
        good, result = done.get(timeout=TIMEOUT_S)
    except Empty:
        raise TimeoutError from None
    if good:
        return result  # type: ignore[no-any-return]
    raise result


def _not_connected(error: BaseException) -> bool:
    """True where no connection was made, so that nothing can have been changed."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ConnectionRefusedError) or type(seen).__name__ in ("NewConnectionError", "gaierror"):
            return True
        reason = getattr(seen, "reason", None) or (seen.args[0] if seen.args else None)
        seen = reason if isinstance(reason, BaseException) else seen.__cause__
    return False


def _plainly(error: BaseException) -> str:
    """The first line of what an error says, without its full stop, and without what may be a secret."""
    text = str(error).strip().splitlines()
    said = text[0][:200].rstrip(".") if text else type(error).__name__
    return said if "://" not in said else type(error).__name__


_locks: dict[str, threading.Lock] = {}
_locks_lock = threading.Lock()


def _lock_of(url: str) -> threading.Lock:
    with _locks_lock:
        return _locks.setdefault(url, threading.Lock())


def _name(unfinished: str, path: str, data: bytes) -> None:
    """Give a file its name, which no file may have. Where there is no link(2), a crash can leave it torn."""
    try:
        os.link(unfinished, path)
    except OSError as err:
        if err.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
