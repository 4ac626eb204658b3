"""The tutorial's second part: its job, its configuration and its commands, as they stand on the page."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import ROOT
from tests.spark.sent import BASE_MS, Kafka, Sent

pytestmark = pytest.mark.system
BEFORE, ALL = 30, 50
"""Records of each of two partitions when the job runs on the source, and in all."""


def record(number: int, partition: int) -> Sent:
    name = f"{partition}/{number}".encode()
    return Sent(partition, name, name, BASE_MS + number, (("message-id", name),))


def send(kafka: Kafka, topic: str, numbers: range, each: int) -> None:
    """Transactions of ``each`` records a partition: their marks take offsets, elsewhere on the other cluster."""
    for first in range(numbers.start, numbers.stop, each):
        some = [record(n, p) for n in range(first, min(first + each, numbers.stop)) for p in range(2)]
        kafka.send(topic, some, transaction=topic)


class Reader:
    """Somebody who does what the page says, in a folder of their own, with their own topic and clusters."""

    def __init__(self, folder: Path, topic: str, a: str, b: str) -> None:
        self.folder = folder
        page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8").partition("## Part 2")[2]
        page = page.replace('"events"', f'"{topic}"').replace("localhost:19092", a).replace("localhost:29092", b)
        (job,), (config,) = (
            re.findall(rf"^```{kind}\n(.*?)^```$", page, re.DOTALL | re.M) for kind in ("python", "toml")
        )
        (folder / "clicks.py").write_text(job)
        (folder / "reconciler.toml").write_text(config)
        self.commands = re.findall(r"^    (\S.*)$", re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.M), re.M)

    def words(self, command: str) -> tuple[list[str], dict[str, str]]:
        words = shlex.split(command)
        named = dict(word.split("=", 1) for word in words if re.match(r"[A-Z]+=", word))
        here = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        return words[len(named) :], {**os.environ, **here, "RECONCILER_PLANS": str(self.folder / "plans"), **named}

    def runs(self, command: str) -> subprocess.CompletedProcess[str]:
        words, environment = self.words(command)
        return subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)

    @contextmanager
    def starts(self, command: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command that goes on until it is stopped, as with Ctrl-C."""
        words, environment = self.words(command)
        said = (self.folder / "said.log").open("ab")
        process = subprocess.Popen(words, cwd=self.folder, env=environment, stdout=said, stderr=said, process_group=0)
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)

    def processed(self, output: str) -> list[str]:
        rows = [line for file in self.folder.glob(f"{output}/batch-*/part-*.json") for line in file.open()]
        return [json.loads(row)["value"] for row in rows]

    def waits(self, process: subprocess.Popen[bytes], output: str, count: int, offset: int) -> None:
        """Until the output holds so many records, and the store the offset behind the last."""
        deadline = time.monotonic() + 240
        while len(self.processed(output)) < count or f'"stored_offset": {offset}' not in self.exported():
            assert process.poll() is None, (self.folder / "said.log").read_text()[-3_000:]
            assert time.monotonic() < deadline, (self.folder / "said.log").read_text()[-3_000:]
            time.sleep(0.5)

    def exported(self) -> str:
        return self.runs("reconciler anchors export -c reconciler.toml").stdout


def test_the_tutorials_job_is_failed_over_by_the_tutorials_commands(clusters, topic_name: str, tmp_path: Path) -> None:
    a, b = Kafka(clusters.source.bootstrap), Kafka(clusters.destination.bootstrap)
    for kafka, topic in ((a, topic_name), (b, f"a.{topic_name}")):
        kafka.create(topic, 2)
    send(a, topic_name, range(BEFORE), 5)
    send(b, f"a.{topic_name}", range(ALL), 2)
    reader = Reader(tmp_path, topic_name, a.bootstrap, b.bootstrap)
    run_on_a, export, fail_over = reader.commands

    with reader.starts(run_on_a) as job:
        reader.waits(job, "output-a", 2 * BEFORE, a.end(topic_name, 0) - 1)
    assert export.startswith("reconciler anchors export")
    assert [json.loads(line)["anchor"]["id_base64"] is not None for line in reader.runs(export).stdout.splitlines()]

    drill = reader.runs("reconciler check -c reconciler.toml")
    assert (drill.returncode, "2 moved" in drill.stdout) == (3, True), drill.stdout + drill.stderr
    with reader.starts(fail_over) as job:
        reader.waits(job, "output-b", 2 * (ALL - BEFORE), b.end(f"a.{topic_name}", 0) - 1)
    processed = [*reader.processed("output-a"), *reader.processed("output-b")]
    assert sorted(processed) == sorted(f"{p}/{n}" for n in range(ALL) for p in range(2))
