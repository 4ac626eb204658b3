"""Anchors recorded into a topic of the source and mirrored by MirrorMaker with the data survive the source.

One source for both topic policies, each with a mirror of its own. It is killed before the first question is asked.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.lab.in_use import ClusterInUse
from reconciler.lab.kafka import KafkaCluster
from reconciler.lab.mirror import MirrorMaker
from reconciler.ports import TopicPartition
from reconciler.spark.identity_columns import BatchIdentity, LastRecord
from reconciler.spark.recording.store import Recorder
from reconciler.spark.target import AnchorTarget, ClusterAccess
from reconciler.stores.kafka import topic_rows, topic_writer
from reconciler.stores.kafka.topic_rows import RowName
from reconciler.stores.registry import open_store
from tests.lab.faults.go_between import BEFORE, UNANSWERED, GoBetween, Kafka
from tests.sizes import sampled
from tests.stores.bare_jobs import PATIENT, survives_a_kill
from tests.world import BASE, CommandResult, World

pytestmark = pytest.mark.system

BEGIN, RECORDS, DELETED, LAST = 1_600_000_000_000, 400, 100, 250
GROUP = "readers"
RIGHT = LAST - DELETED + 1
"""The resume offset at the destination: the mirror began with record DELETED."""
POLICIES = ("default", "identity")


@dataclass(frozen=True)
class Failed:
    """The state that one policy's mirror left at the destination when the source died."""

    policy: str
    events: str
    rows: str

    @property
    def mirrored(self) -> str:
        return self.events if self.policy == "identity" else f"a.{self.events}"

    @property
    def rows_there(self) -> str:
        return self.rows if self.policy == "identity" else f"a.{self.rows}"


