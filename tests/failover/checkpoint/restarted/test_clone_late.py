"""Queries that log their progress behind their output are killed and failed over: nothing is lost, and what may come
again is told before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from reconciler.core.errors import ReconcilerError
from reconciler.places.checkpoint.reading import read_checkpoint
from reconciler.state.store import open_state
from tests import ROOT
from tests.failover.checkpoint.checkpoint_files import cloned_by, command
from tests.failover.checkpoint.restarted.clone_world import kill
from tests.spark.environments import python_with_pyspark
from tests.spark.sent import BASE_MS, Kafka, Sent
from tests.waiting import wait_until

pytestmark = [pytest.mark.system, pytest.mark.thorough]

PATIENCE_S = 180
WORDS = {"asynchronous": "asynchronous progress tracking", "real-time": "real-time mode"}
CASES = (("asynchronous", None), ("real-time", None), ("real-time", "4.3.0"))
"""A kind of query, and the PySpark that runs it, where that is not the tests' own."""
OLDER = 7
"""Records that only the destination has, in front of the others."""


class Stream:
    """Records with numbers, sent one after the other as long as a query is to be kept busy."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        self.sent: list[Sent] = []

    def send(self, count: int) -> None:
        numbers = range(len(self.sent), len(self.sent) + count)
        more = [Sent(n % 2, b"k", b"%d" % n, BASE_MS + n) for n in numbers]
        self.kafka.send(self.topic, more)
        self.sent += more

    @contextmanager
    def flowing(self) -> Iterator[None]:
        enough = threading.Event()

        def go_on() -> None:
            while not enough.wait(0.1):
                self.send(4)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()


@contextmanager
def running(python: Path | str, log: Path, *arguments: str) -> Iterator[Any]:
    """The query as a process of its own, killed at the end."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}
    words = [str(python), "-m", "tests.failover.checkpoint.restarted.late_queries", *arguments]
    with log.open("ab") as file:
        child = subprocess.Popen(words, stdout=file, stderr=file, start_new_session=True, env=settings)
    try:
        yield child
    finally:
        kill(child)


def await_true(child: Any, is_so: Callable[[], bool]) -> None:
    wait_until(is_so, "what the query was to do", ended=lambda: child.poll() is not None, look_s=0.05)


def values(kafka: Kafka, topic: str) -> list[bytes]:
    """The values of all records in the sink's only partition."""
    end = kafka.end(topic, 0)
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "tests-never-commit", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < end:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


def logged(checkpoint: Path, topic: str, *, committed: bool = False) -> int | None:
    """How many records lie in front of where a restart reads on; None as long as the log is not seen to be behind.

    ``committed``: None, too, as long as the last batch in the log is not.
    """
    try:
        found = read_checkpoint(str(checkpoint))
    except ReconcilerError:
        return None
    if found.behind is None or (committed and found.repeats_a_batch):
        return None
    return sum(offset for (name, _), offset in (found.positions[0].start or {}).items() if name == topic)


@pytest.mark.parametrize(("kind", "version"), CASES)
def test_nothing_is_lost_and_what_comes_again_is_told(
    kind: str, version: str | None, clusters: Any, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = python_with_pyspark(version) if version else sys.executable
    source, destination = Kafka(clusters.source.bootstrap), Kafka(clusters.destination.bootstrap)
    there, out = f"a.{topic_name}", f"{topic_name}-out"
    source.create(topic_name, 2)
    destination.create(there, 2)
    destination.create(out)
    checkpoint, copy, plan, config = (tmp_path / name for name in ("checkpoint", "copy", "plan.json", "c.toml"))
    open_state(f"sqlite:///{tmp_path}/state.db").create()
    config.write_text(
        f'[clusters.a]\nbootstrap_servers = "{source.bootstrap}"\n'
        f'[clusters.b]\nbootstrap_servers = "{destination.bootstrap}"\n'
        f'[state]\nstore = "sqlite:///{tmp_path}/state.db"\n'
        f'[[jobs]]\nhome = "a"\nname = "late"\ntopics = ["{topic_name}"]\noffsets = "checkpoint:{checkpoint}"\n'
    )
    stream, log = Stream(source, topic_name), tmp_path / "query.log"
    stream.send(20)

    # Killed while its output is ahead of its log.
    arguments = (source.bootstrap, topic_name, destination.bootstrap, out, str(checkpoint))
    with stream.flowing(), running(python, log, kind, *arguments) as child:
        await_true(
            child, lambda: 20 < (logged(checkpoint, topic_name, committed=True) or 0) < destination.end(out, 0) - 5
        )
    stream.send(20)  # never read there
    before = values(destination, out)
    ahead = len(before) - (logged(checkpoint, topic_name) or 0)
    assert command("track", "-c", config, "--once") == 0

    # The mirror's copy, and the plan, which tells what comes again.
    destination.send(there, [Sent(n % 2, b"old", b"old", BASE_MS - 100 + n) for n in range(2 * OLDER)])
    destination.send(there, stream.sent)
    assert command("plan", "-c", config, "-o", plan) == 0
    rows = json.loads(plan.read_text())["jobs"][0]["partitions"]
    starts = [row for row in rows if row["position"] != "end"]
    assert all(WORDS[kind] in row["detail"] and "is read again" in row["detail"] for row in starts)
    assert {row["finding"] for row in starts} == {"exact"}
    assert WORDS[kind] in "".join(cloned_by(config, plan, checkpoint, copy).warnings)

    # The copy goes on.
    wanted = Counter(each.value for each in stream.sent)
    arguments = (destination.bootstrap, there, destination.bootstrap, out, str(copy))
    with running(python, log, kind, *arguments) as child:
        await_true(child, lambda: set(values(destination, out)) >= set(wanted))
    found = Counter(values(destination, out))
    assert set(found) == set(wanted)
    assert ahead > 5
    assert 0 < (found - wanted).total() <= ahead
