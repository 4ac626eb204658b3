"""Records for topics, and a cluster with clients of its own for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BASE_MS = 1_780_000_000_000
"""The first test record's timestamp."""


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

    def send(self, topic: str, records: Sequence[Sent], *, transaction: str | None = None, abort: bool = False) -> None:
        """Produce, in one transaction if it has a name (which leaves a marker behind in each partition)."""
        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 5}
        producer = Producer({**settings, "transactional.id": transaction} if transaction else settings)
        if transaction:
            producer.init_transactions(30)
            producer.begin_transaction()
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            failed.extend([error] if error is not None else [])

        for r in records:
            how = {"timestamp": r.timestamp_ms, "headers": list(r.headers), "on_delivery": delivered}
            producer.produce(topic, r.value, r.key, r.partition, **how)
        assert producer.flush(30) == 0
        assert not failed, failed
        if transaction and abort:
            producer.abort_transaction(30)
        elif transaction:
            producer.commit_transaction(30)

    def end(self, topic: str, partition: int) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "tests-never-commit"})
        end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
        consumer.close()
        assert end != OFFSET_INVALID
        return end

    def cluster_id(self) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return str(admin.list_topics(timeout=30).cluster_id)
