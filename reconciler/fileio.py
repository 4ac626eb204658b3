"""Local files: written whole, flushed to the disk, locked against other processes."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO

from reconciler import written
from reconciler.core.errors import ConfigError, OutcomeUnknown, Refused, Unreachable

LOCK_S = 30.0
"""Seconds to wait for a lock: a process that was stopped while it held it must not block all others."""
LARGEST_FILE = 64 * 1024 * 1024
"""Bytes of a plan or a start that are read: a plan of about 80,000 partitions. Parsing takes up to 25 times as much
memory."""
NO_FILE = "It is a pipe or a device, and not a file"
ABOUT_DISKS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG})
ABOUT_FILES = ABOUT_DISKS | {
    *(errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
    *(errno.ENAMETOOLONG, errno.ELOOP),
}
"""Errors caused by a disk, by a path or by its permissions, and not by a bug."""
_HEAD = 1024
"""Bytes of a file that show its kind."""
_REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP})


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file, known by its first bytes. ``name`` is for sentences, like "a plan"."""

    name: str
    head: re.Pattern[bytes]

    @classmethod
    def of_json(cls, name: str, written_as: str) -> FileKind:
        """JSON that begins with the field ``"format"``, whose value is ``written_as``."""
        head = rb'(?:\xef\xbb\xbf)?\s*\{\s*"format"\s*:\s*"%b"' % re.escape(written_as.encode())
        return cls(name, re.compile(head))


def of_file(path: str | Path, error: OSError, verb: str = "written", *, other: str = "place") -> ConfigError:
    """The error for a file or folder that cannot be written, or whatever ``verb`` says; ``other``: what to choose."""
    hint, parent = f"Choose another {other}.", Path(path).parent
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = f"Make room on its disk, or choose another {other}."
    elif error.errno == errno.ENOENT and not parent.exists():
        hint = f"Create the folder {parent}, or choose another {other}."
    return ConfigError(f"{path} cannot be {verb}: {error.strerror or error}.", hint=hint)


def why(error: OSError | ValueError) -> str:
    """Why a file cannot be read or written, in the system's words: neither an error's number nor the path again."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def stat_if_there(path: str) -> os.stat_result | None:
    """The file or folder at a path; None if there certainly is none.

    ``os.path.exists`` would call it missing in two more cases. Here these raise: Refused if this user may not look
    there, Unreachable if the disk or mount fails.
    """
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        sentence = f"{path} could not be looked at: {why(error)}."
        if error.errno in _REFUSALS:
            raise Refused(sentence, hint="Correct the path, or let this user enter the folders above it.") from error
        raise Unreachable(sentence, hint="Check the disk or the mount, then run this again.") from error


def is_folder(path: str) -> bool:
    """True if the path is a folder. Raises as ``stat_if_there`` does."""
    found = stat_if_there(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def refuse_dangling(path: str) -> None:
    """Raise Refused for a link whose file does not exist: unlike a file that a program has removed, it stays so."""
    with suppress(FileNotFoundError):
        if os.path.islink(path):
            raise Refused(
                f"{path} is a link to {os.readlink(path)}, which does not exist.",
                hint="Restore that file; or remove the link, if it does not belong there.",
            )


def not_a_folder(path: str) -> Refused:
    """The error for a path that is a file, or is below a file, where a folder is expected."""
    while path and not os.path.lexists(path):
        path = os.path.dirname(path)
    return Refused(
        f"{path} is a file, and a folder was expected there.",
        hint="Move the file elsewhere if it does not belong there, or correct the path.",
    )


@contextmanager
def making(path: Path, *, other: str = "place") -> Iterator[None]:
    """Raise ``ConfigError`` where the block cannot make or remove ``path``."""
    try:
        yield
    except OSError as error:
        raise of_file(path, error, other=other) from error


def refuse_special(path: Path) -> None:
    """Raise ``OSError`` for a pipe, a device, or a name of this process's own streams like /dev/stdout.

    To replace or remove one would, as root, take it from the whole machine.
    """
    try:
        kind = os.stat(path).st_mode
        is_stream = os.path.islink(path) and os.readlink(path).startswith("/proc/")
    except OSError:
        return
    if is_stream or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise OSError(errno.EINVAL, NO_FILE, str(path))


def refuse_unwritable(path: Path, *, replaces: FileKind | None = None, other: str = "place", stdout: str = "") -> None:
    """Raise ``ConfigError`` if ``write_whole`` would fail here. Called before work whose result would be lost then.

    ``replaces``: the only kind of file, besides an empty one, that may be replaced; None: any. ``stdout``: what to do
    instead of writing to ``-``, which other commands take for stdout.
    """
    from tempfile import mkstemp  # noqa: PLC0415 (as below)

    if str(path) == "-":
        raise ConfigError(f"This output is a file, and - would be stdout. {stdout}".strip(), hint="Name a file.")
    with making(path, other=other):
        refuse_special(path)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if replaces is not None and is_another_kind(path, replaces):
            raise ConfigError(f"{path} exists and is not {replaces.name}.", hint="Name another file.")
        descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            os.close(descriptor)
        finally:
            os.unlink(name)


def is_another_kind(path: Path, kind: FileKind) -> bool:
    """True for an existing file that is not empty and does not begin as this kind does. Raises OSError."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            head = file.read(_HEAD)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return bool(head) and not kind.head.match(head)


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part. Mode 0600.

    ``text`` may come in pieces, which are not kept. Raises ``ConfigError`` if the place cannot be written to.
    """
    from tempfile import mkstemp  # noqa: PLC0415 (it costs a start that writes nothing two milliseconds)

    with making(path):
        refuse_special(path)
        descriptor, name = mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.writelines((text,) if isinstance(text, str) else text)
                file.flush()
                os.fsync(file.fileno())
            written.check()
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        written.note(str(path))
        sync_names(path.parent)


def name_new(unfinished: str, path: str, data: bytes) -> None:
    """Give the finished file its name. Raises FileExistsError if it is taken.

    Where the file system has no link(2), the file is written again: a crash can then leave a torn one. After an error
    it is removed; raises OutcomeUnknown if that fails, as it may be whole.
    """
    try:
        os.link(unfinished, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:  # closing it may fail, too
                write_through(file, data)
        except OSError as failed:
            _take_out(path, failed)
            raise


def _take_out(path: str, failed: OSError) -> None:
    """Remove a file that was not written well: a reader would believe it. Raises OutcomeUnknown if that fails."""
    try:
        os.unlink(path)
    except OSError as error:
        raise OutcomeUnknown(
            f"Whether {path} was written is not known: {why(failed)}. It could not be removed: {why(error)}.",
            hint="Check the disk or the mount, then run this again: it reads the file first.",
        ) from failed


def write_through(file: IO[bytes], data: bytes) -> None:
    """Write data and flush it to the disk."""
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def open_regular(path: Path) -> int:
    """A descriptor of a regular file, to read it. Raises ``OSError``, also for a pipe or a device.

    Opening a pipe, or reading from one, could wait forever for its other end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, NO_FILE, str(path))


