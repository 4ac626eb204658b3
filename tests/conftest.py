"""Real clusters for tests marked ``system``: a pair for the whole run, each started when a test first asks for it.

Nothing of the lab is imported before such a test runs. Where Java or the jars cannot be had these tests are
skipped with the reason; with RECONCILER_REQUIRE_SYSTEM=1 in the environment they fail instead.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from reconciler.core.errors import ConfigError, Unreachable

if TYPE_CHECKING:
    from reconciler.lab.kafka import KafkaCluster


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collecting a file imports it: with ``-m "not system"`` the system tests are not even looked at."""
    left_out = config.option.markexpr.strip() == "not system" and collection_path == Path(__file__).parent / "system"
    return True if left_out else None


def _cannot(reason: str) -> NoReturn:
    if os.environ.get("RECONCILER_REQUIRE_SYSTEM") == "1":
        pytest.fail(f"system tests are required here: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The cached jars of Kafka; fetched when they are not there."""
    from reconciler import artifacts

    try:
        artifacts.java_executable()
        return artifacts.kafka_jars(print)
    except (ConfigError, Unreachable) as error:
        _cannot(str(error))


def _await_coordinator(cluster: KafkaCluster) -> None:
    """The first question about any group makes the offsets' topic; until that is there, nobody is coordinator."""
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


class Clusters:
    """A source and a destination, each started once, when first asked for."""

    def __init__(self, directory: Path, jars: Path, until_the_end: ExitStack) -> None:
        self._directory = directory
        self._jars = jars
        self._until_the_end = until_the_end
        self._started: dict[str, KafkaCluster] = {}

    @property
    def source(self) -> KafkaCluster:
        """The cluster whose alias is ``a``."""
        return self._get("a")

    @property
    def destination(self) -> KafkaCluster:
        """The cluster whose alias is ``b``."""
        return self._get("b")

    def _get(self, name: str) -> KafkaCluster:
        if name not in self._started:
            from reconciler.lab.kafka import KafkaCluster

            cluster = KafkaCluster(name, self._directory / name, self._jars)
            self._started[name] = self._until_the_end.enter_context(cluster)
            _await_coordinator(cluster)
        return self._started[name]


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Clusters]:
    """The run's pair of clusters. Tests share them: use topics and groups of ``topic_name``'s making."""
    with ExitStack() as until_the_end:
        yield Clusters(tmp_path_factory.mktemp("clusters"), kafka_jars, until_the_end)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name no other test has, for a topic or a group, that says which test it belongs to."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{readable}-{uuid.uuid4().hex[:8]}"
