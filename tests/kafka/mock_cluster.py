"""The client library's own cluster for tests, of one broker: seven topics of nine records each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from reconciler.ports import TopicPartition

PLACE = TopicPartition("events", 0)
OTHERS = [TopicPartition(f"events-{number}", 0) for number in range(6)]


@contextmanager
def mock_cluster() -> Iterator[str]:
    """Its address; record N has the value ``value N``."""
    cluster = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=10).brokers.values()
    for number in range(9):
        for place in (PLACE, *OTHERS):
            cluster.produce(place.topic, b"value %d" % number, partition=place.partition)
    assert cluster.flush(10) == 0
    yield f"{broker.host}:{broker.port}"
    del cluster
