"""One-node Kafka clusters (KRaft) on this machine, for the demo and the tests."""

from __future__ import annotations

import base64
import contextlib
import re
import shutil
import socket
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from reconciler.artifacts import java_executable
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.lab.processes import Child

# For servers that live for minutes: quick to start beats quick at the end.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
_START_SECONDS = 60
_PORT_ATTEMPTS = 3
_HOST = "127.0.0.1"


def java_command(jars: Path, main: str, *arguments: str, heap: str, log_level: str = "warn") -> list[str]:
    """A JVM that runs ``main`` from ``jars`` and logs lines with times to its output."""
    logging = "-Dorg.slf4j.simpleLogger"
    return [
        str(java_executable()),
        *QUICK_JVM,
        f"-Xmx{heap}",
        f"{logging}.defaultLogLevel={log_level}",
        f"{logging}.showDateTime=true",
        f"{logging}.dateTimeFormat=HH:mm:ss.SSS",
        "-Dlog4j2.level=OFF",
        *("-cp", f"{jars}/*", main, *arguments),
    ]


class KafkaCluster:
    """A broker and controller in one process, on ports of its own, with its data below ``directory``.

    Records stay until they are deleted (no retention), so that back-dated ones do. ``properties`` override or
    add broker settings. ``listeners``: more doors beside the plain one, as names and ports (what is spoken there
    is for ``listener.security.protocol.map`` to say). ``detached``: it outlives this process, and leaving the
    ``with`` block does not stop it.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        jars: Path,
        *,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, int] | None = None,
        heap: str = "256m",
        log_level: str = "warn",
        detached: bool = False,
    ) -> None:
        self.name = name
        self.directory = directory.absolute()
        self.cluster_id = _new_id()
        self._jars = jars
        self._properties = dict(properties or {})
        self._listeners = dict(listeners or {})
        self._heap = heap
        self._log_level = log_level
        self._detached = detached
        self._ports: tuple[int, int] | None = None
        self._broker: Child | None = None
        self._admin: Any = None

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start it and wait until it answers. The second start finds the first one's data."""
        start_all([self])
        return self

    def stop(self) -> None:
        """Orderly: everything is flushed."""
        if self._broker is not None:
            self._broker.stop()

    def kill(self) -> None:
        """The disaster: gone between two instructions."""
        if self._broker is not None:
            self._broker.kill()

    def restart(self) -> Self:
        """Up again after ``stop`` or ``kill`` (or stopped first): the same ports, the same data."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open, nothing is answered."""
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    @property
    def bootstrap(self) -> str:
        return f"{_HOST}:{self._known_ports()[0]}"

    @property
    def running(self) -> bool:
        return self._broker is not None and self._broker.running

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(self, *_: object) -> None:
        if not self._detached:
            self.stop()

    # ------------------------------------------------------------ use

    def admin(self) -> Any:
        """An admin client of this cluster (confluent_kafka's), one for all callers."""
        if self._admin is None:
            self._admin = _admin_client(self.bootstrap)
        return self._admin

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        from confluent_kafka.admin import NewTopic

        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        self.admin().create_topics([new], operation_timeout=30)[topic].result(timeout=30)
        self._running().wait_until(lambda: len(self.end_offsets(topic)) == partitions, 30, f"topic {topic}")

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 where there is no such topic."""
        known = self.admin().list_topics(topic, timeout=10).topics[topic]
        return 0 if known.error is not None else len(known.partitions)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset after each partition's last record; empty where there is no such topic."""
        return self._offsets(topic, latest=True)

    def start_offsets(self, topic: str) -> dict[int, int]:
        """Each partition's first offset; empty where there is no such topic."""
        return self._offsets(topic, latest=False)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete all records of a partition before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        asked = [TopicPartition(topic, partition, before)]
        for answer in self.admin().delete_records(asked, request_timeout=30).values():
            answer.result(timeout=30)

    def _offsets(self, topic: str, *, latest: bool) -> dict[int, int]:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        spec = OffsetSpec.latest() if latest else OffsetSpec.earliest()
        # Metadata can name a partition before its leader has taken office: asking again is the remedy.
        early = {
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError.LEADER_NOT_AVAILABLE,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError.UNKNOWN_LEADER_EPOCH,
            KafkaError.FENCED_LEADER_EPOCH,
        }

        def ask() -> tuple[dict[int, int]] | None:
            asked = {TopicPartition(topic, number): spec for number in range(self.partitions(topic))}
            try:
                answers = self.admin().list_offsets(asked, request_timeout=10) if asked else {}
                return ({tp.partition: answer.result(timeout=10).offset for tp, answer in answers.items()},)
            except KafkaException as error:
                if error.args[0].code() in early:
                    return None
                raise

        return self._running().wait_until(ask, 30, f"the offsets of topic {topic}")[0]

    # ------------------------------------------------------------ starting

    def _known_ports(self) -> tuple[int, int]:
        if self._ports is None:
            raise ConfigError(f"Cluster {self.name} has no address yet.", hint="Start it first.")
        return self._ports

    def _running(self) -> Child:
        if self._broker is None:
            raise ConfigError(f"Cluster {self.name} is not running.", hint="Start it first.")
        return self._broker

    @property
    def _formatted(self) -> bool:
        return (self.directory / "data" / "meta.properties").exists()

    def _launch_format(self) -> Child | None:
        """Begin to format the data directory; None when it is formatted already."""
        if self._formatted:
            return None
        self.directory.mkdir(parents=True, exist_ok=True)
        self._ports = self._ports or _free_ports()
        settings = self._write_settings()
        command = java_command(
            *(self._jars, "kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(settings)), heap="64m"
        )
        return Child(f"Formatting {self.name}", command, self.directory / "format.log", cwd=self.directory)

    def _launch_broker(self) -> None:
        settings = str(self._write_settings())
        command = java_command(self._jars, "kafka.Kafka", settings, heap=self._heap, log_level=self._log_level)
        self._admin = None  # a client that saw the last broker die waits longer and longer between its looks
        self._broker = Child(f"Cluster {self.name}", command, self.log, cwd=self.directory, detached=self._detached)

    def _wait_ready(self) -> None:
        """Until it answers both as itself and with metadata. A port taken meanwhile means another pair of ports."""
        for attempts_left in reversed(range(_PORT_ATTEMPTS)):
            try:
                self._running().wait_until(self._answers, _START_SECONDS, "its first answer")
                return
            except Unreachable:
                stolen = self._port_was_taken()
                self.kill()
                # A second start must keep its address: clients and the other cluster know it.
                if not (stolen and attempts_left and self._first_start):
                    raise
                self._start_over()

    @property
    def _first_start(self) -> bool:
        return not (self.directory / "answered").exists()

    def _start_over(self) -> None:
        shutil.rmtree(self.directory / "data")
        self.log.unlink()
        self._ports = _free_ports()
        if (formatting := self._launch_format()) is not None:
            _finish_format(formatting)
        self._launch_broker()

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            described = self.admin().describe_cluster(request_timeout=2).result(timeout=3)
            if described.cluster_id != self.cluster_id:
                return False  # somebody else's broker on a port that was taken: ours is about to fail
            ready = bool(self.admin().list_topics(timeout=2).brokers)
        except (KafkaException, TimeoutError):
            return False
        (self.directory / "answered").touch()
        return ready

    def _port_was_taken(self) -> bool:
        with contextlib.suppress(OSError):
            return re.search(r"Address already in use|BindException", self.log.read_text(errors="replace")) is not None
        return False

    def _write_settings(self) -> Path:
        port, controller = self._known_ports()
        doors = ",".join(f"{name}://{_HOST}:{at}" for name, at in {"PLAINTEXT": port, **self._listeners}.items())
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"{doors},CONTROLLER://{_HOST}:{controller}",
            "advertised.listeners": doors,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{_HOST}:{controller}",
            "log.dirs": str(self.directory / "data"),
            "auto.create.topics.enable": "false",
            # A killed broker is let in again only when its last session has run out (9 s if nothing is said).
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.ms": "-1",
            "offsets.retention.minutes": "10000000",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # A log would otherwise take 10 MiB of address space an index at once; and nobody waits for a cleaner.
            "log.cleaner.dedupe.buffer.size": "2097152",
            **self._properties,
        }
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        return path


