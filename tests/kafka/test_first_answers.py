"""When a read is answered: late by a busy cluster, whose silence says nothing about the size of a fetch; and at once by
topics that the client has not read before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import count
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer

from reconciler.kafka import reader as module
from reconciler.kafka.connection import Connection
from reconciler.kafka.reader import FETCH_BYTES, KafkaLogReader
from reconciler.kafka.waiting import STALL_S
from reconciler.ports import ReadRequest
from tests.kafka.mock_cluster import OTHERS, PLACE, mock_cluster


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with mock_cluster() as address:
        yield address


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The fetch sizes that were tried. Each look at the reader's clock finds it later than a stall may last."""
    tried: list[int] = []
    consumer_of = Connection.consumer

    def consumer(self: Connection, properties: Mapping[str, Any]) -> Consumer:
        tried.append(properties["max.partition.fetch.bytes"])
        return consumer_of(self, properties)

    monkeypatch.setattr(Connection, "consumer", consumer)
    monkeypatch.setattr(module, "monotonic", count(step=2 * STALL_S).__next__)
    return tried


def test_a_broker_that_answers_late_is_read_with_one_client(bootstrap: str, sizes: list[int]) -> None:
    """A far broker needs longer than a stall for its connection alone."""
    with closing(KafkaLogReader({"bootstrap.servers": bootstrap, "log_level": 0}, timeout_s=100_000)) as reader:
        (chunk,) = reader.read([ReadRequest(PLACE, 3, 1)])
    assert [record.value for record in chunk.records] == [b"value 3"]
    assert sizes == [FETCH_BYTES[1]]


def test_further_topics_are_read_without_waiting_for_the_clients_timer(bootstrap: str) -> None:
    """By itself the client looks for their leaders once a second, so each of these reads took that second."""
    took_s = []
    with closing(KafkaLogReader({"bootstrap.servers": bootstrap, "log_level": 0})) as reader:
        for place in (PLACE, *OTHERS):
            began = monotonic()
            (chunk,) = reader.read([ReadRequest(place, 3, 1)])
            took_s.append(monotonic() - began)
            assert [record.value for record in chunk.records] == [b"value 3"]
    assert min(took_s[1:]) < STALL_S
