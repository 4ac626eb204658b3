"""Copies files within one machine: by sharing their blocks where the file system can, and flushed all at once.

In order: a clone of the file's blocks (FICLONE: Btrfs, XFS), which later writes do not touch; for files that are never
changed in place, a hard link; else the bytes, copied by the kernel. A hard link is one file with two names. Spark
writes a checkpoint's files under other names and renames them, and removes them; neither touches the other name. The
exception is a program or person that writes into a file of state: both checkpoints would have that change.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from reconciler.fileio import sync

FICLONE = 0x40049409
"""ioctl_ficlone(2)."""
FEW = 200
"""So many files are flushed one by one: flushing the whole file system may take other programs' writes along."""
_NOT_HERE = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY})
_NOT_HERE |= {errno.EINVAL, errno.EBADF}


class Copier:
    """Copies files of one tree to another; what the file system refused once is not tried again."""

    def __init__(self) -> None:
        self._clones = hasattr(os, "copy_file_range")  # Linux
        self._links = True
        self._ranges = self._clones

    def copy(self, path: str, to: str, *, immutable: bool) -> bool:
        """Copy one file; True if the copy shares its blocks. A file at ``to`` is replaced. Raises ``OSError``."""
        with suppress(FileNotFoundError):
            os.unlink(to)  # never opened: it may be a link to the original
        if self._clones and self._cloned(path, to):
            return True
        if immutable and self._links and stat.S_ISREG(os.lstat(path).st_mode) and self._linked(path, to):
            return True
        self._copied(path, to)
        return False

    def _cloned(self, path: str, to: str) -> bool:
        with open(path, "rb") as reading, open(to, "xb") as writing:
            try:
                fcntl.ioctl(writing.fileno(), FICLONE, reading.fileno())
            except OSError as err:
                if err.errno not in _NOT_HERE:
                    raise
                self._clones = False
        if self._clones:
            shutil.copystat(path, to)
        else:
            os.unlink(to)
        return self._clones

    def _linked(self, path: str, to: str) -> bool:
        try:
            os.link(path, to)
        except OSError as err:
            if err.errno == errno.EMLINK:  # this file has as many names as a file can have
                return False
            if err.errno not in _NOT_HERE:
                raise
            self._links = False
            return False
        return True

    def _copied(self, path: str, to: str) -> None:
        if not (self._ranges and self._copied_by_range(path, to)):
            shutil.copyfile(path, to)
        shutil.copystat(path, to)

    def _copied_by_range(self, path: str, to: str) -> bool:
        """On NFS and the like, the server copies."""
        with open(path, "rb") as reading, open(to, "wb") as writing:
            try:
                while os.copy_file_range(reading.fileno(), writing.fileno(), 1 << 30):
                    pass
            except OSError as err:
                if err.errno not in _NOT_HERE:
                    raise
                self._ranges = False
                return False
            return os.fstat(writing.fileno()).st_size == os.fstat(reading.fileno()).st_size


def flush(folder: str) -> None:
    """Flush a tree's files and names to the disk. Raises ``OSError``."""
    paths = list(_below(folder))
    if len(paths) <= FEW or not _flushed_at_once(folder):
        for path in paths:
            _flush_one(path)


def _flush_one(path: str) -> None:
    try:
        sync(path)
    except OSError as err:
        if err.errno not in _NOT_HERE or not os.path.isdir(path):  # some mounts cannot flush a folder's names
            raise


def _below(folder: str) -> Iterator[str]:
    for path, _, names in os.walk(folder):
        yield from (os.path.join(path, name) for name in names)
        yield path


def _flushed_at_once(folder: str) -> bool:
    """syncfs(2), which reports a failed write since Linux 5.8; False where there is none."""
    try:
        release = tuple(int(part) for part in os.uname().release.split(".")[:2])
        call = ctypes.CDLL(None, use_errno=True).syncfs
    except (ValueError, AttributeError, OSError):
        return False
    if os.uname().sysname != "Linux" or release < (5, 8):
        return False
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if call(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
    finally:
        os.close(descriptor)
    return True


def boot() -> str:
    """A value that changes when the machine starts again: what was written before may not be on the disk."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.urandom(16).hex()