def start_all(clusters: Sequence[KafkaCluster]) -> None:
    """Start clusters side by side. If one fails, all that this call started are stopped, and its error is raised."""
    with contextlib.ExitStack() as on_failure:
        formatting = [child for cluster in clusters if (child := cluster._launch_format()) is not None]
        for child in formatting:
            on_failure.callback(child.kill)
        for child in formatting:
            _finish_format(child)
        for cluster in clusters:
            cluster._launch_broker()
            on_failure.callback(cluster.kill)
        for cluster in clusters:
            cluster._wait_ready()
        on_failure.pop_all()


def _finish_format(child: Child) -> None:
    if child.wait(_START_SECONDS) != 0:
        raise Unreachable(f"{child.name} failed.", hint=f"Its log, {child.log}, ends: {child.log_tail()}")


def _free_ports() -> tuple[int, int]:
    """Two ports nobody listens on now. Both sockets are open at once, so that they differ."""
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind((_HOST, 0))
        return first.getsockname()[1], second.getsockname()[1]


def _new_id() -> str:
    """A cluster id in Kafka's own form: 16 random bytes in URL-safe base64, no leading dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _admin_client(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    quiet = {"log_level": 0, "error_cb": _ignore, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}
    return AdminClient({"bootstrap.servers": bootstrap, "socket.connection.setup.timeout.ms": 2000, **quiet})


def _ignore(_: object) -> None:
    """While a server starts, every refused connection would be reported."""
