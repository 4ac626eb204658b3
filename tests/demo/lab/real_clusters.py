"""The tests' pair of clusters, on processes of this machine or in containers: with the same interface.

All workers of a run share one pair: to start a broker and let it idle costs more than most tests on it.

RECONCILER_TEST_SERVERS says which: ``processes``, ``containers``, or ``auto`` (the default): containers where a Docker
daemon answers and has the image or can build it, else processes.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from pathlib import Path
from typing import Any, TextIO

from reconciler.core.errors import ConfigError, Unreachable
from reconciler.demo.lab.in_use import ClusterAt, ClusterInUse
from tests.waiting import LIMIT_S

VARIABLE = "RECONCILER_TEST_SERVERS"
Begin = Callable[[str], AbstractContextManager[Any]]
"""A cluster of a name; it is started when the context is entered, and gone when it is left."""


class Clusters:
    """A source and a destination, each started once, when first asked for."""

    def __init__(self, begin: Begin, until_the_end: ExitStack) -> None:
        self._begin = begin
        self._until_the_end = until_the_end
        self._found: dict[str, Any] = {}

    @property
    def source(self) -> Any:
        """The cluster whose alias is ``a``."""
        return self._get("a")

    @property
    def destination(self) -> Any:
        """The cluster whose alias is ``b``."""
        return self._get("b")

    def _get(self, name: str) -> Any:
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Any:
        started = self._until_the_end.enter_context(self._begin(name))
        await_coordinator(started)
        return started


class SharedCluster(ClusterAt):
    """A cluster that other workers use, too: no test can stop or freeze it."""

    def __init__(self, name: str, bootstrap: str, cluster_id: str) -> None:
        super().__init__(name, bootstrap)
        self.cluster_id = cluster_id


class SharedClusters(Clusters):
    """The pair that all workers of a run share: the first that asks for a cluster starts it.

    ``folder`` is the same for all of them. In it are the clusters' addresses; ``one-at-a-time``, which a worker locks
    while it starts a cluster or reads its address; and ``in-use``, on which each has a shared lock from its first use
    of any cluster to its end. Who has started clusters stops them once no other worker has that lock.
    """

    def __init__(self, begin: Begin, folder: Path, until_the_end: ExitStack) -> None:
        super().__init__(begin, ExitStack())  # not in the caller's: before they stop, ``_leave`` waits
        self._folder = folder
        self._in_use: TextIO | None = None
        self._has_started = False
        until_the_end.callback(self._leave)

    def _get(self, name: str) -> Any:
        """Raises Unreachable, rather than leave every test to its own timeout, if the cluster has ended meanwhile."""
        cluster = super()._get(name)
        host, port = cluster.bootstrap.split(",")[0].rsplit(":", 1)
        try:
            socket.create_connection((host, int(port)), LIMIT_S).close()
        except ConnectionRefusedError:
            raise Unreachable(
                f"The shared cluster {name} of this run, at {cluster.bootstrap}, has ended: no test on it can pass.",
                hint="See what a worker was running when it ended, and its log, below the folder of the worker.",
            ) from None
        return cluster

    def _find(self, name: str) -> SharedCluster:
        if self._in_use is None:
            self._in_use = (self._folder / "in-use").open("a")
            flock(self._in_use, LOCK_SH)
        file = self._folder / f"{name}.json"
        with (self._folder / "one-at-a-time").open("a") as alone:
            flock(alone, LOCK_EX)  # until the file is closed
            if not file.exists():
                started = super()._find(name)
                self._has_started = True
                self._until_the_end.callback(file.unlink)  # before it stops: who asks later starts another
                file.write_text(json.dumps({"bootstrap": started.bootstrap, "cluster_id": started.cluster_id}))
            return SharedCluster(name, **json.loads(file.read_text()))

    def _leave(self) -> None:
        for cluster in self._found.values():
            cluster.forget_admin()  # it would go on calling
        if self._in_use is not None:
            with self._in_use as in_use, self._until_the_end:
                flock(in_use, LOCK_UN)  # first of all: the worker that started the other cluster may wait for it
                if self._has_started:
                    flock(in_use, LOCK_EX)


def processes(directory: Path, jars: Path) -> Begin:
    from tests.demo.lab.kafka import KafkaCluster

    return lambda name: KafkaCluster(name, directory / name, jars, heap="512m")


def in_containers(image: str) -> Begin:
    from tests.demo.lab.containers import ContainerCluster

    return lambda name: ContainerCluster(name, image)


def chosen(jars: Callable[[], Path], directory: Callable[[], Path]) -> Begin:
    """The kind of servers that the environment requests. Raises ConfigError if it is not possible."""
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in ("processes", "containers", "auto"):
        raise ConfigError(f"{VARIABLE} is {wanted!r}.", hint="It may be processes, containers or auto.")
    if wanted != "processes":
        from tests.demo.lab.containers import CannotRun, daemon, kafka_image

        try:
            return in_containers(kafka_image(daemon(), jars))
        except CannotRun as reason:
            if wanted == "containers":
                raise ConfigError(f"{VARIABLE} asks for containers, and {reason}.") from reason
            print(f"no containers: {reason}")
    return processes(directory(), jars())


def await_coordinator(cluster: ClusterInUse) -> None:
    """The first request about any group creates the offsets' topic; until it exists there is no coordinator."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition
    from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "first", "log_level": 0})
    retrying = Retrying(
        retry=retry_if_exception_type(KafkaException),
        stop=stop_after_delay(LIMIT_S),
        wait=wait_fixed(0.2),
        reraise=True,
    )
    try:
        retrying(consumer.committed, [TopicPartition("any", 0)], timeout=10)
    finally:
        consumer.close()
