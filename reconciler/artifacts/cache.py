"""The cache of downloaded jars: one directory per set, complete or absent."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reconciler.artifacts.fetching import Progress, Way, fetch
from reconciler.artifacts.java import java_executable
from reconciler.artifacts.sets import JarSet
from reconciler.core.errors import ConfigError

_MANIFEST = "manifest.json"


def cache_directory() -> Path:
    """The cache's directory: ``$RECONCILER_CACHE``, else in the user's cache directory."""
    if own := os.environ.get("RECONCILER_CACHE"):
        return Path(own).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return base / "failover-offset-reconciler"


def cached(jars: JarSet, progress: Progress, way: Way = "auto") -> Path:
    """The directory of a set, downloaded if needed. Raises ConfigError if the cache is not writable."""
    directory = cache_directory() / jars.name
    if _is_complete(directory, jars):
        return directory
    java = java_executable()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(directory.parent / f".{jars.name}.lock", jars, progress):
            if not _is_complete(directory, jars):
                _fill(directory, jars, progress, way, java)
    except OSError as error:
        raise ConfigError(
            f"The cache {directory.parent} cannot be written: {error.strerror or error}.",
            hint="Free some space, grant the permission, or set RECONCILER_CACHE to another directory.",
        ) from error
    return directory


def _is_complete(directory: Path, jars: JarSet) -> bool:
    try:
        manifest = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["set"] != jars.definition():
            return False
        return all((directory / name).stat().st_size == size for name, size in manifest["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


@contextlib.contextmanager
def _only_one(lock: Path, jars: JarSet, progress: Progress) -> Iterator[None]:
    """Hold the set's lock. The kernel releases it when its holder dies, so it can never be stale."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"another process is downloading {jars.title}; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _fill(directory: Path, jars: JarSet, progress: Progress, way: Way, java: Path) -> None:
    for left_over in directory.parent.glob(f".{jars.name}.*.part"):
        if "." not in left_over.stem.removeprefix(f".{jars.name}."):  # else of 4.1.0.dev1, which has its own lock
            shutil.rmtree(left_over, ignore_errors=True)  # of a killed process: this one holds the lock
    with tempfile.TemporaryDirectory(
        dir=directory.parent, prefix=f".{jars.name}.", suffix=".part", ignore_cleanup_errors=True
    ) as scratch:
        ready, taken = fetch(jars, Path(scratch), progress, way, java)
        files = {jar.name: jar.stat().st_size for jar in sorted(ready.glob("*.jar"))}
        manifest = {"set": jars.definition(), "fetched_by": taken, "files": files}
        (ready / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        if directory.exists():  # incomplete; a rename cannot replace a non-empty directory
            directory.rename(Path(scratch) / "torn")
        ready.rename(directory)
    progress(f"{jars.title} is in {directory}")