def produce(source: KafkaCluster, topic: str) -> None:
    from confluent_kafka import Producer

    source.create_topic(topic)
    producer = Producer({"bootstrap.servers": source.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"value %d" % number, b"key %d" % number, partition=0, timestamp=BEGIN + number // 5)
    assert producer.flush(30) == 0
    source.delete_records(topic, 0, before=DELETED)


def record(source: KafkaCluster, failed: Failed) -> None:
    """Record batches as a job does, up to record LAST; then a batch that is never committed."""
    client = {"bootstrap.servers": source.bootstrap}
    with closing(open_store(f"kafka-topic:{failed.rows}", kafka_client=client)) as store:
        store.create()
    address, cluster = f"kafka-topic:{failed.rows}", ClusterAccess(client)
    recorder = Recorder(AnchorTarget(GROUP, cluster, BatchIdentity(), address, now_ms=lambda: BEGIN + 1_000_000))
    for number in range(50, LAST + 1, 50):
        at = TopicPartition(failed.events, 0)
        last = LastRecord(at, number, BEGIN + number // 5, False, b"key %d" % number, b"value %d" % number)
        recorder.batch(number, [last])
    recorder.close()
    loser = topic_writer.Writer(client, failed.rows, "another group", timeout_s=30)
    loser._producer.begin_transaction()
    loser._producer.produce(failed.rows, b'{"v":1,"s":7}', topic_rows.encode_key(RowName("another group", "x", 0)))
    loser._producer.flush(30)
    loser._producer.abort_transaction(30)


def has_rows(destination: ClusterInUse, failed: Failed) -> bool:
    """True if the rows are mirrored: five, and the aborted one where the mirror does not read committed records."""
    return destination.end_offsets(failed.rows_there).get(0, 0) >= (5 if failed.policy == "identity" else 6)


@pytest.fixture(scope="module")
def failed_over(clusters: Any, tmp_path_factory: Any, kafka_jars: Path) -> Iterator[dict[str, Failed]]:
    folder, mark = tmp_path_factory.mktemp("mirrors"), uuid.uuid4().hex[:8]
    destination = clusters.destination
    with KafkaCluster("a", folder / "a", kafka_jars) as source, ExitStack() as mirrors:
        made: dict[str, tuple[Failed, MirrorMaker]] = {}
        for policy in POLICIES:
            failed = Failed(policy, f"events-{policy}-{mark}", f"rows-{policy}-{mark}")
            produce(source, failed.events)
            record(source, failed)
            topics, home = [failed.events, failed.rows], folder / policy
            committed = {"a.consumer.isolation.level": "read_committed"} if policy == "identity" else {}
            own = {"policy": policy, "connect": failed.events, "properties": committed}
            mirror = MirrorMaker(source, destination, topics, home, kafka_jars, **own)
            made[policy] = (failed, mirrors.enter_context(mirror))
        for failed, mirror in made.values():
            mirror.wait_until_mirrored(failed.events, ends={0: RECORDS - DELETED})
            mirror.wait_until(functools.partial(has_rows, destination, failed), 120, f"rows of {failed.policy}")
        mirrors.close()
        source.kill()
        yield {policy: failed for policy, (failed, _) in made.items()}


@pytest.fixture(params=POLICIES)
def failed(request: Any, failed_over: dict[str, Failed]) -> Failed:
    return failed_over[request.param]


@pytest.fixture
def world(clusters: Any, failed: Failed, world_on: Callable[..., World]) -> World:
    world = world_on(clusters.destination, failed.events)
    world.address, world.group = f"kafka-topic:{failed.rows}", GROUP
    return world


def last_values(world: World, topic: str) -> dict[bytes, bytes | None]:
    """The latest record of each key, as a plain client reads them."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as KafkaPartition

    settings = {"bootstrap.servers": world.cluster.bootstrap, "group.id": "unused", "enable.partition.eof": True}
    with closing(Consumer({**settings, "isolation.level": "read_committed", "fetch.wait.max.ms": 50})) as consumer:
        consumer.assign([KafkaPartition(topic, 0, 0)])
        found = {}
        while (message := consumer.poll(30)).error() is None:
            found[message.key()] = message.value()
    return found


def last_value(world: World, topic: str, key: bytes) -> bytes | None:
    return last_values(world, topic)[key]


def exits(ended: CommandResult, code: int) -> CommandResult:
    assert ended.code == code, ended.output
    return ended


def test_check_plan_apply_and_rollback_work_with_mirrored_rows(world: World, failed: Failed) -> None:
    config = world.config(world.job(id="none"), extra=f'[topics]\npolicy = "{failed.policy}"')
    brought = last_value(world, failed.rows_there, topic_rows.encode_key(RowName(GROUP, failed.events, 0)))
    assert brought is not None
    assert json.loads(brought)["s"] == LAST + 1

    exits(world.run("check", "-c", config), 3)
    row = world.checked(config)[0]
    assert (row["verdict"], row["stored_offset"], row["resume_offset"]) == ("moved", LAST + 1, RIGHT)
    assert row["replay"] == {"at_most": 0, "exact": 0}
    world.plan(config)
    if failed.policy == "default":
        # The topic of the destination's own rows is not there yet, and no command but the explicit one makes it.
        told = exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 6)
        assert "reconciler anchors import -c FILE --job JOB /dev/null" in told.output
        assert world.cluster.partitions(failed.rows) == 0
        exits(world.run("anchors", "import", "-c", config, "--job", "clicks", "/dev/null"), 0)
    exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 0)

    key = topic_rows.encode_key(RowName(GROUP, failed.mirrored, 0))
    written = json.loads(last_value(world, failed.rows, key) or b"null")
    assert (written["v"], written["s"]) == (1, RIGHT)
    assert (written["a"]["o"], written["a"]["t"]) == (RIGHT - 1, BEGIN + LAST // 5)
    assert written["a"]["c"] == world.cluster.cluster_id
    exits(world.run("check", "-c", config), 0)

    exits(world.run("rollback", world.plan_file, "-c", config, "--yes"), 0)
    back = last_value(world, failed.rows, key)
    assert back == (brought if failed.policy == "identity" else None), "to the byte"
    assert world.checked(config)[0]["resume_offset"] == RIGHT
    exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 0)
    exits(world.run("check", "-c", config), 0)


def test_the_mirrored_topic_is_compacted_like_the_one_it_comes_from(world: World, failed: Failed) -> None:
    from confluent_kafka.admin import ConfigResource

    resource = ConfigResource(ConfigResource.Type.TOPIC, failed.rows_there)
    found = world.cluster.admin().describe_configs([resource])[resource].result()
    assert found["cleanup.policy"].value == "compact"


def test_aborted_records_are_mirrored_unless_the_mirror_reads_committed(
    failed_over: dict[str, Failed], clusters: Any
) -> None:
    """The reason why the store's page tells MirrorMaker to read committed records."""
    found = {}
    for policy, failed in failed_over.items():
        client = {"bootstrap.servers": clusters.destination.bootstrap}
        with closing(open_store(f"kafka-topic:{failed.rows}", kafka_client=client)) as store:
            found[policy] = [row.stored.offset for row in store.read("another group")]
    assert found == {"default": [7], "identity": []}


# ---------------------------------------------------------------- the server dies in the middle


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: Any, kafka_jars: Path) -> Iterator[tuple[KafkaCluster, GoBetween]]:
    """A destination to kill; all its clients connect through the proxy."""
    made: list[KafkaCluster] = []
    with GoBetween(Kafka, lambda: made[0].bootstrap, lambda: made[0].kill()) as between:
        told = {"advertised.listeners": f"PLAINTEXT://{between.address}"}
        made.append(KafkaCluster("mortal", tmp_path_factory.mktemp("mortal"), kafka_jars, properties=told))
        with made[0]:
            yield made[0], between


@pytest.fixture
def mortal_world(mortal: tuple[KafkaCluster, GoBetween], world_on: Callable[..., World]) -> World:
    world = world_on(mortal[0])
    world.address = f"kafka-topic:rows-{uuid.uuid4().hex[:8]}?{PATIENT}"
    return world


@pytest.mark.parametrize(
    ("at", "code"),
    sampled(
        [
            (("produce 1", BEFORE), 6),
            (("end transaction 1", BEFORE), 7),
            (("end transaction 1", UNANSWERED), 7),
        ],
        keep=1,
    ),
)
def test_a_cluster_killed_during_an_apply(
    mortal: tuple[KafkaCluster, GoBetween], mortal_world: World, at: tuple[str, str], code: int
) -> None:
    """The cluster holds the rows and the data. All rows are one transaction."""
    (cluster, between), world, done = mortal, mortal_world, {0: 4, 1: 2}
    world.deliver(9, 6)
    world.processed(*done.values())
    places = {n: world.offset_of(number, n) for n, number in done.items()}
    wanted = {(world.topic, n): (BASE + number + 1, BASE + number) for n, number in done.items()}
    wanted |= {(world.mirrored, n): (place + 1, place) for n, place in places.items()}
    look = functools.partial(kept, world)
    told = {"between": between, "at": at, "up": cluster.start, "hasty_s": 5}
    ended = survives_a_kill(world, world.config(), look, wanted, **told)
    assert ended.code == code, ended.output


def kept(world: World) -> dict[tuple[str, int], tuple[int, int]]:
    """Stored offsets with the offsets of their anchors, as a plain client reads them."""
    found = {}
    for key, value in last_values(world, world.address.removeprefix("kafka-topic:").partition("?")[0]).items():
        _, _, topic, partition = json.loads(key)
        row = json.loads(value or b"{}")
        if "s" in row:
            found[topic, partition] = row["s"], row["a"]["o"]
    return found
