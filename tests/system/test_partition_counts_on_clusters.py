"""Partition counts that differ between what a job has stored and what the destination has, on real clusters.

A source topic is written by a partitioner, a forwarder writes its records on by the same partitioner to topics with
more and fewer partitions, and a job has stopped at a random place of each source partition. What the commands make of
it is held against all records of the destination, read with a plain client.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from world import BEGIN, World, a_world

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.lab.kafka import KafkaCluster
from reconciler.lab.mirror import MirrorMaker

pytestmark = pytest.mark.system

SOURCE_ID = "the-source-cluster"
RECORDS = 60
"""A source partition."""
KEYS = 40
NARROWER, WIDER = [(2, 1), (3, 2), (5, 3)], [(1, 3), (2, 3), (2, 4), (4, 6)]
"""Partitions at the source, and at the destination."""
KINDS = ("keyed", "inturn")
DRAWS = 3


@pytest.fixture
def world(clusters, tmp_path, topic_name, capsys) -> Iterator[World]:
    yield from a_world(clusters, tmp_path, topic_name, capsys)


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


@pytest.fixture(scope="module")
def estate(clusters) -> Estate:
    return Estate(clusters, f"{time.time_ns() % 10**9:x}")


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


def handed_over(world: World, estate: Estate, route: Route, job: Stopped) -> set[str]:
    """Through the commands, from check to a second check; the first one's verdicts."""
    config, rows = kept(world, estate, route, job)
    world.plan(config)
    applied = world.run("apply", world.plan_file, "-c", config, "--yes")
    assert applied.code == 0, applied.said
    resumes = {number: row["resume_offset"] for number, row in rows.items() if row["verdict"] != "new"}
    assert world.offsets(route.destination) == resumes
    after = world.rows()
    again = world.checked(config)
    assert {number: row["resume_offset"] for number, row in again.items() if number in resumes} == resumes
    assert {row["verdict"] for row in again.values()} <= {"match", "new"}
    assert world.run("check", "-c", config).code == 0
    assert world.rows() == after
    assert world.run("rollback", world.plan_file, "-c", config, "--yes").code == 0
    assert world.offsets(route.destination) == {}
    return {row["verdict"] for row in rows.values()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("partitions", "wanted"), NARROWER)
def test_fewer_partitions(estate: Estate, world: World, kind: str, partitions: int, wanted: int) -> None:
    route = estate.routes[kind, partitions, wanted]
    for seed in range(DRAWS):
        job = somewhere(estate.sent[route.source], seed)
        assert handed_over(world, estate, route, job) == {"remapped"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("partitions", "wanted"), [(1, 3), (2, 4), (4, 6)])
def test_more_partitions(estate: Estate, world: World, kind: str, partitions: int, wanted: int) -> None:
    route = estate.routes[kind, partitions, wanted]
    for seed in range(DRAWS):
        job = somewhere(estate.sent[route.source], seed)
        handed_over(world, estate, route, job)


def in_its_own(estate: Estate, route: Route, rng: random.Random) -> Stopped | None:
    """A job whose anchors happen to lie in partitions of their own numbers."""
    there = {record.number: record.partition for record in estate.held[route.destination]}
    counts = {}
    for partition in range(route.partitions):
        source = [record for record in estate.sent[route.source] if record.partition == partition]
        places = [place for place, record in enumerate(source, 1) if there[record.number] == partition]
        if not places:
            return None
        counts[partition] = rng.choice(places)
    return stopped(estate.sent[route.source], counts)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("partitions", "wanted"), WIDER[1:])
def test_more_partitions_where_every_anchor_is_in_one_of_its_own_number(
    estate: Estate, world: World, kind: str, partitions: int, wanted: int
) -> None:
    """Nothing looks wrong with any partition alone. Records of another may still lie before an anchor, unprocessed."""
    route = estate.routes[kind, partitions, wanted]
    for seed in range(8):
        job = in_its_own(estate, route, random.Random(seed))
        if job is not None:
            kept(world, estate, route, job)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("partitions", "wanted"), WIDER)
