"""MirrorMaker keeps partitions, whatever the destination had before: a job hands over to the record."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.demo.lab.kafka import KafkaCluster, MirrorMaker
from tests.failover.partitions.stopped import Sent, Stopped, broken_promises, somewhere, stopped
from tests.world import BEGIN, World

pytestmark = pytest.mark.system

KEYS = 40


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The topics that real mirroring made, by their source's names."""

    sent: Mapping[str, Sequence[Sent]]
    held: Mapping[str, Sequence[Sent]]


@pytest.fixture(scope="module")
def mirrored(clusters, tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Mirrored:
    """Into a topic with more partitions, which stay empty; into one with fewer, which it adds; and while one grows."""
    source, destination = clusters.source, clusters.destination
    topics = [f"{kind}-{time.time_ns() % 10**9:x}" for kind in ("wide", "narrow", "grown")]
    wide, narrow, grown = topics
    for topic, partitions in ((wide, 2), (narrow, 3), (grown, 2)):
        source.create_topic(topic, partitions)
    destination.create_topic(f"a.{wide}", 4)
    destination.create_topic(f"a.{narrow}", 1)
    quiet = {"emit.checkpoints.enabled": "false", "sync.group.offsets.enabled": "false"}
    folder = tmp_path_factory.mktemp("mirror")
    produce_keyed(source, topics, range(100))
    with MirrorMaker(source, destination, topics, folder, kafka_jars, connect=wide, properties=quiet) as mirror:
        mirror.wait_until_mirrored(grown)
        grow(source, grown, 3)
        produce_keyed(source, topics, range(100, 160))
        for topic in topics:
            mirror.wait_until_mirrored(topic)
    there = {topic: list(read(destination, f"a.{topic}")) for topic in topics}
    assert {record.partition for record in there[grown]} == {0, 1, 2}
    return Mirrored({topic: list(read(source, topic)) for topic in topics}, there)


def produce_keyed(cluster: KafkaCluster, topics: Sequence[str], numbers: range) -> None:
    """By a producer of its own, which knows all partitions there are."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2"})
    for number in numbers:
        for topic in topics:
            at: dict[str, Any] = {"timestamp": BEGIN + 1_000 * (number // 2)}
            producer.produce(topic, b"%d" % number, b"%d" % (number % KEYS), **at)
    assert producer.flush(30) == 0


def grow(cluster: KafkaCluster, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import NewPartitions

    cluster.admin().create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def read(cluster: KafkaCluster, topic: str) -> Iterator[Sent]:
    """All records of a topic, each partition's in order."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as KafkaPartition

    ends = cluster.end_offsets(topic)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([KafkaPartition(topic, partition, 0) for partition in ends])
    for _ in range(sum(ends.values())):
        message = consumer.poll(30)
        assert message is not None, "the log's end did not come"
        assert message.error() is None, message.error()
        place, value = (message.partition(), message.offset()), message.value()
        yield Sent(*place, int(value), message.timestamp()[1], message.key(), value)
    consumer.close()


def checked(world: World, mirrored: Mirrored, topic: str, job: Stopped) -> list[tuple[str, int | None]]:
    """Each row's verdict and exact replay, from a check that has kept its promises, and an apply that lasts."""
    world.address = f"sqlite:///{world.folder / f'{topic}.db'}"
    world.plan_file = world.folder / f"{topic}.plan.json"
    world.save(job.rows, topic=topic)
    names = f'[topics.names.b]\n"{topic}@a" = "a.{topic}"'
    config = world.config(world.job(topic, topic, id="none"), extra=names)
    rows = world.checked(config)
    broken = list(broken_promises(rows, mirrored.held[topic], job))
    assert not broken, broken
    world.plan(config)
    assert world.run("apply", world.plan_file, "-c", config, "--yes").code == 0
    assert world.run("plan", "-c", config, "--to", "b").code == 0
    return [(row["finding"], row["replay"]["exact"]) for row in rows.values()]


def test_mirrormaker_keeps_partitions_whatever_the_destination_had_before(mirrored: Mirrored, world: World) -> None:
    wide, narrow, grown = mirrored.sent
    moved = ("exact", 0)
    jobs = {
        topic: somewhere([record for record in mirrored.sent[topic] if record.number < 90], 1)
        for topic in mirrored.sent
    }
    assert checked(world, mirrored, wide, jobs[wide]) == [moved, moved, ("new", 0), ("new", 0)]
    assert checked(world, mirrored, narrow, jobs[narrow]) == [moved] * 3
    assert checked(world, mirrored, grown, jobs[grown]) == [moved, moved, ("new", 0)]


def test_a_partition_that_the_job_has_not_noticed_yet_is_read_from_its_start(mirrored: Mirrored, world: World) -> None:
    """The topic grew, and the job went on in the partitions it knew: the new one began before its anchors."""
    *_, grown = mirrored.sent
    sizes = Counter(record.partition for record in mirrored.sent[grown])
    job = stopped(mirrored.sent[grown], {number: sizes[number] - 1 for number in (0, 1)})
    checked(world, mirrored, grown, job)
