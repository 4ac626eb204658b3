"""A temporary folder of a drill, which is gone when the drill is: at its end, or when the next one begins.

A drill that was killed cannot tidy up. Each holds a lock (flock) on a file in its folder for as long as it lives, so
the next one sees which folders are nobody's any more, whatever has become of process ids.
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
"""A folder without a lock file is being made, or its maker was killed in that moment: this much older, it was."""


@contextmanager
def temporary_place(parent: Path) -> Iterator[Path]:
    """A new folder below ``parent``, for this user alone. What killed drills left there is removed first."""
    remove_leftovers(parent)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        new = folder / f"{LOCK}.new"
        with new.open("wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            new.rename(folder / LOCK)  # whoever finds a lock file finds it locked
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(parent: Path) -> list[Path]:
    """Remove this user's folders of drills that live no more; which."""
    removed = []
    for folder in sorted(parent.glob(f"{PREFIX}*")):
        if _is_ours(folder) and _is_left_over(folder):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def _is_ours(folder: Path) -> bool:
    """False for another user's folder, and for a link: whatever that points at is not a drill's."""
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
