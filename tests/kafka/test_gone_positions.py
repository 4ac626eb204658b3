"""A position that is gone is reported for the read that asked for it, and for no other.

The client library may have asked for it twice before it stops, and reports it twice: the second time whenever its own
thread comes to it, be it in the middle of the next read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from reconciler.kafka.connection import Connection
from reconciler.kafka.reader import KafkaLogReader
from reconciler.ports import ReadRequest
from tests.kafka.mock_cluster import PLACE, mock_cluster

GONE = 1_000


@pytest.fixture
def client() -> Iterator[dict[str, Any]]:
    with mock_cluster() as bootstrap:
        yield {"bootstrap.servers": bootstrap, "log_level": 0}


class ReportsTwice:
    """A consumer that says of a gone position once more, after the next ``assign``, that it is gone."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._reports: list[Any] = []
        self._late: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def assign(self, places: list[KafkaPartition]) -> None:
        self._reports, self._late = [], self._reports
        self._consumer.assign(places)

    def consume(self, count: int, timeout: float) -> list[Any]:
        late, self._late = self._late, []
        messages = self._consumer.consume(count, timeout)
        self._reports += [each for each in messages if each.error() is not None and is_gone(each)]
        return late + messages


def is_gone(message: Any) -> bool:
    return bool(message.error().code() == KafkaError._AUTO_OFFSET_RESET)


def test_the_next_read_is_not_told_that_its_position_is_gone(
    client: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer_of, made = Connection.consumer, []

    def consumer(self: Connection, properties: Mapping[str, Any]) -> ReportsTwice:
        made.append(ReportsTwice(consumer_of(self, properties)))
        return made[-1]

    monkeypatch.setattr(Connection, "consumer", consumer)
    with closing(KafkaLogReader(client)) as reader:
        for offset in (GONE, 3, GONE, GONE + 1, 4):
            (chunk,) = reader.read([ReadRequest(PLACE, offset, 1)])
            assert chunk.out_of_range is (offset >= GONE)
            assert [record.value for record in chunk.records] == ([] if offset >= GONE else [b"value %d" % offset])
    assert len(made) == 4, "a client stops fetching when it reports, also if that is late"
