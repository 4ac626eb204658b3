"""A Kafka cluster (KRaft) of one broker on this machine, which is its own controller."""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

from reconciler.artifacts import java_executable
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.demo.lab.in_use import ClusterInUse
from reconciler.demo.lab.processes import Child

T = TypeVar("T")
HOST = "127.0.0.1"
PORTS = range(15_000, 32_000)
"""Below the ports of outgoing connections, so that a restarted server finds its own port still free."""
START_SECONDS = 60
# For servers that live for minutes: a quick start matters more than peak speed.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
FEATURES = "bootstrap.checkpoint"
"""The features of Kafka's version, which its tool writes beside a cluster's id. They are the same for every cluster."""
CLASSES = "classes.jsa"
"""An archive of loaded classes beside the jars, which halves the cost of a server's start; the tests make it."""


def java_command(jars: Path, main: str, *arguments: str, heap: str, jvm: Sequence[str] = ()) -> list[str]:
    """A JVM that runs ``main`` from ``jars`` and logs lines with times to its output.

    ``jvm``: more options, instead of those for the archive of its classes.
    """
    logging = "-Dorg.slf4j.simpleLogger"
    jars = jars.resolve()  # an archive of classes belongs to the jars' own path
    return [
        str(java_executable()),
        *QUICK_JVM,
        *(jvm or sharing(jars)),
        f"-Xmx{heap}",
        f"{logging}.defaultLogLevel=warn",
        f"{logging}.showDateTime=true",
        f"{logging}.dateTimeFormat=HH:mm:ss.SSS",
        "-Dlog4j2.level=OFF",
        *("-cp", f"{jars}/*", main, *arguments),
    ]


def sharing(jars: Path) -> list[str]:
    """The JVM's options to start with the archive, if there is one. A JVM that rejects it is only slow."""
    archive = jars / CLASSES
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if archive.exists() else []


class Broker(ClusterInUse):
    """A cluster of one broker, with its data, settings and log in ``directory``.

    Records stay until they are deleted: without retention, back-dated records stay too. A second start continues with
    the first one's data and ports. ``port``: where clients connect, else a free one. ``properties`` override or add
    settings. ``detached``: it outlives this process.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        jars: Path,
        *,
        number: int = 1,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "256m",
        jvm: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        super().__init__(name)
        self.number = number
        self.directory = directory.absolute()
        self.data = self.directory / "data"
        self.log = self.directory / "broker.log"
        self.ports = free_ports(2)
        if port is not None and is_free(port):
            self.ports = (port, self.ports[1])
        self.cluster_id = new_cluster_id()
        self.properties = dict(properties or {})
        self._jars = jars
        self._heap = heap
        self._jvm = jvm
        self._detached = detached
        self._child: Child | None = None

    def start(self) -> Self:
        """Start it and wait until it answers."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Start it without waiting."""
        self.forget_admin()  # a client that saw the last process die backs off for longer and longer
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()), encoding="utf-8")
        if not (self.data / "meta.properties").exists():
            self._format(file)
        command = java_command(self._jars, "kafka.Kafka", str(file), heap=self._heap, jvm=self._jvm)
        self._child = Child(f"Cluster {self.name}", command, self.log, cwd=self.directory, detached=self._detached)

    def wait_ready(self) -> None:
        self.wait_until(self._answers, START_SECONDS, "its first answer")

    def kill(self) -> None:
        """Kill it with SIGKILL, as a power failure would."""
        if self._child is not None:
            self._child.kill()

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def process(self) -> Child:
        """Its process, running or not. Raises ConfigError if it was never started."""
        if self._child is None:
            raise ConfigError(f"Cluster {self.name} is not running.", hint="Start it first.")
        return self._child

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.ports[0]}"

    def wait_until(self, condition: Callable[[], T | None], timeout: float, what: str) -> T:
        """Fails at once if the process has died."""
        return self.process.wait_until(condition, timeout, what)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            described = self.admin().list_topics(timeout=2)
        except KafkaException:
            return False
        return described.cluster_id == self.cluster_id and self.number in described.brokers

    def _format(self, settings: Path) -> None:
        """Write the cluster's id. The features that Kafka's tool wrote for an earlier cluster save a JVM."""
        kept = self._jars / FEATURES
        if kept.exists():
            self.data.mkdir()
            shutil.copyfile(kept, self.data / FEATURES)
            names = {"version": 1, "cluster.id": self.cluster_id, "node.id": self.number}
            names["directory.id"] = new_cluster_id()
            text = "".join(f"{name}={value}\n" for name, value in names.items())
            (self.data / "meta.properties").write_text(text, encoding="utf-8")
            return
        words = ("format", "-t", self.cluster_id, "-c", str(settings))
        command = java_command(self._jars, "kafka.tools.StorageTool", *words, heap="64m")
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise Unreachable(f"Formatting {self.name} failed.", hint=f"Kafka said: {done.stdout}{done.stderr}")
        with contextlib.suppress(OSError):  # a cache that belongs to another user
            whole = kept.with_name(f".{FEATURES}.{os.getpid()}")
            shutil.copyfile(self.data / FEATURES, whole)
            whole.replace(kept)

    def _settings(self) -> dict[str, str]:
        once = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.number),
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{HOST}:{self.ports[1]}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{self.number}@{HOST}:{self.ports[1]}",
            "log.dirs": str(self.data),
            "auto.create.topics.enable": "false",
            "auto.leader.rebalance.enable": "false",
            # Without these records, written twice a second, an idle broker takes a quarter less of the processor.
            "metadata.max.idle.interval.ms": "0",
            # A thread that waits for requests wakes up three times a second: with the default's 22 of them, an idle
            # broker takes a fifth more of the processor.
            "num.io.threads": "2",
            "num.network.threads": "1",
            # A killed broker may register again only after its last session has expired (9 s by default).
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.ms": "-1",
            "offsets.retention.minutes": "10000000",
            **{f"{topic}.num.partitions": "1" for topic in once},
            **{f"{topic}.replication.factor": "1" for topic in once},
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # The default buffer of 128 MiB would be allocated at the start.
            "log.cleaner.dedupe.buffer.size": "2097152",
            **self.properties,
        }


def new_cluster_id() -> str:
    """An id in Kafka's own form: 16 random bytes in URL-safe base64, no leading dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


# Each process begins elsewhere, so that two that start servers at once do not find the same port free.
_next_port = itertools.count(os.getpid() * 64)


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports on which nothing listens. Raises Unreachable if none is left."""
    tried = (PORTS[next(_next_port) % len(PORTS)] for _ in PORTS)
    found = tuple(itertools.islice(filter(is_free, tried), count))
    if len(found) < count:
        raise Unreachable("No port is free on this machine.", hint=f"{PORTS[0]} to {PORTS[-1]} were tried.")
    return found


def is_free(port: int) -> bool:
    """True if a server can listen on this port: connections that have just ended there do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
