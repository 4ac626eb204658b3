"""Two clusters and the records of a failover: at the source, and as a mirror has put them to the destination."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, stop_after_delay, stop_any, wait_fixed

from tests import ROOT
from tests.checkpoints.stateful_queries import Side
from tests.spark.sent import BASE_MS, Kafka, Sent

DELETED = 50
"""Records of each partition that the source had deleted before: numbers differ by as many at the destination."""
PATIENCE_S = 600
Home = tuple[str, str, Path, str | None]
"""A query, its provider of state, its folder, and where in its first batch it hangs."""


def record(number: int, at: int, n: int, ident: int) -> Sent:
    text = {"id": ident, "who": f"user {ident % 5}", "n": n, "at": at}
    return Sent(number % 2, b"%d" % ident, json.dumps(text).encode(), BASE_MS + 1000 * at)


def orders(numbers: range) -> list[Sent]:
    """One a second; every fifth comes again ten later."""
    ids = [number - 10 if number % 5 == 0 and number >= 10 else number for number in numbers]
    return [record(number, number, number % 7, ident) for number, ident in zip(numbers, ids, strict=True)]


def pays(numbers: range) -> list[Sent]:
    """The payments, for each order 15 seconds later."""
    return [record(number, number, 1, number - 15) for number in numbers if number >= 15]


def last_words() -> list[Sent]:
    """So late that every window closes, in every partition."""
    return [record(number, 100_000, 0, 90_000 + number) for number in range(2)]


class Source:
    """The cluster that is lost."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.kafka = Kafka(bootstrap)
        self.side = Side(bootstrap, f"{name}-orders", f"{name}-pays")
        for topic in (self.side.orders, self.side.pays):
            self.kafka.create(topic, 2)
            self.kafka.send(topic, [Sent(number % 2) for number in range(2 * DELETED)])
            admin = AdminClient({"bootstrap.servers": bootstrap})
            for future in admin.delete_records([TopicPartition(topic, part, DELETED) for part in range(2)]).values():
                future.result(30)

    def send(self, numbers: range) -> None:
        self.kafka.send(self.side.orders, orders(numbers))
        self.kafka.send(self.side.pays, pays(numbers))


class Destination:
    """The other cluster: the same records under other names and numbers, with the marks of transactions in between."""

    def __init__(self, bootstrap: str, source: Side) -> None:
        self.kafka = Kafka(bootstrap)
        self.side = Side(bootstrap, f"a.{source.orders}", f"a.{source.pays}")
        for topic in (self.side.orders, self.side.pays):
            self.kafka.create(topic, 2)

    def send(self, numbers: range) -> None:
        self.copy(self.side.orders, orders(numbers))
        self.copy(self.side.pays, pays(numbers))

    def copy(self, topic: str, records: Sequence[Sent], burst: int = 25) -> None:
        for first in range(0, len(records), burst):
            self.kafka.send(topic, records[first : first + burst], transaction=f"mirror of {topic}")


@contextmanager
def running(folder: Path, side: Side, homes: Sequence[Home]) -> Iterator[tuple[Any, Path]]:
    """The queries as a process of its own, and the folder where it says how far it is. Killed at the end."""
    began = folder / "began"
    began.mkdir(exist_ok=True)
    settings = folder / "settings.json"
    settings.write_text(
        json.dumps({"side": asdict(side), "homes": [[*h[:2], str(h[2]), h[3]] for h in homes], "began": str(began)})
    )
    command = [sys.executable, "-m", "tests.checkpoints.stateful_queries", str(settings)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "queries.log").open("ab") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
    try:
        yield child, began
    finally:
        kill(child)


def kill(child: Any) -> None:
    """kill -9 of the driver and its JVM: gone between two instructions."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait(30)


def await_files(child: Any, folder: Path, names: Sequence[str]) -> None:
    """Wait until all these files are there."""

    def look() -> None:
        missing = [name for name in names if not (folder / name).exists()]
        assert not missing, f"waited in vain for {missing}"

    def failed(_: Any) -> bool:
        return child.poll() not in (None, 0)

    Retrying(wait=wait_fixed(0.1), stop=stop_any(stop_after_delay(PATIENCE_S), failed), reraise=True)(look)
