"""A folder on any file system that fsspec opens: list it, read files, and create files that do not exist yet.

A file appears whole or not at all; of two programs that create the same file, one gets FileExistsError. How:

=========================  =================================================================================
local                      written under another name, then named by link(2), which never replaces a file
memory                     under a lock of this process
s3, gcs, abfs              one conditional request (If-None-Match, ifGenerationMatch)
webhdfs                    written under another name, then renamed; HDFS refuses to replace a file
others (hdfs, sftp)        renamed if the name is free; of two at the same moment, the later one replaces the other
=========================  =================================================================================

pyarrow's own ``hdfs://`` is among the others because its rename first deletes an existing file.

Every request to another machine ends after ``TIMEOUT_S``; its change may still happen later.
"""

from __future__ import annotations

import os
import posixpath
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from reconciler.config.addresses import LOCAL, not_installed, not_set_up, scheme_of_path, without_secrets
from reconciler.core.errors import ConfigError, OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.fileio import is_folder, name_new, not_a_folder, refuse_dangling, sync_names, write_through
from reconciler.waits import for_seconds, in_time, waiting

T = TypeVar("T")

TIMEOUT_S = 15.0
UNFINISHED = ".unfinished-"
"""Prefix of the names of files that are being written. A writer that was killed leaves one; it may be deleted."""

CONDITIONAL = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Object stores that create a file in one request, and only if it does not exist; Azure's as of adlfs 2026.8."""
_NO_LOGIN = frozenset(
    {
        *("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"),
        *("RefreshError", "ClientAuthenticationError"),
    }
)
"""Errors of botocore, google-auth and Azure's clients."""
_RENAMES_ONLY_TO_NEW = frozenset({"webhdfs", "webHDFS"})
_locks: dict[str, threading.Lock] = {}
"""By URL: two stores of this process that open one folder share its lock."""


class Folder(Protocol):
    """A directory and the directories below it; names are relative, with slashes.

    Raises Refused (not allowed), Unreachable (no answer; nothing was changed), OutcomeUnknown (no answer to a change),
    and FileNotFoundError for missing names.
    """

    @property
    def shown(self) -> str:
        """The folder's address for messages, without secrets."""

    @property
    def exclusive(self) -> bool:
        """True if ``publish`` never replaces a file, even if two programs publish it at the same moment."""

    def exists(self) -> bool: ...

    def make(self) -> None:
        """Create the folder itself."""

    def names(self, below: str = "") -> list[str]:
        """The names in the folder, or in one below it, unordered. Empty if it does not exist."""

    def read(self, name: str) -> bytes: ...

    def written_ms(self, name: str) -> int | None:
        """When the file was written, epoch ms by the file system's clock; None if it does not say."""

    def publish(self, name: str, data: bytes) -> None:
        """Create a file, whole. Raises FileExistsError if it exists."""

    def remove(self, name: str) -> None:
        """Remove a file, if it still exists."""

    def may_be_written(self, below: str) -> bool:
        """False only if this user certainly may not write here."""


def absolute(url: str) -> str:
    """A local path from the root on, with its ``~`` expanded; a URL unchanged. Raises as ``scheme_of_path`` does."""
    return url if scheme_of_path(url) is not None else os.path.abspath(os.path.expanduser(url))


def open_folder(url: str) -> Folder:
    """The folder at a local path or a URL that fsspec knows. Contacts nothing. A local path does not need fsspec.

    Raises ConfigError for a protocol that fsspec does not know, or that lacks a package or library here.
    """
    protocol = scheme_of_path(url)
    if protocol is None:
        return LocalFolder(absolute(url))
    from fsspec.registry import get_filesystem_class

    try:
        urlsplit(url)
    except ValueError as err:  # the message leaves the URL out: it may hold a password
        raise ConfigError(f"The host of a {protocol}:// URL cannot be read.", hint="Correct the URL.") from err
    try:
        kind = get_filesystem_class(protocol)
    except (ImportError, ValueError) as err:
        raise not_installed(protocol, err) from err
    if protocol in LOCAL:
        return LocalFolder(os.path.abspath(kind._strip_protocol(url)))
    return SharedFolder(url, protocol)


