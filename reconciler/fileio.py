"""Local files: written whole, flushed to the disk, locked against other processes."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from reconciler.core.errors import ConfigError


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part. Mode 0600.

    Raises ``ConfigError`` if the place cannot be written to.
    """
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
            sync_names(path.parent)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}.", hint="Choose another place."
        ) from error


def sync(path: str | Path) -> None:
    """Flush a file, or the names in a folder, to the disk. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_names(folder: str | Path) -> None:
    """Flush a folder's names, where the file system can: a power cut may undo a rename until then."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems cannot do it
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of an existing file; other processes wait for it. The kernel releases it when its holder dies.

    On a file system without locks this does not wait, and only the stores' compare-and-set protects the rows.
    """
    with ExitStack() as held:
        with suppress(OSError):
            fcntl.flock(held.enter_context(path.open("rb")), fcntl.LOCK_EX)
        yield
