"""``reconciler demo``: a whole failover with its proofs, and nothing left behind, also when it is interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import main
from tests.waiting import wait_until
from tests.world import environment

pytestmark = pytest.mark.system
PATIENCE_S = 900


@pytest.fixture(scope="module", autouse=True)
def everything_is_here(kafka_jars: Path) -> None:
    """Skips (or fails) with the reason where Java or the jars cannot be had."""


def processes_that_name(folder: Path) -> list[str]:
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


def assert_nothing_left(folder: Path) -> None:
    """Wait a little for processes that are on their way out."""
    wait_until(lambda: processes_that_name(folder) == [], lambda: f"{processes_that_name(folder)} have ended")
    assert not folder.exists()


@contextmanager
def demo(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo as a process of its own, in a process group of its own."""
    command = [sys.executable, "-m", "reconciler", "demo", "--folder", str(folder)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # Tests that a shell runs in the background ignore Ctrl-C, and so would their children.
    pipes["preexec_fn"] = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, env=environment(), start_new_session=True, **pipes) as running:
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


def rows_of_table(said: str, number: int) -> dict[str, list[str]]:
    table = said.partition(f"\n{number} ")[2].partition("\n\n")[2].partition("\n\n")[0]
    lines = [re.split(r" {2,}", line.strip()) for line in table.splitlines()[1:]]
    return {name: cells for name, *cells in lines}


def number(text: str) -> int:
    return int(text.replace(",", "").removeprefix("≤ "))


def assert_proven(said: str) -> None:
    """What the demo printed shows a failover that lost and doubled nothing, and what the other ways lose."""
    counts = re.search(r"produced ([\d,]+) · processed ([\d,]+) · lost 0 · doubled 0", said)
    assert counts is not None, said
    assert counts[1] == counts[2] == "24,000"
    ran = ["init", "hook", "move", "track", "plan", "move", "hook", "hook", "plan", "plan", "plan"]
    ran += ["track", "move", "hook", "hook"]
    assert re.findall(r"\$ reconciler (\w+)", said) == ran
    assert re.findall(r"\(exit code (\d)\)", said) == ["0", "0", "0", "0", "3", *"0000000000"]
    before = re.search(r"it died .* after ([\d,]+) records", said)
    assert before is not None
    ways = {name: [number(cell) for cell in cells] for name, cells in rows_of_table(said, 11).items()}
    assert ways.pop("reconciler") == [0, 0]
    unchanged, lagging, uncommitted = ways.values()
    assert unchanged != [0, 0]
    assert lagging[1] == 0
    assert uncommitted == [number(before[1]), 0]
    assert "16 of 16 equal a plain count of what was produced\n   clicks lost 0 · too many 0" in said
    anchored, synced, unprepared = rows_of_table(said, 13).values()
    assert number(synced[1]) > 0, "the mirror had sent everything again before its offset was synced"
    for again, skipped, at_most in (anchored, unprepared):
        assert skipped == "0"
        assert number(again) <= number(at_most)
    assert "Traceback" not in said


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_demo_proves_a_failover_and_leaves_nothing(tmp_path: Path) -> None:
    """In every run the guide's test plays the demo, and keeps it."""
    with demo(tmp_path / "demo") as running:
        said, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, said
    assert_proven(said)
    assert_nothing_left(tmp_path / "demo")


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    ("sign", "signal_number", "whole_group"),
    [("2  ", signal.SIGINT, False), ("3  ", signal.SIGINT, True), ("2  ", signal.SIGTERM, False)],
    ids=["clusters", "job", "terminated"],
)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, sign: str, signal_number: int, whole_group: bool) -> None:
    """Ctrl-C at a terminal reaches the whole group; a supervisor's signal only the demo itself."""
    with demo(tmp_path / "demo") as running:
        read_until(running, sign)
        assert len(processes_that_name(tmp_path / "demo")) >= 2  # both clusters are there to be stopped
        if whole_group:
            os.killpg(running.pid, signal_number)
        else:
            running.send_signal(signal_number)
        said, _ = running.communicate(timeout=90)
    assert running.returncode == 128 + signal_number, said
    assert "Interrupted. " in said.splitlines()[-1]
    assert "Traceback" not in said
    assert_nothing_left(tmp_path / "demo")


@pytest.mark.thorough
def test_what_a_killed_demo_leaves_is_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "demo"
    with demo(folder) as running:
        read_until(running, "2  ")
        os.killpg(running.pid, signal.SIGKILL)
    assert main(["demo", "--folder", str(folder)]) == 2
    assert capsys.readouterr().err == (
        f"An earlier demo is in {folder}. End it and delete its data: reconciler demo stop --folder {folder}\n"
    )
    for said in (f"The demo has ended, and {folder} is deleted.\n", f"There is no demo in {folder}.\n"):
        assert main(["demo", "stop", "--folder", str(folder)]) == 0
        assert capsys.readouterr().out == said
        assert_nothing_left(folder)
