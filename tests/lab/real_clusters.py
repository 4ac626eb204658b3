"""The tests' pair of clusters, on processes of this machine or in containers: with the same interface.

RECONCILER_TEST_SERVERS says which: ``processes``, ``containers``, or ``auto`` (the default): containers where a Docker
daemon answers and has the image or can build it, else processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from reconciler.core.errors import ConfigError
from reconciler.lab.in_use import ClusterInUse

VARIABLE = "RECONCILER_TEST_SERVERS"
Begin = Callable[[str], AbstractContextManager[Any]]
"""A cluster of a name; it is started when the context is entered, and gone when it is left."""


class Clusters:
    """A source and a destination, each started once, when first asked for."""

    def __init__(self, begin: Begin, until_the_end: ExitStack) -> None:
        self._begin = begin
        self._until_the_end = until_the_end
        self._started: dict[str, Any] = {}

    @property
    def source(self) -> Any:
        """The cluster whose alias is ``a``."""
        return self._get("a")

    @property
    def destination(self) -> Any:
        """The cluster whose alias is ``b``."""
        return self._get("b")

    def _get(self, name: str) -> Any:
        if name not in self._started:
            self._started[name] = self._until_the_end.enter_context(self._begin(name))
            await_coordinator(self._started[name])
        return self._started[name]


def processes(directory: Path, jars: Path) -> Begin:
    from reconciler.lab.kafka import KafkaCluster

    return lambda name: KafkaCluster(name, directory / name, jars)


def in_containers(image: str) -> Begin:
    from tests.lab.containers import ContainerCluster

    return lambda name: ContainerCluster(name, image)


def chosen(jars: Callable[[], Path], directory: Callable[[], Path]) -> Begin:
    """The kind of servers that the environment requests. Raises ConfigError if it is not possible."""
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in ("processes", "containers", "auto"):
        raise ConfigError(f"{VARIABLE} is {wanted!r}.", hint="It may be processes, containers or auto.")
    if wanted != "processes":
        from tests.lab.containers import CannotRun, daemon, kafka_image

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
        retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(60), wait=wait_fixed(0.2), reraise=True
    )
    try:
        retrying(consumer.committed, [TopicPartition("any", 0)], timeout=10)
    finally:
        consumer.close()
