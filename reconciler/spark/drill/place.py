"""A drill's temporary folder, removed at the drill's end, or when the next one begins.

A killed drill cannot clean up. Each holds a lock (flock) on a file in its folder while it runs, so the next one sees
which folders are left over, without relying on process ids.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "reconciler-drill-"
LOCK = "in-use"
NEVER_LOCKED_S = 3600
"""A folder without a lock file is being created, or its creator was killed. At this age it was killed."""


@contextmanager
def temporary_place(parent: Path) -> Iterator[Path]:
    """A new folder below ``parent``, for this user only. Folders of killed drills are removed first."""
    remove_leftovers(parent)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        new = folder / f"{LOCK}.new"
        with new.open("wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            new.rename(folder / LOCK)  # a lock file is locked from the moment it can be seen
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(parent: Path) -> list[Path]:
    """Remove this user's folders of drills that no longer run; returns them."""
    removed = []
    for folder in sorted(parent.glob(f"{PREFIX}*")):
        if _is_ours(folder) and _is_left_over(folder):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def _is_ours(folder: Path) -> bool:
    """False for another user's folder, and for a link: its target is not a drill's folder."""
    return folder.is_dir() and not folder.is_symlink() and folder.lstat().st_uid == os.geteuid()


def _is_left_over(folder: Path) -> bool:
    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        return False
    except FileNotFoundError:
        try:
            return time.time() - folder.stat().st_mtime > NEVER_LOCKED_S
        except FileNotFoundError:
            return False  # its own drill has ended meanwhile
