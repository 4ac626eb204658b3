"""Clusters and mirrors for tests: of several brokers, with more listeners, to be frozen, stopped and started again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, Self, TypeVar

from reconciler.core.errors import ConfigError
from reconciler.demo.lab import mirror
from reconciler.demo.lab.in_use import ClusterInUse
from reconciler.demo.lab.kafka import HOST, Broker, new_cluster_id
from tests.demo.lab.lasting import started

T = TypeVar("T")
Policy = Literal["default", "identity"]
_IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}


class Node(Broker):
    """A broker that can be stopped and frozen on its own; ``KafkaCluster.restart_broker`` starts it again."""

    _frozen = False

    def launch(self) -> None:
        self._frozen = False
        started(super().launch)

    def stop(self) -> None:
        """Stop it in an orderly way: it hands over its leaders and flushes everything."""
        if self._child is not None:
            self._child.stop()

    def pause(self) -> None:
        """Freeze it: connections stay open, requests get no answer."""
        if not self._frozen:
            self.process.pause()
            self._frozen = True

    def resume(self) -> None:
        self.process.resume()
        self._frozen = False

    @property
    def answers(self) -> bool:
        """True if it is running and not frozen."""
        return self.running and not self._frozen

    @property
    def address(self) -> str:
        return self.bootstrap


class KafkaCluster(ClusterInUse):
    """Brokers that are also controllers, each a process with its own ports, with their data below ``directory``.

    ``listeners``: more listeners beside the plaintext one, as names and ports (their protocols come from
    ``listener.security.protocol.map``). ``brokers``: their number, counted from 1; leaders stay in place until one
    dies. The rest is as in ``Broker``.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        jars: Path,
        *,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, int] | None = None,
        heap: str = "256m",
        jvm: Sequence[str] = (),
    ) -> None:
        if brokers > 1 and listeners:
            raise ConfigError("Several brokers cannot share the ports of one list of listeners.")
        super().__init__(name)
        self.directory = directory.absolute()
        self.cluster_id = new_cluster_id()
        self.jars = jars
        self.brokers = tuple(
            Node(f"{name}-{number}", self.directory / f"broker-{number}", jars, number=number, heap=heap, jvm=jvm)
            if brokers > 1
            else Node(name, self.directory, jars, heap=heap, jvm=jvm)
            for number in range(1, brokers + 1)
        )
        of_all = {
            "controller.quorum.voters": ",".join(f"{node.number}@{HOST}:{node.ports[1]}" for node in self.brokers),
            **dict.fromkeys(
                (
                    "offsets.topic.replication.factor",
                    "transaction.state.log.replication.factor",
                    "share.coordinator.state.topic.replication.factor",
                ),
                str(brokers),
            ),
        }
        for node in self.brokers:
            node.cluster_id = self.cluster_id
            doors = {"PLAINTEXT": node.ports[0], **(listeners or {})}
            addresses = ",".join(f"{door}://{HOST}:{port}" for door, port in doors.items())
            own = {
                "listeners": f"{addresses},CONTROLLER://{HOST}:{node.ports[1]}",
                "advertised.listeners": addresses,
            }
            node.properties = {**of_all, **own, **(properties or {})}

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start it and wait until it answers. A second start continues with the first one's data."""
        start_all([self])
        return self

    def stop(self) -> None:
        """Stop it in an orderly way: everything is flushed."""
        for broker in self.brokers:
            broker.stop()

    def kill(self) -> None:
        """Kill it with SIGKILL, as a power failure would."""
        for broker in self.brokers:
            broker.kill()

    def restart(self) -> Self:
        """Start it again on the same ports with the same data; stop it first if it is running."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open, requests get no answer."""
        for broker in self.brokers:
            broker.pause()

    def resume(self) -> None:
        for broker in self.brokers:
            broker.resume()

    def broker(self, number: int) -> Node:
        """One broker, to stop, kill or freeze on its own."""
        return self.brokers[number - 1]

    def restart_broker(self, number: int) -> None:
        """Restart one broker and wait until it has rejoined the others."""
        self.broker(number).stop()
        self.forget_admin()  # a client that saw the last broker die backs off for longer and longer
        self.broker(number).launch()
        self.wait_for_broker(number)

    def wait_for_broker(self, number: int) -> None:
        """Wait until a launched broker answers and is registered with the controller."""
        self.broker(number).wait_ready()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def running(self) -> bool:
        return any(broker.running for broker in self.brokers)

    @property
    def pid(self) -> int:
        """The process id of the first broker."""
        return self.brokers[0].process.pid

    @property
    def log(self) -> Path:
        return self.brokers[0].log

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.forget_admin()  # it would go on calling
        self.kill()  # no data here is worth an orderly stop, which is slow with many logs or brokers

    def wait_until(self, condition: Callable[[], T | None], timeout: float, what: str) -> T:
        """Fails at once if every broker has died."""
        living = next((broker for broker in self.brokers if broker.running), self.brokers[0])
        return living.wait_until(condition, timeout, what)


def start_all(clusters: Sequence[KafkaCluster]) -> None:
    """Start clusters in parallel. If one fails, all that this call started are killed, and its error is raised."""
    with ExitStack() as on_failure:
        nodes = [node for cluster in clusters for node in cluster.brokers]
        for cluster in clusters:
            cluster.forget_admin()
        for node in nodes:
            on_failure.callback(node.kill)
            node.launch()
        for node in nodes:
            node.wait_ready()
            node.forget_admin()  # it would go on calling
        on_failure.pop_all()


def commit_group(cluster: ClusterInUse, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit a group's offsets, as a job that reports its progress to Kafka does."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

    partitions = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    (future,) = cluster.admin().alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)]).values()
    for written in future.result(timeout=30).topic_partitions:
        if written.error is not None:
            raise KafkaException(written.error)


class MirrorMaker(mirror.MirrorMaker):
    """A mirror that ends with its ``with`` block."""

    def __init__(
        self,
        source: ClusterInUse,
        target: ClusterInUse,
        topics: Sequence[str],
        directory: Path,
        jars: Path,
        *,
        policy: Policy = "default",
        connect: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        own = {**(_IDENTITY if policy == "identity" else {}), **(properties or {})}
        super().__init__(source, target, topics, directory, jars, connect=connect, properties=own)
        self.policy = policy

    def start(self) -> Self:
        return started(super().start)

    def target_topic(self, topic: str) -> str:
        return topic if self.policy == "identity" else super().target_topic(topic)

    def stop(self) -> None:
        """Stop it in an orderly way: it commits its position, and sends nothing twice after a restart."""
        if self._process is not None:
            self._process.stop()

    def __enter__(self) -> Self:
        return self if self._process is not None and self._process.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
