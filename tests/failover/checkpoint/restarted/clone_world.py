"""Two clusters and the records of a failover: at the source, and as a mirror has put them to the destination."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from reconciler.state.store import open_state
from tests import ROOT
from tests.failover.checkpoint.checkpoint_files import cloned_by, command
from tests.failover.checkpoint.restarted.stateful_queries import Side
from tests.spark.sent import BASE_MS, Kafka, Sent
from tests.waiting import wait_until

DELETED = 50
"""Records of each partition that the source had deleted before: numbers differ by as many at the destination."""
PATIENCE_S = 600
STOPS = ("stopped", "killed")
Case = tuple[str, str, str]
"""A query, what keeps its state, and how it was stopped."""
Home = tuple[str, str, Path, bool]
"""A query, its provider of state, its folder, and whether it hangs once its first batch is put out."""


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
    began.mkdir(parents=True, exist_ok=True)
    settings = folder / "settings.json"
    places = [[query, provider, str(home), stuck] for query, provider, home, stuck in homes]
    given = {"side": asdict(side), "homes": places, "began": str(began)}
    settings.write_text(json.dumps(given))
    command = [sys.executable, "-m", "tests.failover.checkpoint.restarted.stateful_queries", str(settings)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
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
    """Wait until all these files are there, in a child's folder of what it began."""

    def missing() -> list[str]:
        return [name for name in names if not (folder / name).exists()]

    def seen() -> str:
        return f"{missing()} are there; {(folder.parent / 'queries.log').read_text()[-500:]}"

    wait_until(lambda: not missing(), seen, ended=lambda: child.poll() not in (None, 0))


# ---------------------------------------------------------------- queries that are failed over


@dataclass
class World:
    """Where each case's query runs: before the failover, and after it."""

    folder: Path
    cases: tuple[Case, ...]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return sorted({(query, provider) for query, provider, _ in self.cases})

    def before(self, query: str, provider: str, stop: str) -> Path:
        return self.folder / stop / f"{query}-{provider}"

    def after(self, query: str, provider: str, stop: str) -> Path:
        return self.folder / "after" / stop / f"{query}-{provider}"

    def plain(self, query: str) -> Path:
        return self.folder / "plain" / query


def job(name: str, store: str) -> str:
    topics = ["ORDERS", "PAYS"] if name.startswith("join") else ["ORDERS"]
    return f'[[jobs]]\nhome = "a"\nname = "{name}"\ntopics = {json.dumps(topics)}\noffsets = "{store}"\n'


def configuration(world: World, source: Source, destination: Destination) -> Path:
    """One job a checkpoint."""
    lines = [
        f'[clusters.a]\nbootstrap_servers = "{source.side.bootstrap}"',
        f'[clusters.b]\nbootstrap_servers = "{destination.side.bootstrap}"',
        f'[state]\nstore = "sqlite:///{world.folder}/state.db"',
    ]
    for query, provider, stop in world.cases:
        name, store = f"{query}-{provider}-{stop}", f"checkpoint:{world.before(query, provider, stop)}/checkpoint"
        lines.append(job(name, store))
    path = world.folder / "reconciler.toml"
    open_state(f"sqlite:///{world.folder}/state.db").create()
    path.write_text("\n".join(lines).replace("ORDERS", source.side.orders).replace("PAYS", source.side.pays))
    return path


def fail_over(world: World, name: str, jars: Path, destination_bootstrap: str) -> Destination:
    """Run all cases at a cluster that is then lost, and clone each checkpoint for the destination."""
    from tests.demo.lab.kafka import KafkaCluster

    with KafkaCluster("lost", world.folder / "lost", jars) as lost:
        source = Source(lost.bootstrap, name)
        destination = Destination(destination_bootstrap, source.side)
        run_at_the_source(world, source)
        config = configuration(world, source, destination)
        assert command("track", "-c", config, "--once") == 0
        lost.kill()
    destination.send(range(120))
    plan = world.folder / "plan.json"
    assert command("plan", "-c", config, "-o", plan) == 0
    for query, provider, stop in world.cases:
        old, new = world.before(query, provider, stop), world.after(query, provider, stop)
        shutil.copytree(old / "output", new / "output")
        cloned_by(config, plan, old / "checkpoint", new / "checkpoint", f"{query}-{provider}-{stop}")
    return destination


def run_at_the_source(world: World, source: Source) -> None:
    """All queries over the first records; then over more of them, into a batch that is killed once it is put out."""
    source.send(range(60))
    homes = [(*pair, world.before(*pair, "killed")) for pair in world.pairs]
    with running(world.folder, source.side, [(*home, False) for home in homes]) as (child, began):
        await_files(child, began, ["done"])
    shutil.copytree(world.folder / "killed", world.folder / "stopped")
    source.send(range(60, 100))
    with running(world.folder, source.side, [(*home, True) for home in homes]) as (child, began):
        await_files(child, began, [f"{query}-{provider}" for query, provider in world.pairs])
        kill(child)


def rounds(world: World, destination: Destination) -> Iterator[list[tuple[str, str, Path]]]:
    """More records at the destination, and which queries to run there at once: copies, and the same from the beginning.

    Copies of one query have its id, and Spark runs one query of an id at a time: so in two rounds.
    """
    destination.send(range(120, 160))
    for topic in (destination.side.orders, destination.side.pays):
        destination.copy(topic, last_words())
    stopped, killed = ([(*case[:2], world.after(*case)) for case in world.cases if case[2] == stop] for stop in STOPS)
    queries = dict.fromkeys(query for query, _, _ in world.cases)
    yield stopped
    yield killed + [(query, "hdfs", world.plain(query)) for query in queries]
