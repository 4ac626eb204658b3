"""A source that is lost while a mirror that was restarted sends records again: what each start would skip.

Two clusters and a MirrorMaker, which delivers everything and syncs a group that has read two fifths. Then it is killed
and started again, and as soon as the group's synced offset lies among the records that were sent again, the source is
lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.clock import clock_ms
from reconciler.core.anchors import StoredOffset
from reconciler.ports import Change, TopicPartition
from reconciler.stores.registry import open_store
from tests.lab.kafka import KafkaCluster, MirrorMaker, commit_group

TOPIC, THERE, GROUP, PARTITIONS = "events", "a.events", "clicks", 2
PATIENCE_S = 90
LINK_WAIT_MS = 25
"""In which 20 records of each partition arrive: it takes the mirror a while to send again what is there."""
SETTINGS = {
    "emit.heartbeats.enabled": "true",
    "b.offset.flush.interval.ms": "600000",  # after a kill it sends everything again
    # A narrow link: one batch of 20 records a fetch, and each fetch waits for more (LINK_WAIT_MS).
    "a.consumer.max.partition.fetch.bytes": "1",
    "a.consumer.fetch.min.bytes": "1000000",
    "a.consumer.fetch.max.wait.ms": str(LINK_WAIT_MS),
    "b.producer.linger.ms": "0",
}

Numbers = Mapping[int, int]
"""The source's offset of each record of a destination's partition, by its place."""


@dataclass(frozen=True)
class Lost:
    """The source is gone. ``stored``: the group's offset at the source; ``synced``: MirrorMaker's, by partition."""

    config: Path
    stored: int
    synced: Mapping[int, int]
    there: Mapping[int, Numbers]

    def skipped(self, starts: Mapping[int, int]) -> int:
        """Records that the group has not read, and does not read from these offsets on."""
        return sum(
            len({each for each in numbers.values() if each >= self.stored} - _from(numbers, starts[partition]))
            for partition, numbers in self.there.items()
        )


def _from(numbers: Numbers, start: int) -> set[int]:
    return {number for at, number in numbers.items() if at >= start}


@contextmanager
def lost_while_sending_again(folder: Path, jars: Path, count: int) -> Iterator[Lost]:
    """``count`` records in each partition."""
    stored = 2 * count // 5
    with KafkaCluster("a", folder / "a", jars) as source, KafkaCluster("b", folder / "b", jars) as destination:
        source.create_topic(TOPIC, PARTITIONS)
        produce(source, count)
        _until(lambda: committed(source, stored), "the group's coordinator")
        mirror = MirrorMaker(source, destination, [TOPIC], folder / "mirror", jars, properties=SETTINGS).start()
        mirror.wait_until_mirrored(TOPIC)
        _until(lambda: len(synced(destination)) == PARTITIONS, "the group's offsets")
        config = configure(folder, destination, stored)
        mirror.kill()
        mirror.start()
        _until(lambda: min(synced(destination).values()) > count, "an offset among the records that were sent again")
        mirror.kill()
        source.kill()
        there = {number: numbers(destination, number) for number in range(PARTITIONS)}
        yield Lost(config, stored, synced(destination), there)


def produce(cluster: KafkaCluster, count: int) -> None:
    """Small batches, each record with its number as its value."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 20, "linger.ms": 5}
    producer = Producer(settings)
    for number in range(count):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"%d" % number, partition=partition)
        producer.poll(0)
        if number % 5_000 == 0:
            producer.flush()
    assert producer.flush(60) == 0


def committed(cluster: KafkaCluster, offset: int) -> bool:
    """Commit this offset in each partition; False if the coordinator is not ready yet."""
    from confluent_kafka import KafkaException

    try:
        commit_group(cluster, GROUP, TOPIC, dict.fromkeys(range(PARTITIONS), offset))
    except KafkaException:
        return False
    return True


def synced(cluster: KafkaCluster) -> dict[int, int]:
    """The offsets that MirrorMaker has synced for the group."""
    return cluster.group_offsets(GROUP, THERE)


def numbers(cluster: KafkaCluster, partition: int) -> dict[int, int]:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as KafkaPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "judge", "enable.partition.eof": True})
    consumer.assign([KafkaPartition(THERE, partition, 0)])
    found: dict[int, int] = {}
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found[message.offset()] = int(message.value())
    consumer.close()
    return found


def configure(folder: Path, destination: KafkaCluster, stored: int) -> Path:
    """A job of the group's that has stored its numbers alone, in a table of its own."""
    address = f"sqlite:///{folder / 'offsets.db'}"
    store = open_store(address, kafka_client={})
    store.create()
    changes = [Change(TopicPartition(TOPIC, number), None, StoredOffset(stored)) for number in range(PARTITIONS)]
    assert store.write(GROUP, changes, reason="test", now_ms=clock_ms()).written
    store.close()
    path = folder / "reconciler.toml"
    path.write_text(
        f'[source]\nalias = "a"\n[destination]\nbootstrap_servers = "{destination.bootstrap}"\n'
        f'[[jobs]]\nname = "{GROUP}"\ngroup = "{GROUP}"\ntopics = ["{TOPIC}"]\nstore = "{address}"\n'
    )
    return path


def _until(arrived: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not arrived():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)
