"""A drill's temporary folder: removed at its end, or by the next drill if it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from reconciler.spark.drill.place import LOCK, NEVER_LOCKED_S, PREFIX, remove_leftovers, temporary_place
from tests import ROOT

CHILD = """
import sys
from pathlib import Path
from reconciler.spark.drill.place import temporary_place

with temporary_place(Path(sys.argv[1])) as place:
    (place / "copy").mkdir()
    (place / "copy" / "state").write_text("much")
    print(place, flush=True)
    sys.stdin.read()
"""


def a_drill(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that holds a folder until it is ended, and the folder."""
    command = [sys.executable, "-c", CHILD, str(parent)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def ended(child: subprocess.Popen[str]) -> int:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    child.stdout.close()
    return child.wait(60)


def test_the_next_drill_removes_a_killed_ones_folder_and_keeps_a_running_ones(tmp_path: Path) -> None:
    killed, left = a_drill(tmp_path)
    living, kept = a_drill(tmp_path)
    try:
        killed.send_signal(signal.SIGKILL)
        assert ended(killed) == -signal.SIGKILL
        assert (left / "copy" / "state").exists()
        with temporary_place(tmp_path) as mine:
            assert set(tmp_path.iterdir()) == {kept, mine}
        assert (kept / "copy" / "state").exists()
    finally:
        assert ended(living) == 0
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
