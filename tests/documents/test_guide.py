"""The guide by hand: its files and its commands, as they are on the page, from the demo to its end."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.artifacts import cache_directory
from tests import ROOT
from tests.demo.test_demo import assert_nothing_left, assert_proven
from tests.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.system
RECORDS, PER_BATCH = 24_000, 4_000
DEMO_S = 900
PAGE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8").partition("## 2.")[2]
COMMANDS = re.findall(r"^    (\S.*)$", re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.M), re.M)
FILES = {name: text for text, name in re.findall(r"^```\w+\n(# ([\w.]+)\n.*?)^```$", PAGE, re.DOTALL | re.M)}


class Reader:
    """Somebody who does what the page says, in an empty folder of their own, with a demo of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.cache = folder / "cache"
        self.folder.mkdir()
        self.cache.mkdir()
        for jars in cache_directory().iterdir():
            if jars.is_dir() and jars.name != "demo":
                self.cache.joinpath(jars.name).symlink_to(jars)

    def saves_the_files(self, said: str) -> None:
        """With the addresses that the demo names in the place of the page's, which other programs may have."""
        a, b = re.findall(r"^   [ab], the (?:source|destination) +(\S+)", said, re.M)
        for name, text in FILES.items():
            text = text.replace("127.0.0.1:19092", a).replace("127.0.0.1:29092", b)
            (self.folder / name).write_text(text)

    def runs(self, command: str, *, code: int | None = 0, patience_s: float = LIMIT_S) -> str:
        """A command's output; a question is answered with yes."""
        words, environment = self._words(command)
        keyboard, terminal = pty.openpty()
        try:
            os.write(keyboard, b"y\n")
            how: dict[str, Any] = {"cwd": self.folder, "env": environment, "capture_output": True, "text": True}
            done = subprocess.run(words, stdin=terminal, timeout=patience_s, **how)
        finally:
            os.close(keyboard)
            os.close(terminal)
        assert code in (None, done.returncode), f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def starts(self, command: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command that goes on until it is stopped, as with Ctrl-C."""
        words, environment = self._words(command)
        said = (self.folder / "said.log").open("ab")
        process = subprocess.Popen(words, cwd=self.folder, env=environment, stdout=said, stderr=said, process_group=0)
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)

    def _words(self, command: str) -> tuple[list[str], dict[str, str]]:
        words = shlex.split(command)
        named = dict(word.split("=", 1) for word in words if re.match(r"[A-Z]+=", word))
        here = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RECONCILER_CACHE": str(self.cache),
            "RECONCILER_PLANS": str(self.folder / "plans"),
        }
        return words[len(named) :], {**os.environ, **here, **named}

    def processed(self, output: str) -> list[str]:
        rows = [line for file in self.folder.glob(f"{output}/batch-*/part-*.json") for line in file.open()]
        return [json.loads(json.loads(row)["value"])["id"] for row in rows]

    def waits(self, process: subprocess.Popen[bytes], arrived: Callable[[], bool]) -> None:
        """Until it is so, while the process runs."""

        def said() -> str:
            return (self.folder / "said.log").read_text()[-3_000:]

        wait_until(arrived, said, ended=lambda: process.poll() is not None, look_s=0.5)


@pytest.fixture
def reader(tmp_path: Path, kafka_jars: Path) -> Iterator[Reader]:
    person = Reader(tmp_path)
    try:
        yield person
    finally:
        person.runs("reconciler demo stop", code=None)
        assert_nothing_left(person.cache / "demo")


@pytest.mark.parametrize("with_a_job", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_the_guides_commands_fail_over(reader: Reader, with_a_job: bool) -> None:
    """The README's job is another that fails over, in every run."""
    demo, init, tried, track, first, *later = COMMANDS
    run_on_a, look, lose, check, plan, apply, again, hook, move, run_on_b, status, stop = later
    said = reader.runs(demo, patience_s=DEMO_S)
    print(said)  # for README and guide, with -s
    assert_proven(said)
    reader.saves_the_files(said)
    reader.runs(init)
    assert "4 stored offsets have no anchor" in reader.runs(tried)
    assert " 4  " in reader.runs(track)
    shown = reader.runs(first, code=3)
    assert "4 exact" in shown
    if with_a_job:
        with reader.starts(run_on_a) as job:
            reader.waits(job, (reader.folder / "output-a/batch-0002").exists)
        assert "id of record" in reader.runs(look, code=3)
    reader.runs(lose)
    assert reader.runs(check, code=3) == shown
    reader.runs(plan)
    reader.runs(apply)
    assert "4 exact" in reader.runs(again)
    start = json.loads(reader.runs(hook))
    assert list(start) == ["a.events"]
    assert f" {start['a.events']['3']:,} " in shown
    if with_a_job:
        starts = re.search(r"clicks: starts (?:exactly|early, at most ([\d,]+) records again)", reader.runs(move))
        assert starts is not None
        assert int((starts[1] or "0").replace(",", "")) <= PER_BATCH, "only of the batch that was interrupted"
        before = reader.processed("output-a")
        with reader.starts(run_on_b) as job:
            reader.waits(job, lambda: len({*before, *reader.processed("output-b")}) == RECORDS)
        assert len(before) < RECORDS
        again_read = len(before) + len(reader.processed("output-b")) - RECORDS
        assert 0 <= again_read <= PER_BATCH, "only of the batch that was interrupted"
        assert "on b" in reader.runs(status)
    assert "is deleted" in reader.runs(stop)