def read_regular(path: Path, *, largest: int = LARGEST_FILE, kind: str = "plan") -> bytes:
    """A file's content. Raises as ``open_regular`` does, and for a file of more than ``largest`` bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"It has more than {largest >> 20} MiB, which no {kind} has", str(path))
    return content


def name_for(text: str) -> str:
    """A file's name for any text. A digest distinguishes texts that hold more than letters, digits and ``-_.``."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in text)
    return safe if safe == text else f"{safe}-{sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}"


def sync(path: str | Path) -> None:
    """Flush a file, or the names in a folder, to the disk. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_names(folder: str | Path) -> None:
    """Flush a folder's names, where that is possible: a power cut may undo a rename until then.

    Some file systems cannot do it, and a folder that this user may write to and not read cannot be opened.
    """
    with suppress(OSError):
        sync(folder)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of an existing file; other processes wait for it. The kernel releases it when its holder dies.

    The file may be replaced during the wait: the lock held is that of the file that has the name when the wait ends.
    Raises ``ConfigError`` if another process, perhaps another user's, keeps it for ``LOCK_S``. On a file system without
    locks this does not wait, and only the stores' compare-and-set protects the rows.
    """
    with ExitStack() as held:
        is_held = True
        with suppress(OSError):
            is_held = _hold_lock(path, held)
        if not is_held:
            raise ConfigError(
                f"Another process has held the lock of {path} for {LOCK_S:.0f} s. Nothing was written.",
                hint=f"Find out what it is waiting for; fuser names it: fuser -v {path}",
            )
        yield


def _hold_lock(path: Path, held: ExitStack) -> bool:
    """Take the lock of the file at a path until ``held`` ends; False if another process keeps it for ``LOCK_S``.

    Raises ``OSError``.
    """
    until = time.monotonic() + LOCK_S
    while True:
        with ExitStack() as opened, suppress(BlockingIOError):
            descriptor = opened.enter_context(path.open("rb")).fileno()
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                held.push(opened.pop_all())
                return True
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
