"""Kafka clusters (KRaft) of one or several brokers on this machine, for the demo and the tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

from reconciler.core.errors import ConfigError, Unreachable
from reconciler.lab.broker import HOST, START_SECONDS, Broker, finish_format
from reconciler.lab.broker import new_id as new_cluster_id
from reconciler.lab.in_use import ClusterInUse, admin_client
from reconciler.lab.ports import free_ports
from reconciler.lab.processes import Child

T = TypeVar("T")
PORT_ATTEMPTS = 3


class KafkaCluster(ClusterInUse):
    """Brokers that are also controllers, each a process with its own ports, with their data below ``directory``.

    Records stay until they are deleted: without retention, back-dated records stay too. ``properties`` override or add
    broker settings. ``listeners``: more listeners beside the plaintext one, as names and ports (their protocols come
    from ``listener.security.protocol.map``). ``brokers``: their number, counted from 1; leaders stay in place until one
    dies. ``jvm``: options, as those of ``java_command``. ``detached``: the cluster outlives this process, and leaving
    the ``with`` block does not stop it.
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
        detached: bool = False,
    ) -> None:
        if brokers > 1 and listeners:
            raise ConfigError("Several brokers cannot share the ports of one list of listeners.")
        super().__init__(name)
        self.directory = directory.absolute()
        self.cluster_id = new_cluster_id()
        self.jars = jars
        self.brokers = tuple(
            Broker(f"{name}-{number}", number, self.directory / f"broker-{number}", jars)
            if brokers > 1
            else Broker(name, number, self.directory, jars)
            for number in range(1, brokers + 1)
        )
        self._properties = dict(properties or {})
        self._listeners = dict(listeners or {})
        self._heap = heap
        self._jvm = jvm
        self._detached = detached

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

    def broker(self, number: int) -> Broker:
        """One broker, to stop, kill or freeze on its own."""
        return self.brokers[number - 1]

    def restart_broker(self, number: int) -> None:
        """Restart one broker and wait until it has rejoined the others."""
        self.broker(number).stop()
        self._launch(self.broker(number))
        self.wait_for_broker(number)

    def wait_for_broker(self, number: int) -> None:
        """Wait until a launched broker answers and is registered with the controller."""
        broker = self.broker(number)
        broker.process.wait_until(lambda: self._answers(broker), START_SECONDS, "its first answer")

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

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
        if self._detached:
            return
        self.forget_admin()  # it would go on calling
        self.kill()  # no data here is worth an orderly stop, which is slow with many logs or brokers

    # ------------------------------------------------------------ waiting

    def wait_until(self, condition: Callable[[], T | None], timeout: float, what: str) -> T:
        """Fails at once if the process has died."""
        return self._running().wait_until(condition, timeout, what)

    def _running(self) -> Child:
        """The process whose death ends a wait: that of a running broker, if there is one."""
        return next((broker.process for broker in self.brokers if broker.running), self.brokers[0].process)

    # ------------------------------------------------------------ starting

    def _launch_format(self) -> list[Child]:
        """Assign ports to every broker, and start formatting the unformatted data directories."""
        self._take_ports()
        formatting = []
        for broker in self.brokers:
            if not broker.is_formatted:
                broker.directory.mkdir(parents=True, exist_ok=True)
                child = broker.launch_format(self.cluster_id, self._settings(broker))
                formatting += [child] if child is not None else []
        return formatting

    def _take_ports(self) -> None:
        taken = {port for broker in self.brokers for port in broker.ports or ()}
        for broker in self.brokers:
            while broker.ports is None:
                offered = _free_ports()
                if not taken.intersection(offered):
                    broker.ports = offered
                    taken.update(offered)

    def _launch(self, broker: Broker) -> None:
        self.forget_admin()  # a client that saw the last broker die backs off for longer and longer
        settings = self._settings(broker)
        broker.launch(settings, heap=self._heap, jvm=self._jvm, detached=self._detached)

    def _launch_brokers(self) -> None:
        for broker in self.brokers:
            self._launch(broker)

    def _wait_ready(self) -> None:
        """Wait until every broker answers with this cluster's metadata. Take other ports if one was taken."""
        for attempts_left in reversed(range(PORT_ATTEMPTS)):
            try:
                for broker in self.brokers:
                    self.wait_for_broker(broker.number)
                return
            except Unreachable:
                self.kill()
                # A second start must keep its address: clients and the other cluster know it.
                if not (self.port_was_taken() and attempts_left and self._first_start):
                    raise
                self._start_over()

    def port_was_taken(self) -> bool:
        """True if a broker's log shows that another process had one of its ports."""
        return any(broker.port_was_taken() for broker in self.brokers)

    @property
    def _first_start(self) -> bool:
        return not all(broker.answered.exists() for broker in self.brokers)

    def _start_over(self) -> None:
        for broker in self.brokers:
            broker.forget()
        for formatting in self._launch_format():
            finish_format(formatting)
        self._launch_brokers()

    def _answers(self, broker: Broker) -> bool:
        from confluent_kafka import KafkaException

        # Another broker may still list one that has just died: only its own answer counts.
        admin = self.admin() if len(self.brokers) == 1 else admin_client(broker.address)
        try:
            described = admin.list_topics(timeout=2)
        except KafkaException:
            return False
        if described.cluster_id != self.cluster_id:
            return False  # another broker has taken the port: ours is about to fail
        ready = broker.number in described.brokers
        if ready:
            broker.answered.touch()
        return ready

    def _settings(self, broker: Broker) -> dict[str, str]:
        listeners = {"PLAINTEXT": broker.known_ports[0], **self._listeners}
        addresses = ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items())
        count = str(len(self.brokers))
        return {
            "process.roles": "broker,controller",
            "node.id": str(broker.number),
            "listeners": f"{addresses},CONTROLLER://{broker.controller}",
            "advertised.listeners": addresses,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{each.number}@{each.controller}" for each in self.brokers),
            "log.dirs": str(broker.data),
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
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": count,
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": count,
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": count,
            "share.coordinator.state.topic.min.isr": "1",
            # The default buffer of 128 MiB would be allocated at the start.
            "log.cleaner.dedupe.buffer.size": "2097152",
            **self._properties,
        }


def start_all(clusters: Sequence[KafkaCluster]) -> None:
    """Start clusters in parallel. If one fails, all that this call started are killed, and its error is raised."""
    with contextlib.ExitStack() as on_failure:
        formatting = [child for cluster in clusters for child in cluster._launch_format()]
        for child in formatting:
            on_failure.callback(child.kill)
        for child in formatting:
            finish_format(child)
        for cluster in clusters:
            on_failure.callback(cluster.kill)
            cluster._launch_brokers()
        for cluster in clusters:
            cluster._wait_ready()
        on_failure.pop_all()


def _free_ports() -> tuple[int, int]:
    """A port for clients and a port for the other controllers."""
    clients, controllers = free_ports(2)
    return clients, controllers
