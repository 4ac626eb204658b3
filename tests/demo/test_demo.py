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

from tests.waiting import wait_until
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
    wait_until(lambda: processes_in(folder) == [], lambda: f"{processes_in(folder)} have ended")
    assert list(folder.iterdir()) == []
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
    print(said)  # for README and tutorial, with -s
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
        "plan",
        "plan",
    ]
    assert re.findall(r"\(exit code (\d)\)", said) == ["0", "3", "0", "0", "0", "0", "0", "0", "0"]
    compared = said.partition("read again")[2].partition("\n12 ")[0]
    ways = dict(re.findall(r"^   ( *\S.*?) {2,}([\d,]+ +[\d,]+)$", compared, re.MULTILINE))
    found = {way: [int(number.replace(",", "")) for number in numbers.split()] for way, numbers in ways.items()}
    job = found.pop("reconciler"), found.pop("the stored offsets as they were")
    assert job[0] == [0, 0]
    assert job[1] != [0, 0]
    (head, (at_head, _)), (lagging, _), (uncommitted, all_again) = found.items()
    assert head == "  a group at the head of 100 records a second"
    assert re.fullmatch(r"  a group that was [\d,]+ records behind", lagging)
    assert uncommitted == "  this job, which commits nothing to Kafka"
    assert at_head < 1_000, "a few seconds of its flow: the demo gives MirrorMaker its best"
    before = re.search(r"it died .* after ([\d,]+) records", said)
    assert before is not None
    assert all_again == [int(before[1].replace(",", "")), 0]
    state = re.findall(r"^   (\S.*?) +(\d+) of +(\d+) +(\S+) +(\S+)$", said, re.MULTILINE)
    assert [way for way, *_ in state] == [
        "reconciler: the checkpoint's copy",
        "the old checkpoint, topic renamed in it",
        "a new checkpoint, the plan's offsets",
    ]
    assert state[0][1:] == ("16", "16", "0", "0")
    assert all(equal != "16" and too_few != "0" for _, equal, _, too_few, _ in state[1:])
    anchored, mirrors, unprepared = restarted(said)
    assert mirrors[1] > 0, "the mirror had sent everything again before its offset was synced"
    assert (anchored[1], unprepared[1]) == (0, 0)
    assert "Traceback" not in said
    assert nothing_left(tmp_path)


def restarted(said: str) -> list[tuple[int, int]]:
    """Records read again and skipped by the three starts of the group whose mirror was restarted."""
    shown = said.partition("\n13 ")[2]
    found = list(re.finditer(r"^   (\S.*?) {2,}([\d,]+) +([\d,]+)(?:  (\w+))?$", shown, re.MULTILINE))
    assert len({row.end(2) - row.start() for row in found}) == 1, "one column"
    rows = [row.groups(default="") for row in found]
    assert [way for way, *_ in rows] == [
        "reconciler, with the anchors of track",
        "MirrorMaker's synced offset",
        "reconciler, no anchors: by the mirror's own topics",
    ]
    anchored, mirrors, unprepared = (verdict for *_, verdict in rows)
    assert (anchored, mirrors) == ("moved", "")
    assert unprepared in {"moved", "bounded"}
    return [(int(again.replace(",", "")), int(skipped.replace(",", ""))) for _, again, skipped, _ in rows]


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
    assert running.returncode == 128 + number, said
    assert "Interrupted. " in said.splitlines()[-1]
    assert "Traceback" not in said
    assert nothing_left(tmp_path)
