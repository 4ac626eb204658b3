"""Kafka's classes as a JVM has loaded them: an archive beside the jars, with which a broker starts at half the cost.

The JVM maps the archive instead of reading and checking some thousands of classes (JEP 350: a JVM that ends can write
one). It belongs to one JVM and to these jars; each start that finds none, or one of others, reads the jars. The JVM
notices that an archive is not its own; a file that was cut short kills it. So the name says how long the file is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from reconciler.artifacts import java_executable
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.fileio import sync

_NONE = "-0.jsa"
Run = Callable[[Path, Sequence[str]], None]
"""Runs, in a folder and with more options of the JVM, what is to start faster, and ends it.

It raises ``Unreachable`` if the JVM was killed, whose archive may be cut short."""


def sharing(java: Path, jars: Path) -> list[str]:
    """The JVM's options to start with the archive; none if there is no archive.

    If the JVM rejects it, nothing is logged: a start without it works as well, and users read that log.
    """
    archive = _kept(java, jars)
    if archive is None or archive.name.endswith(_NONE):
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def make_archive(jars: Path, run: Run) -> None:
    """Make the archive unless there is one, or another process is making it. Without one all works, only slower.

    A JVM that can write none is not asked again: an empty file says so.
    """
    with contextlib.suppress(OSError, ConfigError, Unreachable), contextlib.ExitStack() as until_done:
        java = java_executable()
        lock = until_done.enter_context((jars.parent / f".{jars.name}.classes.lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _kept(java, jars) is not None:
            return
        scratch = tempfile.TemporaryDirectory(dir=jars.parent, prefix=f".{jars.name}.", suffix=".part")
        made = Path(until_done.enter_context(scratch)) / "classes"
        run(Path(scratch.name), [f"-XX:ArchiveClassesAtExit={made}"])
        if not made.exists():
            made.touch()
        sync(made)
        for other in jars.glob("classes-*.jsa"):  # of a JVM or jars that were here before
            other.unlink()
        made.rename(jars / f"{_stem(java, jars)}-{made.stat().st_size}.jsa")


def _kept(java: Path, jars: Path) -> Path | None:
    """The archive that is whole and belongs to this JVM and these jars. It may be empty: see ``make_archive``."""
    with contextlib.suppress(OSError):
        stem = _stem(java, jars)
        for archive in jars.glob(f"{stem}-*.jsa"):
            if archive.name == f"{stem}-{archive.stat().st_size}.jsa":
                return archive
    return None


def _stem(java: Path, jars: Path) -> str:
    """The beginning of its name, for one JVM and jars of these paths, lengths and times. Raises ``OSError``."""
    files = [java.resolve(), *sorted(jars.absolute().glob("*.jar"))]
    known = [(str(file), (found := os.stat(file)).st_size, found.st_mtime_ns) for file in files]
    return f"classes-{sha256(repr(known).encode()).hexdigest()[:16]}"
