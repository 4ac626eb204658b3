"""Offsets in Kafka's own group, with anchors, synced to the destination by MirrorMaker's group sync."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from reconciler.cli.main import main
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition
from tests.demo.lab.kafka import KafkaCluster, MirrorMaker
from tests.starting import with_state
from tests.waiting import wait_until

pytestmark = pytest.mark.system

BEGIN, RECORDS, DELETED, LAST = 1_600_000_000_000, 400, 100, 250
GROUP = "readers"


def produce(cluster: KafkaCluster, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"value %d" % number, b"key %d" % number, partition=0, timestamp=BEGIN + number // 5)
    producer.flush()


def commit_with_anchor(cluster: KafkaCluster, topic: str) -> None:
    """The commits of a job after record LAST."""
    print_of = fingerprint(b"key %d" % LAST, b"value %d" % LAST)
    anchor = Anchor(LAST, BEGIN + LAST // 5, None, print_of, cluster.cluster_id, None)
    store = open_store("kafka-group:", kafka_client={"bootstrap.servers": cluster.bootstrap})
    change = Change(TopicPartition(topic, 0), None, StoredOffset(LAST + 1, anchor))
    assert store.write(GROUP, [change], reason="test", now_ms=BEGIN).written
    store.close()


def synced_offset(cluster: KafkaCluster, topic: str) -> int:
    """MirrorMaker's own translation of the group's offset; 0: it has written none yet."""
    (future,) = cluster.admin().list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
    rows = future.result().topic_partitions or []
    return next((int(row.offset) for row in rows if row.topic == topic and row.offset >= 0 and row.metadata), 0)


@pytest.mark.parametrize("policy", ["default", pytest.param("identity", marks=pytest.mark.thorough)])
def test_a_groups_anchor_comes_through_the_mirror_and_gives_the_exact_offset(
    policy: str, tmp_path: Path, kafka_jars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The source is killed before any command; only the destination has the group."""
    topic = "events"
    with (
        KafkaCluster("a", tmp_path / "a", kafka_jars) as source,
        KafkaCluster("b", tmp_path / "b", kafka_jars) as destination,
    ):
        source.create_topic(topic)
        produce(source, topic)
        source.delete_records(topic, 0, before=DELETED)
        commit_with_anchor(source, topic)
        with MirrorMaker(source, destination, [topic], tmp_path / "mirror", kafka_jars, policy=policy) as mirror:
            mirror.wait_until_mirrored(topic)
            mirrored = mirror.target_topic(topic)
            wait_until(lambda: synced_offset(destination, mirrored), "MirrorMaker's sync of the group's offset")
        source.kill()
        synced = synced_offset(destination, mirrored)  # its last translation: there may have been several
        config = tmp_path / "reconciler.toml"
        config.write_text(
            f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "{destination.bootstrap}"\n'
            f'[topics]\npolicy = "{policy}"\n'
            f'[[jobs]]\nhome = "a"\nname = "j"\ngroup = "{GROUP}"\ntopics = ["{topic}"]\noffsets = "kafka-group:"\n'
        )
        with_state(config, to="b")
        right = LAST - DELETED + 1
        assert synced <= right, "MirrorMaker never translates ahead"
        assert main(["plan", "-c", str(config), "--format", "json"]) == (0 if synced == right else 3)
        (row,) = json.loads(capsys.readouterr().out)["jobs"][0]["partitions"]
        assert (row["finding"], row["stored_offset"], row["resume_offset"]) == ("exact", synced, right)
        assert row["replay"] == {"at_most": 0, "exact": 0}
        plan = str(tmp_path / "plan.json")
        assert main(["plan", "-c", str(config), "-o", plan]) == 0
        assert main(["apply", plan, "-c", str(config), "--yes"]) == 0
        capsys.readouterr()
        assert main(["plan", "-c", str(config), "--to", "b", "--format", "json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["jobs"][0]["partitions"]
        assert (row["finding"], row["stored_offset"]) == ("exact", right)
