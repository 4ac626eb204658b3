"""Older Kafka: its jars, and a broker from before KRaft, which keeps its metadata in ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import KafkaException

from reconciler.artifacts import JarSet, Request, cached
from reconciler.demo.lab.in_use import ClusterInUse, admin_client
from reconciler.demo.lab.kafka import HOST, java_command
from tests.demo.lab.kafka import KafkaCluster
from tests.demo.lab.servers.jars import zookeeper_jars
from tests.demo.lab.servers.server import Server
from tests.demo.lab.servers.zookeeper import ZooKeeperServer

FIRST_WITHOUT_ZOOKEEPER = (3, 3)
"""KRaft is meant for production from Kafka 3.3 on (KIP-833)."""


def old_kafka_jars(version: str) -> Path:
    """The directory of a class path for a broker and MirrorMaker of an older version."""
    wanted = tuple(f"org.apache.kafka:{name}:{version}" for name in ("kafka_2.13", "connect-mirror", "connect-runtime"))
    logging = ("org.slf4j:slf4j-api:2.0.17", "org.slf4j:slf4j-simple:2.0.17")
    its_own = ("org.slf4j:slf4j-log4j12", "org.slf4j:slf4j-reload4j")
    recipe = (Request(logging + wanted, its_own),)
    return cached(JarSet(f"kafka-{version}", f"Kafka {version}", (recipe,), scala_library=True), print)


class BrokerOnZooKeeper(Server):
    """One broker of Kafka 2.x."""

    name = "Kafka"

    def __init__(self, directory: Path, jars: Path, zookeeper: ZooKeeperServer) -> None:
        super().__init__(directory)
        self._jars = jars
        self._zookeeper = zookeeper

    def command(self, *ports: int) -> list[str]:
        once = ("offsets.topic", "transaction.state.log")
        settings = {
            "broker.id": "1",
            "zookeeper.connect": self._zookeeper.hosts,
            "listeners": f"PLAINTEXT://{HOST}:{ports[0]}",
            "log.dirs": str(self.directory / "data"),
            "auto.create.topics.enable": "false",
            "log.retention.ms": "-1",
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.min.isr": "1",
            "log.cleaner.dedupe.buffer.size": "2097152",
            **{f"{name}.num.partitions": "1" for name in once},
            **{f"{name}.replication.factor": "1" for name in once},
        }
        file = self.directory / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        return java_command(self._jars, "kafka.Kafka", str(file), heap="256m")

    def is_ready(self, *ports: int) -> bool:
        try:
            return bool(admin_client(f"{HOST}:{ports[0]}").list_topics(timeout=2).brokers)
        except KafkaException:
            return False


class ClusterOnZooKeeper(ClusterInUse):
    """That broker as a cluster."""

    def __init__(self, name: str, broker: BrokerOnZooKeeper) -> None:
        super().__init__(name)
        self._broker = broker

    @property
    def bootstrap(self) -> str:
        return self._broker.address


@contextmanager
def cluster_of(version: str, name: str, directory: Path) -> Iterator[ClusterInUse]:
    """A running cluster of one broker of this version."""
    jars = old_kafka_jars(version)
    with ExitStack() as until_the_end:
        if tuple(int(part) for part in version.split(".")[:2]) >= FIRST_WITHOUT_ZOOKEEPER:
            yield until_the_end.enter_context(KafkaCluster(name, directory, jars))
            return
        zookeeper = ZooKeeperServer(directory / "zookeeper", zookeeper_jars())
        until_the_end.enter_context(zookeeper)
        broker = until_the_end.enter_context(BrokerOnZooKeeper(directory / "broker", jars, zookeeper))
        yield ClusterOnZooKeeper(name, broker)
