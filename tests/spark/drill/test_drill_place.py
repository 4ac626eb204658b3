"""A drill's temporary folder: removed at its end, or by the next drill if it was killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.spark.drill.place import LOCK, NEVER_LOCKED_S, PREFIX, remove_leftovers, temporary_place


def test_a_running_drills_folder_is_kept_and_gone_at_its_end(tmp_path: Path) -> None:
    with temporary_place(tmp_path) as running:
        assert running.stat().st_mode & 0o077 == 0
        with temporary_place(tmp_path) as mine:
            assert set(tmp_path.iterdir()) == {running, mine}
        with pytest.raises(ZeroDivisionError), temporary_place(tmp_path):
            raise ZeroDivisionError
        assert list(tmp_path.iterdir()) == [running]
    assert list(tmp_path.iterdir()) == []


def test_folders_of_other_programs_stay(tmp_path: Path) -> None:
    other = tmp_path / "somebody else's"
    other.mkdir()
    (other / LOCK).touch()
    (tmp_path / f"{PREFIX}link").symlink_to(other)
    (tmp_path / f"{PREFIX}being-made").mkdir()
    abandoned = tmp_path / f"{PREFIX}abandoned"
    abandoned.mkdir()
    long_ago = abandoned.stat().st_mtime - NEVER_LOCKED_S - 60
    os.utime(abandoned, (long_ago, long_ago))
    assert remove_leftovers(tmp_path) == [abandoned]
    assert {path.name for path in tmp_path.iterdir()} == {other.name, f"{PREFIX}link", f"{PREFIX}being-made"}
