"""Reads of many partitions from the client library's own cluster for tests, beside the reference."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer

from reconciler.core.probes import Chunk, Withheld
from reconciler.kafka import worker
from reconciler.kafka.bulk.reading import MOST_FAILURES
from reconciler.kafka.reader import KafkaLogReader
from reconciler.kafka.reading_process import open_log
from reconciler.kafka.sent import unpack
from reconciler.ports import ReadRequest, TopicPartition
from tests.kafka.bombs import MIB, plant
from tests.kafka.bulk.readers import Both, answered, bulk_reader, seen

CODECS = ("none", "gzip", "lz4", "snappy", "zstd")
RANGES = ((0, 100), (5, 10), (39, 7), (40, 5))
"""Offsets and numbers of records, one for each partition of a topic; the log ends at 40."""
REQUESTS = [
    ReadRequest(TopicPartition(f"by-{codec}", number), *of) for codec in CODECS for number, of in enumerate(RANGES)
]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Three brokers with a topic for each codec, four partitions each."""
    cluster = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 3, "log_level": 0})
    broker, *_ = cluster.list_topics(timeout=10).brokers.values()
    address = f"{broker.host}:{broker.port}"
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": address, "log_level": 0, "linger.ms": 50, "compression.type": codec})
        for place in range(4 * 40):
            at, number = place % 40, place // 40
            producer.produce(
                f"by-{codec}",
                None if at % 3 == 0 else b"value %d " % at * 20,
                None if at % 2 else b"key",
                number,
                headers=[("id", b"\0\xff"), ("none", None), ("id", b"")] if at % 5 == 0 else None,
                timestamp=1_700_000_000_000 + at,
            )
            if at == 19:
                producer.flush()
        assert producer.flush(10) == 0
    yield address
    del cluster


def settings(bootstrap: str) -> dict[str, object]:
    return {"bootstrap.servers": bootstrap, "log_level": 0}


def test_what_it_leaves_is_read_by_the_reference(bootstrap: str) -> None:
    unusual = [
        ReadRequest(TopicPartition("by-lz4", 0), 41, 5),  # behind the end
        ReadRequest(TopicPartition("by-lz4", 1), 0, 5, committed=True),
        ReadRequest(TopicPartition("by-lz4", 2), 0, 5),
        ReadRequest(TopicPartition("by-lz4", 2), 7, 5),
    ]
    with closing(Both(settings(bootstrap))) as both, closing(KafkaLogReader(settings(bootstrap))) as other:
        assert [seen(chunk) for chunk in both.read(unusual)] == [seen(chunk) for chunk in other.read(unusual)]
    assert both.in_bulk == unusual[2:]


def test_what_is_expected_is_read_over_the_connections_that_are_there(bootstrap: str) -> None:
    with closing(bulk_reader(settings(bootstrap))) as reader:
        reader.expect([f"by-{codec}" for codec in CODECS])
        before = dict(reader._connections)
        found = answered(reader, REQUESTS)
        assert len(before) == 3
        assert (len(found), reader._connections) == (len(REQUESTS), before)


def test_after_a_failure_to_connect_the_reference_reads_alone() -> None:
    with closing(bulk_reader({"bootstrap.servers": "127.0.0.1:1"})) as reader:
        reader.expect(["events"])
        assert reader._failures == MOST_FAILURES
        assert list(reader.read(REQUESTS)) == []


@dataclass(frozen=True, slots=True)
class Answered:
    """What the reading process answered, and by which readers."""

    chunks: Mapping[int, Chunk]
    in_bulk: bool
    by_reference: bool


def answer_of_the_process(bootstrap: str, *, expected: bool = False) -> Answered:
    orders = {"client": settings(bootstrap), "timeout_s": 20.0, "who": "destination", "memory": 1 << 30}
    places = [(r.partition.topic, r.partition.partition, r.offset, r.max_records, r.committed) for r in REQUESTS]
    here, there = socket.socketpair()
    with here, there:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)  # all of it fits, so nobody needs to read
        readers = worker._Readers(orders)
        if expected:
            assert worker._answer(here, {"expect": [f"by-{codec}" for codec in CODECS]}, orders, readers)
        assert worker._answer(here, {"sparing": False, "places": places, "waited_s": 0.0}, orders, readers)
        found: dict[int, Chunk] = {}
        while (frame := worker.receive(there))[:1] != worker.DONE:
            found |= dict(unpack(frame[1:]))
    for each in readers._made.values():
        each.close()
    bulk = vars(readers).get("in_bulk")
    if bulk is not None:
        bulk.close()
    return Answered(found, bulk is not None, bool(readers._made))


def assert_as_the_reference(bootstrap: str, found: Mapping[int, Chunk]) -> None:
    with closing(KafkaLogReader(settings(bootstrap))) as other:
        read = other.read(REQUESTS)
    assert [seen(found[index]) for index in range(len(REQUESTS))] == [seen(chunk) for chunk in read]
    assert [len(chunk.records) for chunk in read] == [40, 10, 1, 0] * len(CODECS)


@pytest.mark.parametrize(("least", "in_bulk"), [(20, True), (21, False)])
def test_the_reading_process_uses_it_for_many_requests(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, least: int, in_bulk: bool
) -> None:
    monkeypatch.setattr(worker, "IN_BULK", least)
    found = answer_of_the_process(bootstrap)
    assert_as_the_reference(bootstrap, found.chunks)
    assert (found.in_bulk, found.by_reference) == (in_bulk, not in_bulk)


@pytest.mark.parametrize(("least", "by_reference"), [(20, False), (21, True)])
def test_once_it_is_loaded_the_reading_process_uses_it_for_fewer_requests(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, least: int, by_reference: bool
) -> None:
    monkeypatch.setattr(worker, "IN_BULK_ONCE_LOADED", least)
    found = answer_of_the_process(bootstrap, expected=True)
    assert_as_the_reference(bootstrap, found.chunks)
    assert (found.in_bulk, found.by_reference) == (True, by_reference)


def test_the_reading_process_does_without_it_where_its_client_is_not_installed(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "IN_BULK", 1)
    monkeypatch.setitem(sys.modules, "reconciler.kafka.bulk.reading", None)
    found = answer_of_the_process(bootstrap)
    assert_as_the_reference(bootstrap, found.chunks)
    assert (found.in_bulk, found.by_reference) == (False, True)


def test_a_bomb_among_many_partitions_is_withheld_alone() -> None:
    topics = [f"topic-{number}" for number in range(worker.IN_BULK // 4 + 1)]
    cluster = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=10).brokers.values()
    address = f"{broker.host}:{broker.port}"
    places = [TopicPartition(topic, number) for topic in topics for number in range(4)]
    for place in places:
        cluster.produce(place.topic, b"value", partition=place.partition)
    assert cluster.flush(10) == 0
    bombed = TopicPartition(topics[70], 2)
    plant(address, bombed.topic, bombed.partition, "zstd", each_mib=300)
    with closing(open_log(settings(address), memory=128 * MIB)) as reader:
        chunks = dict(zip(places, reader.read([ReadRequest(place, 0, 5) for place in places]), strict=True))
        before = chunks.pop(bombed)
        (behind,) = reader.read([ReadRequest(bombed, 1, 5)])
    assert all([record.value for record in chunk.records] == [b"value"] for chunk in chunks.values())
    assert isinstance(before, Withheld) or before.next_offset == 1
    assert isinstance(behind, Withheld)
    del cluster
