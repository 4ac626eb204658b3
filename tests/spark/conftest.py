"""One small SparkSession for all tests here, and what they need of Kafka beyond it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BASE_MS = 1_780_000_000_000
"""The first test record's timestamp."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    from reconciler.spark.connector import with_kafka

    builder = SparkSession.builder.master("local[2]").appName("reconciler-tests")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(key, value)
    session = with_kafka(builder, print).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@dataclass(frozen=True)
class Sent:
    """A record for the producer; ``timestamp_ms`` epoch ms."""

    partition: int = 0
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    timestamp_ms: int = BASE_MS
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Kafka:
    """A cluster as the tests use it, with clients of their own."""

    bootstrap: str

    def create(self, topic: str, partitions: int = 1) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})])[topic].result(30)
        return topic

    def send(self, topic: str, records: Sequence[Sent], *, transaction: str | None = None) -> None:
        """Produce, in one transaction if it has a name (which leaves a marker behind in each partition)."""
        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 5}
        producer = Producer({**settings, "transactional.id": transaction} if transaction else settings)
        if transaction:
            producer.init_transactions(30)
            producer.begin_transaction()
        for r in records:
            producer.produce(topic, r.value, r.key, r.partition, timestamp=r.timestamp_ms, headers=list(r.headers))
        assert producer.flush(30) == 0
        if transaction:
            producer.commit_transaction(30)

    def last_record(self, topic: str, partition: int) -> Any:
        """The last record as another client sees it."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "tests-never-commit",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0)])
        last = None
        while (message := consumer.poll(30)) is not None and message.error() is None:
            last = message
        assert message is not None, "the broker did not answer in 30 s"
        consumer.close()
        return last

    def end(self, topic: str, partition: int) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "tests-never-commit"})
        end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
        consumer.close()
        assert end != OFFSET_INVALID
        return end

    def cluster_id(self) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return admin.describe_cluster().result(30).cluster_id


@pytest.fixture
def kafka(clusters: Any) -> Kafka:
    return Kafka(clusters.source.bootstrap)
