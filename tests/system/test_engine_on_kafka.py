"""A real broker's log and the one in memory are the same to the engine; and what only a real broker can do."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, Record, StoredOffset, fingerprint
from reconciler.core.errors import Unreachable
from reconciler.core.question import Question
from reconciler.core.reconcile import reconcile
from reconciler.core.verdicts import Verdict
from reconciler.engine import EngineSettings, Inquiry, run
from reconciler.lab.kafka import KafkaCluster
from reconciler.ports import LogReader, ReadRequest, TopicPartition
from reconciler.readers.kafka import KafkaLogReader
from reconciler.readers.memory import MemoryLog

pytestmark = pytest.mark.system

BEGIN = 1_700_000_000_000
ONE_SEGMENT = {"segment.ms": "10000000000000"}
"""A marker is dated now; behind back-dated records that would begin a new segment (``segment.ms`` is a week)."""


def producer_of(cluster: KafkaCluster, **settings: Any) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **settings})


@pytest.fixture
def reader(clusters) -> Iterator[KafkaLogReader]:
    opened = KafkaLogReader({"bootstrap.servers": clusters.destination.bootstrap})
    yield opened
    opened.close()


def told(record: Record) -> tuple[object, ...]:
    """A record with all that a search may look at."""
    headers = tuple(record.headers)
    return record.offset, record.timestamp_ms, record.append_time, record.key, record.value, headers


def read_all(log: LogReader, tp: TopicPartition, offset: int, most: int = 1_000) -> list[tuple[object, ...]]:
    """Everything from ``offset`` on; a reader may answer in several chunks."""
    (end,) = log.log_ends([tp]).values()
    found: list[tuple[object, ...]] = []
    while offset < end:
        (chunk,) = log.read([ReadRequest(tp, offset, most)])
        assert not chunk.out_of_range
        assert chunk.next_offset > offset
        found += [told(record) for record in chunk.records]
        offset = chunk.next_offset
    return found


# ---------------------------------------------------------------- the same content on both


class Twin:
    """Writes the same records to a topic of a cluster and to memory."""

    def __init__(self, cluster: KafkaCluster, topic: str, partitions: int) -> None:
        self.cluster = cluster
        self.topic = topic
        cluster.create_topic(topic, partitions, ONE_SEGMENT)
        self.memory = MemoryLog(cluster.cluster_id, {topic: partitions})
        self._plain = producer_of(cluster, **{"linger.ms": 5})
        self._transactional = producer_of(cluster, **{"transactional.id": topic})
        self._transactional.init_transactions(30)

    def write(self, partition: int, rng: random.Random, count: int, *, ends: str) -> None:
        """``count`` records; ``ends`` is plain, commit or abort. Only a marker's time is not known before."""
        producer = self._plain if ends == "plain" else self._transactional
        if ends != "plain":
            producer.begin_transaction()
        log = self.memory.partition(self.topic, partition)
        for _ in range(count):
            stamp = BEGIN + rng.randrange(0, 40) * 1_000
            key = rng.choice((None, b"", b"key %d" % rng.randrange(9)))
            value = rng.choice((None, b"", rng.randbytes(rng.randrange(1, 300))))
            headers = [("id", rng.randbytes(4)), ("none", None), ("id", b"")][: rng.randrange(4)]
            producer.produce(self.topic, value, key, partition=partition, timestamp=stamp, headers=headers)
            log.append(stamp, key, value, tuple(headers))
        if ends == "plain":
            assert producer.flush(30) == 0
            return
        producer.flush(30)
        if ends == "commit":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        log.append_marker(NOW_OR_LATER)
        # The coordinator answers before it writes the marker: other records could still get in front of it.
        deadline = time.monotonic() + 30
        while self.cluster.end_offsets(self.topic)[partition] < log.end:
            assert time.monotonic() < deadline, "the marker did not come"

    def delete(self, partition: int, before: int) -> None:
        self.cluster.delete_records(self.topic, partition, before)
        self.memory.partition(self.topic, partition).delete_before(before)

    def places(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in range(len(self.memory.partitions))]


NOW_OR_LATER = BEGIN + 10**10
"""A marker's time in memory: later than every record, as on the broker, and than every time asked."""


