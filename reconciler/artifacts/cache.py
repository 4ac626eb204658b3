"""The cache of downloaded jars: one directory per set, complete or absent."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path

from reconciler.artifacts.fetching import Progress, fetch
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


def cached(jars: JarSet, progress: Progress) -> Path:
    """The directory of a set, downloaded if needed. Raises ConfigError if the cache is not writable.

    One process downloads a set at a time. The kernel releases the lock when its holder dies.
    """
    directory = cache_directory() / jars.name
    if _is_complete(directory, jars):
        return directory
    java = java_executable()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with (directory.parent / f".{jars.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_complete(directory, jars):
                _fill(directory, jars, progress, java)
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


def _fill(directory: Path, jars: JarSet, progress: Progress, java: Path) -> None:
    """Download it into a directory beside its final one, and rename that once it is complete."""
    scratch = directory.parent / f".{jars.name}.part"
    shutil.rmtree(scratch, ignore_errors=True)  # of a killed process: this one has the lock
    scratch.mkdir()
    try:
        ready, tool = fetch(jars, scratch, progress, java)
        files = {jar.name: jar.stat().st_size for jar in sorted(ready.glob("*.jar"))}
        manifest = {"set": jars.definition(), "fetched_by": tool, "files": files}
        (ready / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        if directory.exists():  # incomplete; a rename cannot replace a non-empty directory
            directory.rename(scratch / "torn")
        ready.rename(directory)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    progress(f"{jars.title} is in {directory}")
