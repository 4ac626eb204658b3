"""A record that its producer gave no time has none: Kafka stores it as -1, which is before every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import Producer

from reconciler.kafka.apart import open_log
from reconciler.kafka.reader import KafkaLogReader
from reconciler.ports import ReadRequest, TopicPartition

DATED_MS = 1_700_000_000_000
OPENED = pytest.mark.parametrize(
    "opened", [KafkaLogReader, partial(open_log, memory=128 * 1024 * 1024)], ids=["here", "apart"]
)


def times(opened: Callable[[dict[str, object]], KafkaLogReader], bootstrap: str, topic: str) -> list[int | None]:
    """Of an undated and a dated record that are written here."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(topic, b"undated", partition=0, timestamp=-1)
    producer.produce(topic, b"dated", partition=0, timestamp=DATED_MS)
    assert producer.flush(30) == 0
    with closing(opened({"bootstrap.servers": bootstrap, "log_level": 0})) as log:
        (chunk,) = log.read([ReadRequest(TopicPartition(topic, 0), 0, 2)])
    return [record.timestamp_ms for record in chunk.records]


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """The client library's own cluster for tests."""
    cluster = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del cluster


@OPENED
def test_a_record_without_a_time_has_none(
    opened: Callable[[dict[str, object]], KafkaLogReader], bootstrap: str
) -> None:
    assert times(opened, bootstrap, "events") == [None, DATED_MS]


@pytest.mark.system
@OPENED
def test_a_record_without_a_time_has_none_on_a_broker(
    opened: Callable[[dict[str, object]], KafkaLogReader], clusters, topic_name: str
) -> None:
    clusters.destination.create_topic(topic_name)
    assert times(opened, clusters.destination.bootstrap, topic_name) == [None, DATED_MS]