def test_more_partitions_of_which_the_job_has_hardly_begun_one(
    estate: Estate, world: World, kind: str, partitions: int, wanted: int
) -> None:
    """The partitions nobody has read then begin with records that are younger than the oldest anchor."""
    route = estate.routes[kind, partitions, wanted]
    for seed in range(8):
        rng = random.Random(seed)
        counts = {number: rng.randint(1, RECORDS // 2) for number in range(partitions)}
        job = stopped(estate.sent[route.source], {**counts, rng.randrange(partitions): rng.randint(1, 2)})
        kept(world, estate, route, job)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("partitions", "wanted"), NARROWER)
def test_fewer_partitions_of_which_the_job_has_read_nothing_of_one(
    estate: Estate, world: World, kind: str, partitions: int, wanted: int
) -> None:
    """Without a row, or with one that says so. All records of that partition are unprocessed, wherever they lie."""
    route = estate.routes[kind, partitions, wanted]
    for unread in range(partitions):
        counts = {number: 0 if number == unread else RECORDS // 2 for number in range(partitions)}
        job = stopped(estate.sent[route.source], counts)
        if unread < partitions - 1:  # that a last one exists is not known to anybody
            kept(world, estate, route, job)
        kept(world, estate, route, replace(job, rows={**job.rows, unread: StoredOffset(-1)}))


# ---------------------------------------------------------------- MirrorMaker, which keeps partitions


def grow(cluster: KafkaCluster, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import NewPartitions

    cluster.admin().create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def test_mirrormaker_keeps_partitions_whatever_the_destination_had_before(
    clusters, world: World, tmp_path: Path, kafka_jars: Path
) -> None:
    """Into a topic with more partitions, which stay empty; into one with fewer, which it adds; and while one grows."""
    source, destination = clusters.source, clusters.destination
    wide, narrow, grown = topics = [f"{kind}-{world.topic}" for kind in ("wide", "narrow", "grown")]
    for topic, partitions in ((wide, 2), (narrow, 3), (grown, 2)):
        source.create_topic(topic, partitions)
    destination.create_topic(f"a.{wide}", 4)
    destination.create_topic(f"a.{narrow}", 1)
    partitioner = Partitioner(source, "keyed")

    def produce(numbers: range) -> None:
        for number in numbers:
            for topic in topics:
                partitioner.produce(topic, 0, number, BEGIN + 1_000 * (number // 2), b"%d" % (number % KEYS))
        partitioner.flush()

    produce(range(100))
    jobs = {topic: somewhere(sent, 1) for topic, sent in read(source, topics).items()}
    quiet = {"emit.checkpoints.enabled": "false", "sync.group.offsets.enabled": "false"}
    with MirrorMaker(source, destination, topics, tmp_path / "mirror", kafka_jars, properties=quiet) as mirror:
        mirror.wait_until_mirrored(grown)
        grow(source, grown, 3)
        partitioner = Partitioner(source, "keyed")  # which knows the new partition
        produce(range(100, 160))
        for topic in topics:
            mirror.wait_until_mirrored(topic)
    held = read(destination, [f"a.{topic}" for topic in topics])
    assert {record.partition for record in held[f"a.{grown}"]} == {0, 1, 2}
    found = {}
    for topic, job in jobs.items():
        config = laid(world, Route(topic, f"a.{topic}", 0, 0), job)
        rows = found[topic] = world.checked(config)
        assert not list(broken_promises(rows, held[f"a.{topic}"], job)), rows
        world.plan(config)
        assert world.run("apply", world.plan_file, "-c", config, "--yes").code == 0
        assert world.run("check", "-c", config).code == 0

    def verdicts(topic: str) -> list[tuple[str, int | None]]:
        return [(row["verdict"].replace("match", "moved"), row["replay"]["exact"]) for row in found[topic].values()]

    assert verdicts(wide) == [("moved", 0), ("moved", 0), ("new", 0), ("new", 0)]
    assert verdicts(narrow) == [("moved", 0)] * 3
    assert len(verdicts(grown)) == 3
