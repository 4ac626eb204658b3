"""Topics whose partition counts changed while records were written, jobs that stopped in them, and what must hold.

A source topic is written by a partitioner, a forwarder writes its records on by the same partitioner to topics with
more and fewer partitions. What a command says is held against all records of the destination, read with a plain client.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from tests.lab.kafka import KafkaCluster
from tests.world import BEGIN, World

SOURCE_ID = "the-source-cluster"
RECORDS = 60
"""A source partition."""
KEYS = 40
NARROWER, WIDER = [(2, 1), (5, 3)], [(1, 3), (2, 3), (4, 6)]
"""Partitions at the source, and at the destination."""
KINDS = ("keyed", "inturn")


# ---------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class Sent:
    """A record as a log holds it; its value is its number among all of its source topic's."""

    partition: int
    offset: int
    number: int
    timestamp_ms: int
    key: bytes | None
    value: bytes


def read(cluster: KafkaCluster, topics: Sequence[str]) -> dict[str, list[Sent]]:
    """All records of whole topics, each partition's in order."""
    found: dict[str, list[Sent]] = {topic: [] for topic in topics}
    for message in consume(cluster, {topic: cluster.end_offsets(topic) for topic in topics}):
        found[message.topic()].append(
            Sent(
                message.partition(),
                message.offset(),
                int(message.value()),
                message.timestamp()[1],
                message.key(),
                message.value(),
            )
        )
    return found


def consume(
    cluster: KafkaCluster,
    ends: Mapping[str, Mapping[int, int]],
    starts: Mapping[str, Mapping[int, int]] | None = None,
) -> Iterator[Any]:
    """The messages of topics up to the given ends, as fetches bring them."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as KafkaPartition

    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    begins = {topic: dict.fromkeys(each, 0) | dict((starts or {}).get(topic, {})) for topic, each in ends.items()}
    left = sum(end - begins[topic][number] for topic, each in ends.items() for number, end in each.items())
    consumer.assign([KafkaPartition(topic, n, at) for topic, each in begins.items() for n, at in each.items()])
    try:
        while left:
            message = consumer.poll(30)
            assert message is not None, "the logs' ends did not come"
            assert message.error() is None, message.error()
            left -= 1
            yield message
    finally:
        consumer.close()


# ---------------------------------------------------------------- topics that were written on by a partitioner


@dataclass(frozen=True, slots=True)
class Route:
    """A source topic, and a destination topic that all of its records were written on to."""

    source: str
    destination: str
    partitions: int
    wanted: int


class Estate:
    """All source topics and all destination topics of this file, written once."""

    def __init__(self, clusters: Any, tag: str) -> None:
        self.source, self.destination = clusters.source, clusters.destination
        self.routes = {
            (kind, partitions, wanted): Route(
                f"{kind}-{partitions}-{tag}", f"{kind}-{partitions}-to-{wanted}-{tag}", partitions, wanted
            )
            for kind in KINDS
            for partitions, wanted in NARROWER + WIDER
        }
        for topic, count in {route.source: route.partitions for route in self.routes.values()}.items():
            self.source.create_topic(topic, count)
        for route in self.routes.values():
            self.destination.create_topic(route.destination, route.wanted, {"segment.ms": "10000000000000"})
        self._write()
        self.sent = read(self.source, sorted({route.source for route in self.routes.values()}))
        self.held = read(self.destination, [route.destination for route in self.routes.values()])

    def _write(self) -> None:
        """Produce and forward in turns, the forwarder now and then some turns behind."""
        rng = random.Random(1)
        sizes = {route.source: route.partitions for route in self.routes.values()}
        here = {kind: Partitioner(self.source, kind) for kind in KINDS}
        there = {kind: Partitioner(self.destination, kind) for kind in KINDS}
        left = {topic: RECORDS * size for topic, size in sizes.items()}
        times = dict.fromkeys(sizes, BEGIN)
        done: dict[str, dict[int, int]] = {topic: {} for topic in sizes}
        while any(left.values()):
            for topic, size in sizes.items():
                for _ in range(min(left[topic], rng.randint(1, 12 * size))):
                    times[topic] += 1_000 * rng.choice((0, 1, 2))
                    number, key = RECORDS * size - left[topic], b"%d" % rng.randrange(KEYS)
                    here[kind_of(topic)].produce(topic, size, number, times[topic], key)
                    left[topic] -= 1
            for each in here.values():
                each.flush()
            if rng.random() < 0.6 or not any(left.values()):
                ends = {topic: self.source.end_offsets(topic) for topic in sizes}
                for message in interleaved(rng, list(consume(self.source, ends, done))):
                    self._forward(there[kind_of(message.topic())], message)
                done = ends
                for each in there.values():
                    each.flush()

    def _forward(self, there: Partitioner, message: Any) -> None:
        for route in self.routes.values():
            if route.source == message.topic():
                number, stamp = int(message.value()), message.timestamp()[1]
                there.produce(route.destination, route.wanted, number, stamp, message.key())


def kind_of(topic: str) -> str:
    return topic.partition("-")[0]


def interleaved(rng: random.Random, messages: Sequence[Any]) -> Iterator[Any]:
    """Each partition's in order, some of one and some of another: as fetches bring them, but the same in every run."""
    waiting: dict[tuple[str, int], list[Any]] = {}
    for message in messages:
        waiting.setdefault((message.topic(), message.partition()), []).append(message)
    while waiting:
        name = rng.choice(sorted(waiting, key=lambda name: (kind_of(name[0]), name)))
        count = rng.randint(1, 6)
        yield from waiting[name][:count]
        waiting[name] = waiting[name][count:]
        if not waiting[name]:
            del waiting[name]


