"""Partition counts that differ between what a job has stored and what the destination has, on real clusters.

A job has stopped at a random place of each source partition; check, plan and apply hand it over.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.ports import Change, Row
from reconciler.stores.registry import open_store
from tests.failover.partitions.estate import (
    KEYS,
    KINDS,
    NARROWER,
    RECORDS,
    WIDER,
    Estate,
    Partitioner,
    Route,
    Sent,
    Stopped,
    broken_promises,
    is_noticed,
    kept,
    laid,
    read,
    somewhere,
    stopped,
)
from tests.lab.kafka import KafkaCluster, MirrorMaker
from tests.sizes import sampled
from tests.world import BEGIN, World

pytestmark = pytest.mark.system

DRAWS = 4
NARROWED = sampled([(kind, *counts) for kind in KINDS for counts in NARROWER], keep=2)
WIDENED = sampled([(kind, *counts) for kind in KINDS for counts in WIDER], keep=2)
"""Every run takes some of each, the thorough one all."""


@pytest.fixture(scope="module")
def estate(clusters) -> Estate:
    return Estate(clusters, f"{time.time_ns() % 10**9:x}")


def handed_over(world: World, estate: Estate, route: Route, job: Stopped) -> None:
    """Through the commands, from check to a second check, and back."""
    config, rows = kept(world, estate, route, job)
    world.plan(config)
    applied = world.run("apply", world.plan_file, "-c", config, "--yes")
    assert applied.code == 0, applied.output
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


@pytest.mark.parametrize(("kind", "partitions", "wanted"), NARROWED)
def test_with_fewer_partitions_the_promises_hold(
    estate: Estate, world: World, kind: str, partitions: int, wanted: int
) -> None:
    route = estate.routes[kind, partitions, wanted]
    for seed in range(DRAWS):
        _, rows = kept(world, estate, route, somewhere(estate.sent[route.source], seed))
        assert {row["verdict"] for row in rows.values()} == {"remapped"}
    handed_over(world, estate, route, somewhere(estate.sent[route.source], DRAWS))


@pytest.mark.parametrize(("kind", "partitions", "wanted"), WIDENED)
def test_with_more_partitions_the_promises_hold(
    estate: Estate, world: World, kind: str, partitions: int, wanted: int
) -> None:
    route = estate.routes[kind, partitions, wanted]
    *jobs, last = islice(noticed(estate, route, (somewhere(estate.sent[route.source], s) for s in count())), DRAWS + 1)
    for job in jobs:
        kept(world, estate, route, job)
    handed_over(world, estate, route, last)


def noticed(estate: Estate, route: Route, jobs: Iterable[Stopped]) -> Iterator[Stopped]:
    """Jobs of one partition, safe in any case; else those with an anchor that is not in the partition of its number."""
    return (job for job in jobs if route.partitions == 1 or is_noticed(estate, route, job))


@pytest.mark.parametrize(("kind", "partitions", "wanted"), WIDENED)
def test_with_more_partitions_of_which_one_is_hardly_begun_the_promises_hold(
    estate: Estate, world: World, kind: str, partitions: int, wanted: int
) -> None:
    """Partitions that were never read then begin with records that are younger than the oldest anchor."""
    route = estate.routes[kind, partitions, wanted]
    for seed in range(8):
        rng = random.Random(seed)
        counts = {number: rng.randint(1, RECORDS // 2) for number in range(partitions)}
        job = stopped(estate.sent[route.source], {**counts, rng.randrange(partitions): rng.randint(1, 2)})
        for known in noticed(estate, route, [job]):
            kept(world, estate, route, known)


@pytest.mark.parametrize(("kind", "partitions", "wanted"), NARROWED)
def test_with_fewer_partitions_of_which_one_is_unread_the_promises_hold(
    estate: Estate, world: World, kind: str, partitions: int, wanted: int
) -> None:
    """Without a row, or with one that says so. All records of that partition are unprocessed, wherever they lie."""
    route = estate.routes[kind, partitions, wanted]
    for unread in range(partitions):
        counts = {number: 0 if number == unread else RECORDS // 2 for number in range(partitions)}
        job = stopped(estate.sent[route.source], counts)
        if unread < partitions - 1:  # no row reveals that a last one exists
            kept(world, estate, route, job)
        kept(world, estate, route, replace(job, rows={**job.rows, unread: StoredOffset(-1)}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("partitions", "wanted"), [(2, 3)])
def test_a_correction_of_which_a_part_was_written_is_still_one_for_other_partitions(
    estate: Estate, world: World, kind: str, partitions: int, wanted: int
) -> None:
    """A store that writes row by row, and an apply that was killed: the next start must not take numbers for kept."""
    route = estate.routes[kind, partitions, wanted]
    drawn = (somewhere(estate.sent[route.source], seed) for seed in count())
    astray = (job for job in drawn if is_noticed(estate, route, replace(job, rows={1: job.rows[1]})))
    for job in islice(astray, 2):
        config, _ = kept(world, estate, route, job)
        world.plan(config)
        assert world.run("apply", world.plan_file, "-c", config, "--yes").code == 0
        for written in range(1, wanted):
            missing = [
                row for row in world.rows() if row.key.topic == route.destination and row.key.partition >= written
            ]
            take_away(world, missing)
            # The replay of what is written already was shown and accepted with its plan: such a row is a match.
            broken = broken_promises(world.checked(config), estate.held[route.destination], job)
            skipped = [sentence for sentence in broken if "replays" not in sentence]
            assert not skipped, (route, written, skipped)
            assert world.run("apply", world.plan_file, "-c", config, "--yes").code == 0


def take_away(world: World, rows: Sequence[Row]) -> None:
    store = open_store(world.address)
    try:
        changes = [Change(row.key, row.version, None) for row in rows]
        assert not store.write(world.group, changes, reason="test", now_ms=BEGIN).conflicts
    finally:
        store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_with_more_partitions_and_anchors_without_a_time_the_promises_hold(
    estate: Estate, world: World, kind: str
) -> None:
    route = estate.routes[kind, 2, 3]
    for job in islice(noticed(estate, route, (somewhere(estate.sent[route.source], s) for s in count())), DRAWS * 2):
        timeless = {
            number: replace(row, anchor=replace(row.anchor, timestamp_ms=None))
            for number, row in job.rows.items()
            if row.anchor is not None
        }
        kept(world, estate, route, replace(job, rows=timeless))


# ---------------------------------------------------------------- MirrorMaker, which keeps partitions


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
    there = read(destination, [f"a.{topic}" for topic in topics])
    assert {record.partition for record in there[f"a.{grown}"]} == {0, 1, 2}
    return Mirrored(read(source, topics), {topic: there[f"a.{topic}"] for topic in topics})


def produce_keyed(cluster: KafkaCluster, topics: Sequence[str], numbers: range) -> None:
    """By a producer of its own, which knows all partitions there are."""
    partitioner = Partitioner(cluster, "keyed")
    for number in numbers:
        for topic in topics:
            partitioner.produce(topic, 0, number, BEGIN + 1_000 * (number // 2), b"%d" % (number % KEYS))
    partitioner.flush()


def grow(cluster: KafkaCluster, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import NewPartitions

    cluster.admin().create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def checked(world: World, mirrored: Mirrored, topic: str, job: Stopped) -> list[tuple[str, int | None]]:
    """Each row's verdict and exact replay, from a check that has kept its promises, and an apply that lasts."""
    config = laid(world, Route(topic, f"a.{topic}", 0, 0), job)
    rows = world.checked(config)
    broken = list(broken_promises(rows, mirrored.held[topic], job))
    assert not broken, broken
    world.plan(config)
    assert world.run("apply", world.plan_file, "-c", config, "--yes").code == 0
    assert world.run("check", "-c", config).code == 0
    return [(row["verdict"].replace("match", "moved"), row["replay"]["exact"]) for row in rows.values()]


def test_mirrormaker_keeps_partitions_whatever_the_destination_had_before(mirrored: Mirrored, world: World) -> None:
    wide, narrow, grown = mirrored.sent
    moved = ("moved", 0)
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
