"""What only a real broker can do: large batches and many partitions. For its log see test_broker_model.py."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from reconciler.kafka.reader import KafkaLogReader
from reconciler.kafka.reading_process import MIB, open_log
from reconciler.ports import ReadRequest, TopicPartition
from tests.demo.lab.kafka import KafkaCluster
from tests.kafka.bulk.readers import answered, bulk_reader

pytestmark = pytest.mark.system

BEGIN = 1_700_000_000_000


def producer_of(cluster: KafkaCluster, **settings: Any) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **settings})


@pytest.fixture
def reader(clusters) -> Iterator[KafkaLogReader]:
    opened = KafkaLogReader({"bootstrap.servers": clusters.destination.bootstrap})
    yield opened
    opened.close()


# ---------------------------------------------------------------- large and many


def test_batches_larger_than_a_fetch_are_read_in_bulk(clusters, topic_name: str) -> None:
    """A broker answers with one of them only, unless it is asked for more. Above 1 MiB they may be left."""
    cluster, sizes = clusters.destination, (10, 100_000, 500_000, 2_000_000)
    cluster.create_topic(topic_name, 12, {"max.message.bytes": "4000000"})
    producer = producer_of(cluster, **{"message.max.bytes": 4_000_000})
    contents = {number: random.Random(number).randbytes(sizes[number % 4]) for number in range(12)}
    for _ in range(2):
        for number, content in contents.items():
            producer.produce(topic_name, content, partition=number)
        assert producer.flush(30) == 0
    requests = [ReadRequest(TopicPartition(topic_name, number), 0, 2) for number in range(12)]
    with closing(bulk_reader({"bootstrap.servers": cluster.bootstrap})) as reader:
        found = answered(reader, requests)
    assert found.keys() >= {number for number in range(12) if sizes[number % 4] < MIB}
    for number, chunk in found.items():
        assert [(record.offset, record.value) for record in chunk.records] == [
            (0, contents[number]),
            (1, contents[number]),
        ]


@pytest.mark.parametrize("partitions", [1, 70])
def test_records_larger_than_a_fetch(clusters, reader: KafkaLogReader, topic_name: str, partitions: int) -> None:
    """Above 64 partitions a fetch begins small: large records must come all the same."""
    cluster = clusters.destination
    cluster.create_topic(topic_name, partitions, {"max.message.bytes": "4000000"})
    producer = producer_of(cluster, **{"message.max.bytes": 4_000_000})
    large = random.Random(7).randbytes(2_000_000)
    producer.produce(topic_name, b"small", partition=0)
    producer.produce(topic_name, large, partition=0)
    for number in range(1, partitions):
        producer.produce(topic_name, b"of %d" % number, partition=number)
    assert producer.flush(30) == 0
    tp = TopicPartition(topic_name, 0)
    others = [TopicPartition(topic_name, number) for number in range(1, partitions)]
    chunks = reader.read([ReadRequest(tp, 1, 10), *(ReadRequest(other, 0, 10) for other in others)])
    assert [record.value for record in chunks[0].records] == [large]
    assert [chunk.records[0].value for chunk in chunks[1:]] == [b"of %d" % other.partition for other in others]
    (first,) = reader.read([ReadRequest(tp, 0, 1)])
    assert [record.value for record in first.records] == [b"small"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_read_inside_a_compressed_batch(clusters, reader: KafkaLogReader, topic_name: str, codec: str) -> None:
    cluster = clusters.destination
    cluster.create_topic(topic_name)
    producer = producer_of(cluster, **{"compression.type": codec, "linger.ms": 500, "batch.num.messages": 5_000})
    for number in range(3_000):
        producer.produce(topic_name, b"%d " % number * 100, timestamp=BEGIN + number)
    assert producer.flush(30) == 0
    tp = TopicPartition(topic_name, 0)
    middle, last = reader.read([ReadRequest(tp, 1_777, 2), ReadRequest(tp, 2_999, 2)])
    assert [record.offset for record in middle.records] == [1_777, 1_778]
    assert middle.next_offset == 1_779
    assert [record.value for record in last.records] == [b"2999 " * 100]
    assert reader.offsets_for_times([(tp, BEGIN + 2_500), (tp, BEGIN + 3_000)]) == [2_500, None]


@pytest.mark.parametrize("opened", [KafkaLogReader, partial(open_log, memory=64 * MIB)], ids=["here", "apart"])
def test_committed_reads_end_at_an_open_transaction(
    clusters, topic_name: str, opened: Callable[[dict[str, str]], KafkaLogReader]
) -> None:
    cluster = clusters.destination
    cluster.create_topic(topic_name)
    producer = producer_of(cluster, **{"transactional.id": topic_name})
    producer.init_transactions(30)
    for number, end in enumerate((producer.abort_transaction, producer.commit_transaction, None)):
        producer.begin_transaction()
        producer.produce(topic_name, b"%d" % number)
        assert producer.flush(30) == 0
        if end is not None:
            end(30)
    tp = TopicPartition(topic_name, 0)
    with closing(opened({"bootstrap.servers": cluster.bootstrap})) as log:
        asked = [ReadRequest(tp, place, 10, committed) for place in (0, 4) for committed in (True, False)]
        chunks = log.read(asked)
    seen = [([record.value for record in chunk.records], chunk.next_offset) for chunk in chunks]
    assert seen == [([b"1"], 4), ([b"0", b"1", b"2"], 5), ([], 4), ([b"2"], 5)]
    producer.abort_transaction(30)


def test_one_call_answers_for_hundreds_of_partitions(clusters, reader: KafkaLogReader, topic_name: str) -> None:
    cluster, count = clusters.destination, 300
    cluster.create_topic(topic_name, count)
    producer = producer_of(cluster)
    for number in range(count):
        if number % 3:
            producer.produce(topic_name, b"of %d" % number, partition=number, timestamp=BEGIN + number)
    assert producer.flush(30) == 0
    places = [TopicPartition(topic_name, number) for number in range(count)]
    wanted = [1 if number % 3 else 0 for number in range(count)]
    assert list(reader.log_ends(places).values()) == wanted
    chunks = reader.read([ReadRequest(tp, 0, 5) for tp in places])
    assert [[record.value for record in chunk.records] for chunk in chunks] == [
        [b"of %d" % number] if number % 3 else [] for number in range(count)
    ]
    lookups = reader.offsets_for_times([(tp, BEGIN + 150) for tp in places])
    assert lookups == [0 if number % 3 and number >= 150 else None for number in range(count)]
