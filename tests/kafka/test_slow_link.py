"""Reads over a link on which the answer to an ordinary fetch takes longer than a client waits for one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from reconciler.kafka.bulk.reading import MOST_FAILURES
from reconciler.kafka.reader import KafkaLogReader
from reconciler.ports import ReadRequest, TopicPartition
from reconciler.retry import PatientReader
from tests.demo.lab.faults.slow_link import SlowLink, far_cluster
from tests.kafka.bulk.readers import answered, bulk_reader

pytestmark = [pytest.mark.system, pytest.mark.thorough]  # test_first_answers.py has the rule, in every run

PARTITIONS, BATCH = 8, 400_000
A_SECOND = 1_000_000
TIMEOUT_S = 2.0
"""Less than all batches take together, and more than each of them takes."""


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[SlowLink]:
    """To a cluster with one large batch in each partition of a topic."""
    with far_cluster(tmp_path_factory.mktemp("far"), kafka_jars) as (cluster, link):
        cluster.create_topic("events", PARTITIONS)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for number in range(PARTITIONS):
            producer.produce("events", random.Random(number).randbytes(BATCH), partition=number)
        assert producer.flush(30) == 0
        yield link


def test_a_read_asks_for_smaller_answers_where_none_comes_in_time(link: SlowLink) -> None:
    requests = [ReadRequest(TopicPartition("events", number), 0, 10) for number in range(PARTITIONS)]
    with closing(KafkaLogReader({"bootstrap.servers": link.address}, timeout_s=TIMEOUT_S)) as reader:
        assert len(reader.log_ends([each.partition for each in requests])) == PARTITIONS
        link.bytes_a_second, before = A_SECOND, link.delivered
        chunks = PatientReader(reader, time.monotonic, deadline_s=60).read(requests)
    assert [len(chunk.records[0].value or b"") for chunk in chunks] == [BATCH] * PARTITIONS
    assert link.delivered - before < 2.5 * PARTITIONS * BATCH, "what has come is not thrown away again and again"


def test_reads_in_bulk_end_with_the_first_that_no_answer_comes_to_in_time(link: SlowLink) -> None:
    requests = [ReadRequest(TopicPartition("events", number), 0, 10) for number in range(PARTITIONS)]
    link.bytes_a_second = A_SECOND
    with closing(bulk_reader({"bootstrap.servers": link.address}, timeout_s=TIMEOUT_S)) as reader:
        assert len(answered(reader, requests)) < PARTITIONS
        assert reader._failures == MOST_FAILURES
        assert answered(reader, requests) == {}
