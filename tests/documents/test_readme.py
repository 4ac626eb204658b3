"""The README's first door: its configuration, its job and its commands, run as printed on real clusters and Spark.

Changed are only what a user changes: the clusters' addresses, the topic, and the folder. ``spark-submit`` finds master
and connector where a user's finds them, in ``spark-defaults.conf``.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.places.registry import open_store
from reconciler.state.jobs import JobState
from reconciler.state.store import open_state
from tests import ROOT
from tests.documents.doors import FIRST, blocks
from tests.spark.sent import BASE_MS, Kafka, Sent
from tests.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.system
DEFAULTS = "spark.master local[2]\nspark.ui.enabled false\nspark.sql.shuffle.partitions 2\nspark.jars {jars}\n"


class Reader:
    """Somebody who does what the page says, with a topic, clusters and a folder of their own."""

    def __init__(self, folder: Path, topic: str, a: str, b: str) -> None:
        from reconciler import artifacts

        self.folder = folder
        self.topic = topic
        page = FIRST.replace('["events"]', f'["{topic}"]').replace("/var/lib/clicks", str(folder))
        found = blocks(page.replace("kafka-a:9092", a).replace("kafka-b:9092", b))
        (config,), (job,) = ([text for kind, text in found if kind == wanted] for wanted in ("toml", "python"))
        (folder / "reconciler.toml").write_text(config)
        (folder / "clicks.py").write_text(job)
        self.commands = [line for kind, text in found if not kind for line in text.splitlines()]
        jars = ",".join(map(str, artifacts.spark_kafka_connector(print)))
        (folder / "spark-defaults.conf").write_text(DEFAULTS.format(jars=jars))

    @property
    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"SPARK_CONF_DIR": str(self.folder), "RECONCILER_PLANS": str(self.folder / "plans")}
        return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **own}

    def runs(self, command: str, code: int = 0) -> str:
        done = subprocess.run(
            shlex.split(command),
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def starts(self, command: str) -> Iterator[Path]:
        """The job, until it is killed; where it says what it does."""
        said = self.folder / "said.log"
        with said.open("wb") as log:
            job = subprocess.Popen(
                shlex.split(command), cwd=self.folder, env=self._environment, stdout=log, stderr=log, process_group=0
            )
        try:
            yield said
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait(60)

    @property
    def processed(self) -> list[str]:
        rows = [line for file in (self.folder / "out").glob("part-*.json") for line in file.open()]
        return sorted(json.loads(row)["value"] for row in rows)

    def processes(self, said: Path, expected: list[str], checkpoint: str) -> None:
        """Wait until the job has processed these records, and has committed its last batch to this checkpoint."""

        def done() -> bool:
            assert len(self.processed) <= len(expected), "a record was processed twice"
            return self.processed == expected and self._is_committed(checkpoint) and self._is_tracked(checkpoint)

        wait_until(done, lambda: (self.processed[-3:], said.read_text()[-3_000:]), look_s=0.2)

    def _is_committed(self, checkpoint: str) -> bool:
        batches, commits = ({file.name for file in (self.folder / checkpoint / of).glob("[0-9]*")} for of in LOGS)
        return bool(batches) and batches == commits

    def _is_tracked(self, checkpoint: str) -> bool:
        """Whether the journal has the checkpoint's offsets: the job is killed next."""
        state = JobState(open_state(f"sqlite:///{self.folder}/state.db"), "clicks")
        here = state.location()
        known: dict[int, int] = {}
        for entry in state.newest(here.stay) if here else []:
            known |= {at.partition: each.number for at, each in entry.numbers.items()}
        rows = open_store(f"checkpoint:{self.folder / checkpoint}").read("clicks")
        return bool(rows) and known == {row.key.partition: row.stored.offset for row in rows}


LOGS = ("offsets", "commits")


def record(number: int, partition: int) -> Sent:
    name = f"{partition}/{number}".encode()
    return Sent(partition, name, name, BASE_MS + number, (("message-id", name),))


def send(kafka: Kafka, topic: str, numbers: range, each: int) -> None:
    """Transactions of ``each`` records a partition: their marks take offsets, elsewhere on the other cluster."""
    for first in range(numbers.start, numbers.stop, each):
        some = [record(n, p) for n in range(first, min(first + each, numbers.stop)) for p in range(2)]
        kafka.send(topic, some, transaction=topic)


def names(count: int) -> list[str]:
    return sorted(f"{partition}/{number}" for number in range(count) for partition in range(2))


def test_the_readmes_job_runs_at_home_over_the_move_and_on_the_other_cluster(
    clusters, topic_name: str, tmp_path: Path, thorough: bool
) -> None:
    a, b = Kafka(clusters.source.bootstrap), Kafka(clusters.destination.bootstrap)
    for kafka, topic in ((a, topic_name), (b, f"a.{topic_name}")):
        kafka.create(topic, 2)
    send(a, topic_name, range(20), 5)
    reader = Reader(tmp_path, topic_name, a.bootstrap, b.bootstrap)
    init, later, check, move, moved = reader.commands
    assert moved == later

    reader.runs(init)
    with reader.starts(later) as said:
        reader.processes(said, names(20), "checkpoint")
        send(a, topic_name, range(20, 30), 5)
        reader.processes(said, names(30), "checkpoint")
    assert 'job "clicks" starts on a' in said.read_text()
    send(b, f"a.{topic_name}", range(40), 2)
    if thorough:
        send(a, topic_name, range(30, 35), 5)
        with reader.starts(later) as said:
            reader.processes(said, names(35), "checkpoint")
        assert "at its own offsets" in said.read_text()

    assert "2 exact" in reader.runs(check, code=3)
    assert "clicks: starts exactly" in reader.runs(move)
    with reader.starts(moved) as said:
        reader.processes(said, names(40), "checkpoint-2")
    assert "checkpoint-2 is ready" in said.read_text()
    if thorough:
        send(b, f"a.{topic_name}", range(40, 50), 2)
        with reader.starts(later) as said:
            reader.processes(said, names(50), "checkpoint-2")
        assert "every offset is right" in said.read_text()
    assert sorted(path.name for path in tmp_path.glob("checkpoint*")) == ["checkpoint", "checkpoint-2"]
