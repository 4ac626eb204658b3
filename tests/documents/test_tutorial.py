"""The tutorial by hand: its files and its commands, as they stand on the page, from the first to the last."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.artifacts import cache_directory
from reconciler.lab.servers import servers_in
from tests import ROOT
from tests.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.system
RECORDS, MORE = 6_000, 1_000
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8").partition("## Part 2")[2]
COMMANDS = re.findall(r"^    (\S.*)$", re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.M), re.M)
FILES = {name: text for text, name in re.findall(r"^```\w+\n(# ([\w.]+)\n.*?)^```$", PAGE, re.DOTALL | re.M)}


class Reader:
    """Somebody who does what the page says, in an empty folder of their own, with a lab of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.cache = folder / "cache"
        self.folder.mkdir()
        self.cache.mkdir()
        for jars in cache_directory().iterdir():
            if jars.is_dir() and jars.name != "lab":
                self.cache.joinpath(jars.name).symlink_to(jars)

    def saves_the_files(self) -> None:
        """With the addresses that the lab names in the place of the page's, which other programs may have."""
        found = {part["name"]: part["address"] for part in self.lab()["parts"]}
        for name, text in FILES.items():
            text = text.replace("127.0.0.1:19092", found["a"]).replace("127.0.0.1:29092", found["b"])
            (self.folder / name).write_text(text)

    def lab(self) -> dict[str, Any]:
        return dict(json.loads(self.runs("reconciler lab status --format json", code=None)))

    def ends(self, cluster: str) -> list[int]:
        return [place["next"] for place in self.lab()["places"] if place["cluster"] == cluster]

    def runs(self, command: str, *, code: int | None = 0) -> str:
        """A command's output; a question is answered with yes."""
        words, environment = self._words(command)
        keyboard, terminal = pty.openpty()
        try:
            os.write(keyboard, b"y\n")
            done = subprocess.run(
                words, cwd=self.folder, env=environment, stdin=terminal, capture_output=True, text=True, timeout=LIMIT_S
            )
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

    def stored(self) -> list[dict[str, Any]]:
        """The stored offsets: none as long as the job has not recorded its first batch."""
        lines = self.runs("reconciler anchors export -c reconciler.toml", code=None).splitlines()
        return [json.loads(line) for line in lines]

    def waits(self, process: subprocess.Popen[bytes], output: str, count: int) -> None:
        """Until the output holds so many records, and the store an offset of every partition that it has read."""

        def arrived() -> bool:
            return len(self.processed(output)) >= count and len(self.stored()) >= 4

        def said() -> str:
            return (self.folder / "said.log").read_text()[-3_000:]

        wait_until(arrived, said, ended=lambda: process.poll() is not None, look_s=0.5)


@pytest.fixture
def reader(tmp_path: Path, kafka_jars: Path) -> Iterator[Reader]:
    person = Reader(tmp_path)
    try:
        yield person
    finally:
        person.runs("reconciler lab down", code=None)
        assert servers_in(person.cache / "lab") == []


def test_the_tutorials_commands_fail_a_group_over(reader: Reader) -> None:
    up, status, track, drill, kill, check, plan, apply, again, hook, back, *_ = COMMANDS
    reader.runs(up)
    reader.saves_the_files()
    assert "mirror  running" in reader.runs(status)

    assert " 4  " in reader.runs(track)
    shown = reader.runs(drill, code=3)
    assert "4 moved" in shown
    reader.runs(kill)
    assert reader.runs(check, code=3) == shown
    reader.runs(plan)
    reader.runs(apply)
    assert "4 match" in reader.runs(again)
    start = json.loads(reader.runs(hook))
    assert list(start) == ["a.events"]
    assert f" {start['a.events']['3']:,} " in shown
    reader.runs(back)
    assert "mirror  running" in reader.runs(status)


@pytest.mark.thorough
def test_the_tutorials_own_job_fails_over(reader: Reader) -> None:
    """The third part, right after the second. The README's job is another that fails over, in every run."""
    *_, back, run_on_a, export, more, kill, mark, fail_over, down = COMMANDS
    reader.runs(back)
    reader.saves_the_files()  # `up` names another address where another program has taken the port meanwhile
    with reader.starts(run_on_a) as job:
        reader.waits(job, "output-a", RECORDS)
        assert (reader.folder / "offsets.db").exists(), "a reader stops the job once it is there"
    lines = [json.loads(line) for line in reader.runs(export).splitlines()]
    assert [line["anchor"]["id_base64"] is not None for line in lines] == [True] * 4
    reader.runs(more)
    reader.runs(kill)
    reader.runs(mark)
    with reader.starts(fail_over) as job:
        reader.waits(job, "output-b", MORE)
    both = sorted([*reader.processed("output-a"), *reader.processed("output-b")])
    assert both == [f"click-{number:06d}" for number in range(RECORDS + MORE)]
    reader.runs(down)
    assert servers_in(reader.cache / "lab") == []
