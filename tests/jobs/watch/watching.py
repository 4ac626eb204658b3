"""A ``reconciler watch`` of a test's own, as a process, and what it serves."""

from __future__ import annotations

import re
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from reconciler.clock import clock_ms
from reconciler.core.anchors import StoredOffset
from reconciler.kafka.reader import KafkaLogReader
from tests.waiting import LIMIT_S, wait_until
from tests.world import World, environment, source_record

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def runs_here(world: World, *numbers: int, topic: str) -> None:
    """The job has processed records up to these, one a partition of ``topic``, on the cluster that is watched."""
    reader = KafkaLogReader({"bootstrap.servers": world.cluster.bootstrap}, timeout_s=30)
    try:
        cluster = reader.describe([topic])
    finally:
        reader.close()
    ids = {"cluster_id": cluster.cluster_id, "topic_id": cluster.topics[topic].topic_id}
    rows = {}
    for partition, number in enumerate(numbers):
        offset = world.offset_of(number, partition, topic)
        anchor = replace(source_record(number, partition).anchor, offset=offset, **ids)
        rows[partition] = StoredOffset(offset + 1, anchor, clock_ms())
    world.save(rows, topic=topic)


def _but_clusters(labels: dict[str, str]) -> list[tuple[str, str]]:
    """A sample's labels but those that tell the clusters and the owner of its job."""
    return [(name, value) for name, value in labels.items() if name not in ("from", "to", "owner")]


class Watching:
    """The process. ``said`` is what it has written to stderr so far, line by line."""

    def __init__(self, config: Path, *options: object, every: float, listen: str, **names: str) -> None:
        command = [sys.executable, "-m", "reconciler", "watch", "-c", str(config), "--listen", listen]
        command += ["--every", f"{every:g}", *map(str, options)]
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**names)
        )
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        self.url = self.until(self._url, "the line that says where metrics are")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def _url(self) -> str | None:
        assert self.process.poll() is None, self.lines
        found = [match[1] for line in self.lines if (match := re.fullmatch(r"metrics: (https?://\S+)/metrics", line))]
        return found[0] if found else None

    def until(self, condition: Callable[[], object], what: str) -> str:
        """Wait for something that must come about; what ``condition`` then gave."""
        return str(wait_until(condition, lambda: f"{what}. It said: {self.lines}", look_s=0.05))

    # ------------------------------------------------------------ what it serves

    def get(self, path: str, tls: ssl.SSLContext | None = None, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60, context=tls) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def samples(self) -> Samples:
        return {
            (sample.name.removeprefix("reconciler_"), frozenset(_but_clusters(sample.labels))): sample.value
            for family in text_string_to_metric_families(self.get("/metrics")[1])
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get((name, frozenset(labels.items())))

    def verdicts(self, job: str) -> dict[tuple[str, str], float]:
        """Partitions of a job by topic and verdict."""
        return {
            (dict(labels)["topic"], dict(labels)["finding"]): value
            for (name, labels), value in self.samples().items()
            if name == "partitions" and ("job", job) in labels
        }

    def rounds_since(self, count: float) -> float:
        return (self.value("watch_rounds_total") or 0) - count

    def next_rounds(self, count: int = 2) -> None:
        """Until so many more rounds have begun and ended."""
        before = self.value("watch_rounds_total") or 0
        self.until(lambda: self.rounds_since(before) > count, f"{count} rounds")

    # ------------------------------------------------------------ its end

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(LIMIT_S)
        self._reading.join()
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()


@contextmanager
def watching(
    config: Path, *options: object, every: float = 0.5, listen: str = "127.0.0.1:0", **names: str
) -> Iterator[Watching]:
    watch = Watching(config, *options, every=every, listen=listen, **names)
    try:
        yield watch
        if watch.process.poll() is None:
            assert watch.end() == 0, watch.lines
            assert watch.lines[-1] == "stopped"
    finally:
        watch.kill()
