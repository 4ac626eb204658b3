"""``reconciler demo``: a whole failover with its proofs, and nothing left behind, also when it is interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.world import environment

pytestmark = pytest.mark.system
PATIENCE_S = 900


@pytest.fixture(scope="module", autouse=True)
def everything_is_here(kafka_jars: Path) -> None:
    """Skips (or fails) with the reason where Java or the jars cannot be had."""


def processes_in(folder: Path) -> list[str]:
    """Command lines of living processes that name the folder or work in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            place = os.readlink(entry / "cwd")
        except OSError:
            continue  # it has ended meanwhile, or is another user's
        if str(folder) in command or place.startswith(str(folder)):
            found.append(f"{entry.name}: {command[:200]}")
    return found


def nothing_left(folder: Path) -> bool:
    """Wait a little for processes that are on their way out."""
    deadline = time.monotonic() + 30
    while processes_in(folder) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert processes_in(folder) == []
    assert list(folder.glob("reconciler-demo-*")) == []
    return True


@contextmanager
def demo(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo as a process of its own, in a process group of its own, playing below ``folder``."""
    command = [sys.executable, "-m", "reconciler", "demo"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # Tests that a shell runs in the background ignore Ctrl-C, and so would their children.
    pipes["preexec_fn"] = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, env=environment(TMPDIR=str(folder)), start_new_session=True, **pipes) as running:
        try:
            yield running
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)


def read_until(running: subprocess.Popen[str], sign: str) -> str:
    assert running.stdout is not None
    said = ""
    for line in running.stdout:
        said += line
        if sign in line:
            return said
    pytest.fail(f"the demo ended without saying {sign!r}:\n{said}")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_demo_proves_a_failover_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        said, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, said
    counts = re.search(r"produced ([\d,]+) · processed ([\d,]+) · lost 0 · doubled 0", said)
    assert counts is not None, said
    assert counts[1] == counts[2] == "24,000"
    assert re.findall(r"\$ reconciler (\w+)", said) == [
        "track",
        "check",
        "plan",
        "apply",
        "check",
        "plan",
        "checkpoint",
    ]
    assert re.findall(r"\(exit code (\d)\)", said) == ["0", "3", "0", "0", "0", "0", "0"]
    others = re.findall(
        r"(?:MirrorMaker's own synced group offset|the stored offsets as they were) +(\S+) +(\S+)", said
    )
    assert len(others) == 2
    assert all(again != "0" or skipped != "0" for again, skipped in others)
    state = re.findall(r"^   (\S.*?) +(\d+) of +(\d+) +(\S+) +(\S+)$", said, re.MULTILINE)
    assert [way for way, *_ in state] == [
        "reconciler: the checkpoint's copy",
        "the old checkpoint, topic renamed in it",
        "a new checkpoint, the plan's offsets",
    ]
    assert state[0][1:] == ("16", "16", "0", "0")
    assert all(equal != "16" and too_few != "0" for _, equal, _, too_few, _ in state[1:])
    assert "Traceback" not in said
    assert nothing_left(tmp_path)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    ("sign", "number", "whole_group"),
    [("2  ", signal.SIGINT, False), ("3  ", signal.SIGINT, True), ("2  ", signal.SIGTERM, False)],
    ids=["clusters", "job", "terminated"],
)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, sign: str, number: int, whole_group: bool) -> None:
    """Ctrl-C at a terminal reaches the whole group; a supervisor's signal only the demo itself."""
    with demo(tmp_path) as running:
        read_until(running, sign)
        assert len(processes_in(tmp_path)) >= 2  # both clusters are there to be stopped
        if whole_group:
            os.killpg(running.pid, number)
        else:
            running.send_signal(number)
        said, _ = running.communicate(timeout=90)
    assert running.returncode == 130, said
    assert said.endswith("Interrupted.\n")
    assert "Traceback" not in said
    assert nothing_left(tmp_path)
