"""What plans are measured on: records, rows that another cluster numbered, and the configuration of the jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition
from tests.demo.lab.kafka import KafkaCluster

TOPIC, BEGIN_MS, BASE = "events", 1_780_000_000_000, 9_000
BATCH = 20
"""Records a batch: what a producer collects that lingers for a moment."""
PARTITIONS_AT_ONCE, PATIENCE_S = 2_500, 300
SMALL_INDEXES = {"log.index.size.max.bytes": "4096"}
"""A partition takes a file, and two maps of its indexes, each of 10 MiB unless told otherwise."""
LONG = '[search]\ndeadline = "300s"\n'
"""On a busy machine the default of 30 seconds is not enough for 10,000 partitions."""

Content = Callable[[int, int], bytes]
"""A record's value, by its partition and its number."""


def value(partition: int, number: int) -> bytes:
    """Some 90 bytes, nearly all the same."""
    return b"x" * 80 + b"%d-%d" % (partition, number)


def stamp_ms(number: int) -> int:
    return BEGIN_MS + number * 1000


def fill(cluster: KafkaCluster, topic: str, partitions: int, records: int) -> None:
    """``records`` a partition, a second apart."""
    create_topic(cluster, topic, partitions)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50, "batch.num.messages": BATCH})
    for partition in range(partitions):
        for number in range(records):
            produce(producer, topic, partition, number)
        producer.poll(0)
    producer.flush()


def create_topic(cluster: KafkaCluster, topic: str, partitions: int) -> None:
    """A new topic, in steps: a controller refuses to make more than some 10,000 partitions at once."""
    made = min(partitions, PARTITIONS_AT_ONCE)
    cluster.create_topic(topic, made)
    while made < partitions:
        made = min(partitions, made + PARTITIONS_AT_ONCE)
        cluster.admin().create_partitions([NewPartitions(topic, made)])[topic].result()
        cluster.wait_until(lambda: len(cluster.end_offsets(topic)) == made, PATIENCE_S, f"{made} partitions")  # noqa: B023


def produce(producer: Producer, topic: str, partition: int, number: int) -> None:
    content = value(partition, number)
    while True:
        try:
            producer.produce(topic, content, b"k%d" % number, partition=partition, timestamp=stamp_ms(number))
            return
        except BufferError:
            producer.poll(0.1)


def store_rows(place: Path, group: str, topic: str, numbers: Sequence[int], content: Content = value) -> str:
    """Offsets of another cluster, right behind these records of the partitions. Returns the store's address."""
    changes = []
    for partition, number in enumerate(numbers):
        print_of = fingerprint(b"k%d" % number, content(partition, number))
        anchor = Anchor(BASE + number, stamp_ms(number), None, print_of, "another-cluster", "another-topic")
        changes.append(Change(TopicPartition(topic, partition), None, StoredOffset(BASE + number + 1, anchor)))
    store = open_store(f"sqlite:///{place}/offsets.db")
    store.create()
    store.write(group, changes, reason="benchmark", now_ms=0)
    store.close()
    return store.address


def write_config(path: Path, bootstrap: str, jobs: Sequence[str], topic: str, address: str) -> Path:
    tables = "".join(
        f'[[jobs]]\nhome = "a"\nname = "{job}"\ntopics = {json.dumps([topic])}\noffsets = "{address}"\n' for job in jobs
    )
    path.write_text(
        f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "{bootstrap}"\n[topics]\npolicy = "identity"\n{LONG}{tables}'
    )
    return path