class Partitioner:
    """Writes records by key (murmur2, as Java's clients do), or without keys in turn."""

    def __init__(self, cluster: KafkaCluster, kind: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2"})
        self._keyed = kind == "keyed"
        self._turn: dict[str, int] = {}

    def produce(self, topic: str, partitions: int, number: int, stamp: int, key: bytes | None) -> None:
        more: dict[str, Any] = {"timestamp": stamp}
        if self._keyed:
            self._producer.produce(topic, b"%d" % number, key, **more)
        else:
            turn = self._turn[topic] = self._turn.get(topic, -1) + 1
            self._producer.produce(topic, b"%d" % number, partition=turn % partitions, **more)

    def flush(self) -> None:
        assert self._producer.flush(30) == 0


# ---------------------------------------------------------------- jobs


@dataclass(frozen=True, slots=True)
class Stopped:
    """A job that has processed the first records of each source partition; ``done`` are their numbers."""

    rows: Mapping[int, StoredOffset]
    done: frozenset[int]


def stopped(sent: Sequence[Sent], counts: Mapping[int, int]) -> Stopped:
    """``counts``: how many records it has processed of each partition; where it is none there is no row."""
    rows, done = {}, set()
    for partition, count in counts.items():
        processed = [record for record in sent if record.partition == partition][:count]
        done |= {record.number for record in processed}
        if processed:
            last = processed[-1]
            digest = fingerprint(last.key, last.value)
            anchor = Anchor(last.offset, last.timestamp_ms, None, digest, SOURCE_ID, "the-source-topic")
            rows[partition] = StoredOffset(last.offset + 1, anchor, last.timestamp_ms)
    return Stopped(rows, frozenset(done))


def somewhere(sent: Sequence[Sent], seed: int) -> Stopped:
    """Stopped at a random place of each partition, behind its first record."""
    rng = random.Random(seed)
    sizes = Counter(record.partition for record in sent)
    return stopped(sent, {partition: rng.randint(1, sizes[partition]) for partition in sorted(sizes)})


def is_noticed(estate: Estate, route: Route, job: Stopped) -> bool:
    """True if some anchor is not in the partition of its own number: else nothing tells that records were spread."""
    there = {record.number: record.partition for record in estate.held[route.destination]}
    number = {(record.partition, record.offset): record.number for record in estate.sent[route.source]}
    anchors = {partition: row.anchor.offset for partition, row in job.rows.items() if row.anchor is not None}
    return any(there[number[partition, offset or 0]] != partition for partition, offset in anchors.items())


def broken_promises(rows: Mapping[int, Mapping[str, Any]], held: Sequence[Sent], job: Stopped) -> Iterator[str]:
    for partition, row in rows.items():
        resume, replay = row["resume_offset"], row["replay"]
        what = f"{row['verdict']} {partition}, resume {resume}:"
        if resume is None:
            continue
        here = [record for record in held if record.partition == partition]
        lost = [record.offset for record in here if record.offset < resume and record.number not in job.done]
        again = sum(record.offset >= resume and record.number in job.done for record in here)
        if lost:
            yield f"{what} skips {lost}"
        if again > replay["at_most"]:
            yield f"{what} replays {again}, promised at most {replay['at_most']}"
        if replay["exact"] not in (None, again):
            yield f"{what} replays {again}, promised exactly {replay['exact']}"


def laid(world: World, route: Route, job: Stopped) -> Path:
    """A store of its own for this job, and a configuration."""
    world.address = f"sqlite:///{world.folder / f'offsets-{time.monotonic_ns()}.db'}"
    world.plan_file = world.folder / f"{time.monotonic_ns()}.plan.json"
    world.save(job.rows, topic=route.source)
    names = f'[topics.names]\n"{route.source}" = "{route.destination}"'
    return world.config(world.job("clicks", route.source, id="none"), extra=names)


def kept(world: World, estate: Estate, route: Route, job: Stopped) -> tuple[Path, dict[int, dict[str, Any]]]:
    """The configuration, and what a check says when it has kept its promises."""
    config = laid(world, route, job)
    rows = world.checked(config)
    assert set(rows) >= set(range(route.wanted))
    broken = list(broken_promises(rows, estate.held[route.destination], job))
    assert not broken, (route, {number: row.offset for number, row in job.rows.items()}, broken)
    return config, rows
