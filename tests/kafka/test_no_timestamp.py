"""A record that its producer gave no time has none: Kafka stores it as -1, which is before every time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import Producer

from reconciler.kafka.reader import KafkaLogReader
from reconciler.kafka.reading_process import open_log
from reconciler.ports import ReadRequest, TopicPartition
from tests.kafka.mock_cluster import mock_cluster

DATED_MS = 1_700_000_000_000


@pytest.mark.parametrize("opened", [KafkaLogReader, partial(open_log, memory=128 * 1024 * 1024)], ids=["here", "apart"])
def test_a_record_without_a_time_has_none(opened: Callable[[dict[str, object]], KafkaLogReader]) -> None:
    with mock_cluster() as bootstrap:
        client: dict[str, object] = {"bootstrap.servers": bootstrap, "log_level": 0}
        producer = Producer(client)
        for stamp in (-1, DATED_MS):
            producer.produce("undated", b"value", partition=0, timestamp=stamp)
        assert producer.flush(30) == 0
        with closing(opened(client)) as log:
            (chunk,) = log.read([ReadRequest(TopicPartition("undated", 0), 0, 2)])
    assert [record.timestamp_ms for record in chunk.records] == [None, DATED_MS]