def open_url(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path there. Raises what fsspec raises, and ConfigError."""
    from fsspec.core import url_to_fs

    protocol = url.partition(":")[0]
    try:
        fs, path = url_to_fs(url)
    except (OSError, TypeError) as err:
        raise not_set_up(protocol, err) or err from None
    if protocol in _RENAMES_ONLY_TO_NEW:
        fs.session.hooks["response"] = partial(_refuse_error, fs.url)
        # fsspec sets no limit, so a request that was given up would never end. Its caller's words come first.
        fs.session.request = partial(type(fs.session).request, fs.session, timeout=2 * TIMEOUT_S)
    return fs, str(path)


def _refuse_error(name_node: str, response: Any, **_: object) -> None:
    """Raise for a DataNode's error. fsspec takes its text for the first bytes of the file, and reads the rest."""
    if response.request.method == "GET" and not response.ok and not response.url.startswith(name_node):
        kind = PermissionError if response.status_code in (401, 403) else OSError
        raise kind(f"a DataNode answered {response.status_code} {response.reason}")


class LocalFolder:
    exclusive = True

    def __init__(self, path: str) -> None:
        self.shown = path

    def exists(self) -> bool:
        return is_folder(self.shown)

    def make(self) -> None:
        with self._errors():
            os.makedirs(self.shown, exist_ok=True)

    def names(self, below: str = "") -> list[str]:
        with self._errors(), suppress(FileNotFoundError):
            return os.listdir(self._at(below))
        return []

    def read(self, name: str) -> bytes:
        path = self._at(name)
        try:
            with self._errors(), open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            refuse_dangling(path)
            raise

    def written_ms(self, name: str) -> int | None:
        with self._errors():
            return os.stat(self._at(name)).st_mtime_ns // 1_000_000

    def publish(self, name: str, data: bytes) -> None:
        import tempfile

        path = self._at(name)
        parent = os.path.dirname(path)
        with self._errors():
            os.makedirs(parent, exist_ok=True)
            descriptor, unfinished = tempfile.mkstemp(dir=parent, prefix=UNFINISHED)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    write_through(file, data)
                os.chmod(unfinished, 0o644)
                name_new(unfinished, path, data)
            finally:
                with suppress(OSError):  # the file may already have its name
                    os.unlink(unfinished)
            sync_names(parent)

    def remove(self, name: str) -> None:
        with self._errors(), suppress(FileNotFoundError):
            os.unlink(self._at(name))

    def may_be_written(self, below: str) -> bool:
        path = self._at(below)
        effective = os.access in os.supports_effective_ids
        return os.access(path if os.path.isdir(path) else self.shown, os.W_OK | os.X_OK, effective_ids=effective)

    def _at(self, name: str) -> str:
        return os.path.join(self.shown, name) if name else self.shown

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except NotADirectoryError as err:
            raise not_a_folder(err.filename or self.shown) from err
        except OSError as err:
            raise Refused(
                f"The files in {self.shown} cannot be used: {err.strerror or err}.",
                hint="Check permissions, space and mounts on this machine, then run this again.",
            ) from err


class SharedFolder:
    """A folder on a file system that other machines share, or in this process's memory."""

    def __init__(self, url: str, protocol: str) -> None:
        self.shown = without_secrets(url) if urlsplit(url).netloc else url
        self.exclusive = protocol == "memory" or protocol in CONDITIONAL | _RENAMES_ONLY_TO_NEW
        self._url = url
        self._protocol = protocol
        self._opened: tuple[Any, str] | None = None
        self._lock = _locks.setdefault(url, threading.Lock())

    def exists(self) -> bool:
        return self._ask(_exists)

    def make(self) -> None:
        def make(fs: Any, root: str) -> None:
            if self._protocol not in CONDITIONAL:  # there it would make a bucket: perhaps of a misspelt name
                fs.makedirs(root, exist_ok=True)
            if not _exists(fs, root):  # an object store has no empty folders
                fs.pipe_file(posixpath.join(root, "README"), b"Manifests of offsets, a folder for each group.\n")

        self._ask(make, changes="make the folder")

    def names(self, below: str = "") -> list[str]:
        def names(fs: Any, root: str) -> Iterable[str]:
            fs.invalidate_cache()
            path = posixpath.join(root, below) if below else root
            found = [str(name).rstrip("/") for name in fs.ls(path, detail=False)]
            # fsspec lists a file as itself, and so an empty object that stands for the folder in an object store
            return [name for name in found if name != path.rstrip("/")]

        try:
            return [posixpath.basename(name) for name in self._ask(names)]
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes:
        return bytes(self._ask(lambda fs, root: fs.cat_file(posixpath.join(root, name))))

    def written_ms(self, name: str) -> int | None:
        def look(fs: Any, root: str) -> int | None:
            path = posixpath.join(root, name)
            found = fs.info(path).get("modificationTime")  # HDFS has it here only
            if isinstance(found, int):
                return found
            with suppress(NotImplementedError):
                return int(fs.modified(path).timestamp() * 1000)
            return None

        return self._ask(look)

    def publish(self, name: str, data: bytes) -> None:
        doing = f"write {name}"

        def create(fs: Any, root: str) -> None:
            with self._lock:
                fs.pipe_file(posixpath.join(root, name), data, mode="create")

        if self._protocol == "memory" or self._protocol in CONDITIONAL:
            self._ask(create, changes=doing)
            return
        import secrets

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
        if _exists(fs, source):  # WebHDFS reports a refused rename only in its answer, which fsspec ignores
            raise FileExistsError(target)

    def remove(self, name: str) -> None:
        def remove(fs: Any, root: str) -> None:
            with suppress(FileNotFoundError):
                fs.rm_file(posixpath.join(root, name))

        self._ask(remove, changes=f"remove {name}")

    def may_be_written(self, below: str) -> bool:
        return True

    def _ask(self, act: Callable[[Any, str], T], *, changes: str | None = None) -> T:
        """Run ``act`` on the file system, in time. ``changes`` names the change that it makes, if it makes one."""

        def opened() -> T:
            if self._opened is None:
                self._opened = open_url(self._url)
            return act(*self._opened)

        try:
            with waiting(self.shown, for_seconds(TIMEOUT_S)):
                return opened() if self._protocol == "memory" else in_time(opened, TIMEOUT_S)
        except (FileExistsError, ConfigError):
            raise
        except ImportError as err:
            raise ConfigError(f"Files under {self._protocol}:// cannot be opened: {err}.", hint="Install it.") from err
        except TimeoutError as err:
            why = f"no answer in {TIMEOUT_S:g} s"
            raise self._failure(why, f"there was {why} to the request to {changes}" if changes else None) from err
        except Exception as err:  # every file system has errors of its own
            if isinstance(err, FileNotFoundError) and not changes:
                raise
            raise self._judged(err, changes) from err

    def _judged(self, err: Exception, changes: str | None) -> ReconcilerError:
        why = one_line(err)
        if is_denied(err):
            return Refused(
                f"The files in {self.shown} may not be used by this user: {why}.",
                hint="Ask for that permission, or correct the credentials.",
            )
        if changes and (isinstance(err, FileNotFoundError) or _status(err) == 404):  # adlfs has only the status
            what = f"the bucket of {self.shown}" if self._protocol in CONDITIONAL else self.shown
            return Refused(f"Could not {changes}: {what} does not exist.", hint="Make it, or find out what removed it.")
        in_doubt = changes and not _not_connected(err)
        return self._failure(why, f"the request to {changes} failed ({why})" if in_doubt else None)

    def _failure(self, why: str, in_doubt: str | None) -> Unreachable | OutcomeUnknown:
        """The error for a failed request; ``in_doubt`` says why a change may have happened; None if none can."""
        if in_doubt is None:
            return Unreachable(
                f"The files in {self.shown} could not be reached: {why}.",
                hint="Check that the file system is up and reachable from here, then run this again.",
            )
        return OutcomeUnknown(
            f"Whether the files in {self.shown} were changed is not known: {in_doubt}.",
            hint="Run this again: it reads what is there and writes only what is missing.",
        )


def _exists(fs: Any, path: str) -> bool:
    """fsspec's own ``exists`` returns False for every error."""
    fs.invalidate_cache()
    try:
        fs.info(path)
    except FileNotFoundError:
        return False
    return True


def _write(fs: Any, path: str, data: bytes) -> None:
    fs.makedirs(posixpath.dirname(path), exist_ok=True)
    fs.pipe_file(path, data)


def is_denied(error: BaseException) -> bool:
    """True if the file system wants a login, another one, or more rights for it."""
    if isinstance(error, PermissionError) or _status(error) in (401, 403) or type(error).__name__ in _NO_LOGIN:
        return True
    # gcsfs and adlfs say it by their text alone.
    return str(error).startswith("Forbidden: ") or (isinstance(error, ValueError) and "credentials" in str(error))


def _status(error: BaseException) -> object:
    """The status of HTTP that an error is about, if it says so."""
    return getattr(getattr(error, "response", None), "status_code", getattr(error, "code", None))


def _not_connected(error: BaseException) -> bool:
    """True if no connection was made, so that nothing can have changed."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ConnectionRefusedError) or type(seen).__name__ in ("NewConnectionError", "gaierror"):
            return True
        reason = getattr(seen, "reason", None) or (seen.args[0] if seen.args else None)
        seen = reason if isinstance(reason, BaseException) else seen.__cause__
    return False


def one_line(error: BaseException) -> str:
    """The first line of an error's text, without its full stop, and without a URL: it may hold a secret."""
    lines = str(error).strip().splitlines()
    line = lines[0][:200].rstrip(".") if lines else type(error).__name__
    return line if "://" not in line else type(error).__name__