@pytest.fixture(scope="module")
def twin(clusters) -> Twin:
    """Plain batches, transactions, aborted ones, ties, disorder, deleted prefixes; one emptied, one always empty."""
    rng = random.Random(20260101)
    made = Twin(clusters.destination, f"twin-{time.monotonic_ns()}", 5)
    for partition in range(4):
        for _ in range(7):
            made.write(partition, rng, rng.randrange(1, 9), ends=rng.choice(("plain", "commit", "abort")))
    made.delete(1, 6)
    made.delete(2, made.memory.partition(made.topic, 2).end // 2)
    made.delete(3, made.memory.partition(made.topic, 3).end)
    return made


def test_edges_are_the_same(twin: Twin, reader: KafkaLogReader) -> None:
    places = twin.places()
    assert reader.log_starts(places) == twin.memory.log_starts(places)
    assert reader.log_ends(places) == twin.memory.log_ends(places)
    described = reader.describe([twin.topic, "no-such-topic"])
    assert described.cluster_id == twin.cluster.cluster_id
    assert described.topics.keys() == {twin.topic}
    assert described.topics[twin.topic].partitions == (0, 1, 2, 3, 4)
    assert described.topics[twin.topic].topic_id


def test_time_lookups_are_the_same(twin: Twin, reader: KafkaLogReader) -> None:
    times = [0, BEGIN - 1, *(BEGIN + 500 * step for step in range(82)), BEGIN + 10**7]
    asked = [(tp, stamp) for tp in twin.places() for stamp in times]
    there, here = reader.offsets_for_times(asked), twin.memory.offsets_for_times(asked)
    wrong = [(*question, a, b) for question, a, b in zip(asked, there, here, strict=True) if a != b]
    assert wrong == []
    assert len(set(there)) >= 8


def test_lookups_equal_the_admin_clients(twin: Twin, reader: KafkaLogReader) -> None:
    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import OffsetSpec

    def admin(spec: Any) -> list[int]:
        asked = {KafkaPartition(tp.topic, tp.partition): spec for tp in twin.places()}
        answers = twin.cluster.admin().list_offsets(asked, request_timeout=10)
        found = {tp.partition: answer.result(10).offset for tp, answer in answers.items()}
        return [found[number] for number in range(len(asked))]

    places = twin.places()
    assert list(reader.log_starts(places).values()) == admin(OffsetSpec.earliest())
    assert list(reader.log_ends(places).values()) == admin(OffsetSpec.latest())
    for stamp in (BEGIN, BEGIN + 20_000, BEGIN + 39_000):
        found = reader.offsets_for_times([(tp, stamp) for tp in places])
        assert [-1 if offset is None else offset for offset in found] == admin(OffsetSpec.for_timestamp(stamp))


@pytest.mark.parametrize("partition", range(5))
def test_reads_at_every_offset_are_the_same(twin: Twin, reader: KafkaLogReader, partition: int) -> None:
    tp = TopicPartition(twin.topic, partition)
    log = twin.memory.partition(twin.topic, partition)
    offsets = range(log.start, log.end)
    first = reader.read([ReadRequest(tp, offset, 3) for offset in offsets])
    for offset, chunk in zip(offsets, first, strict=True):
        wanted = [told(record) for record in log.read(offset, 3).records]
        assert [told(record) for record in chunk.records] == wanted[: len(chunk.records)]
        assert bool(chunk.records) == bool(wanted)
        assert chunk.next_offset > offset
    assert read_all(reader, tp, log.start) == read_all(twin.memory, tp, log.start)


@pytest.mark.parametrize("partition", range(5))
def test_outside_of_the_log_is_out_of_range_and_its_end_is_empty(
    twin: Twin, reader: KafkaLogReader, partition: int
) -> None:
    tp = TopicPartition(twin.topic, partition)
    log = twin.memory.partition(twin.topic, partition)
    outside = [offset for offset in (log.start - 1, log.end + 1, log.end + 1_000) if offset >= 0]
    chunks = reader.read([ReadRequest(tp, offset, 5) for offset in outside])
    assert [(chunk.out_of_range, list(chunk.records)) for chunk in chunks] == [(True, [])] * len(outside)
    (at_end,) = reader.read([ReadRequest(tp, log.end, 5)])
    assert (at_end.out_of_range, list(at_end.records), at_end.next_offset) == (False, [], log.end)


def test_findings_are_the_same(twin: Twin, reader: KafkaLogReader) -> None:
    inquiries = {}
    for tp in twin.places():
        for record in twin.memory.partitions[tp].records:
            digest = fingerprint(record.key, record.value)
            anchor = Anchor(record.offset + 900, record.timestamp_ms, None, digest, "a")
            question = Question(StoredOffset(record.offset + 901, anchor), twin.cluster.cluster_id, None)
            inquiries[tp, record.offset] = Inquiry(tp, lambda question=question: reconcile(question))
    there = run(reader, inquiries, clock=time.monotonic)
    here = run(twin.memory, inquiries, clock=time.monotonic)
    assert len(inquiries) > 60
    assert {key: found.finding for key, found in there.found.items()} == {
        key: found.finding for key, found in here.found.items()
    }


# ---------------------------------------------------------------- large and many


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
    assert [value for _, _, _, _, value, _ in read_all(reader, tp, 0)] == [b"small", large]


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


def test_hundreds_of_partitions_in_one_call(clusters, reader: KafkaLogReader, topic_name: str) -> None:
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


def test_a_topic_whose_broker_stamps_records_says_so(clusters, reader: KafkaLogReader, topic_name: str) -> None:
    cluster = clusters.destination
    cluster.create_topic(topic_name, 1, {"message.timestamp.type": "LogAppendTime"})
    producer = producer_of(cluster)
    producer.produce(topic_name, b"v", timestamp=BEGIN)
    assert producer.flush(30) == 0
    (chunk,) = reader.read([ReadRequest(TopicPartition(topic_name, 0), 0, 1)])
    assert chunk.records[0].append_time
    assert (chunk.records[0].timestamp_ms or 0) > BEGIN


# ---------------------------------------------------------------- a broker that goes away


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[KafkaCluster]:
    """A cluster of this file's own, with 40 partitions of 30 records: it is killed and frozen here."""
    with KafkaCluster("mortal", tmp_path_factory.mktemp("mortal"), kafka_jars) as cluster:
        cluster.create_topic("a.events", 40)
        producer = producer_of(cluster)
        for partition in range(40):
            for number in range(30):
                stamp = BEGIN + number * 1_000
                producer.produce("a.events", value_of(partition, number), b"k", partition=partition, timestamp=stamp)
        assert producer.flush(30) == 0
        yield cluster


def value_of(partition: int, number: int) -> bytes:
    return b"record %d of %d" % (number, partition)


def questions(cluster: KafkaCluster) -> dict[int, Inquiry]:
    """Partition p's last processed record is number p % 20, far away in the source's numbering."""
    inquiries = {}
    for partition in range(40):
        number = partition % 20
        digest = fingerprint(b"k", value_of(partition, number))
        anchor = Anchor(7_000 + number, BEGIN + number * 1_000, None, digest, "a")
        question = Question(StoredOffset(7_001 + number, anchor), cluster.cluster_id, None)
        tp = TopicPartition("a.events", partition)
        inquiries[partition] = Inquiry(tp, lambda question=question: reconcile(question))
    return inquiries


def quiet(cluster: KafkaCluster) -> dict[str, str]:
    """Client settings without a line in the test's log for every refused connection."""
    return {"bootstrap.servers": cluster.bootstrap, "log_level": "0"}


class Watched:
    """A reader that lets the test act before its n-th call."""

    def __init__(self, reader: KafkaLogReader, at: int, act: Any) -> None:
        self._reader = reader
        self._left = at
        self._act = act

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._reader, name)

        def call(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._act()
            return real(*arguments)

        return call


@pytest.mark.parametrize("call", [1, 3, 4])
def test_a_run_survives_a_broker_that_is_killed_in_its_middle(mortal: KafkaCluster, call: int) -> None:
    reader = KafkaLogReader(quiet(mortal), timeout_s=3)
    restarting: list[threading.Thread] = []

    def disaster() -> None:
        mortal.kill()
        restarting.append(threading.Thread(target=mortal.restart))
        restarting[0].start()

    try:
        reader.describe(["a.events"])
        reader.log_ends([TopicPartition("a.events", 0)])  # connected, as in the middle of a run
        watched: Any = Watched(reader, call, disaster)
        began = time.monotonic()
        settings = EngineSettings(deadline_s=60)
        outcome = run(watched, questions(mortal), clock=time.monotonic, settings=settings)
        took = time.monotonic() - began
    finally:
        for thread in restarting:
            thread.join()
        reader.close()
    assert restarting
    assert took < 60
    findings = {partition: found.finding for partition, found in outcome.found.items()}
    assert {finding.verdict for finding in findings.values()} == {Verdict.MOVED}
    assert {p: finding.resume_offset for p, finding in findings.items()} == {p: p % 20 + 1 for p in range(40)}


def test_a_broker_that_stays_frozen_past_the_deadline_is_unreachable(mortal: KafkaCluster) -> None:
    reader = KafkaLogReader(quiet(mortal), timeout_s=1)
    try:
        watched: Any = Watched(reader, 3, mortal.pause)
        began = time.monotonic()
        with pytest.raises(Unreachable, match=mortal.bootstrap) as caught:
            run(watched, questions(mortal), clock=time.monotonic, settings=EngineSettings(deadline_s=4))
        took = time.monotonic() - began
    finally:
        mortal.resume()
        reader.close()
    assert caught.value.exit_code == 6
    assert 4 <= took < 20
