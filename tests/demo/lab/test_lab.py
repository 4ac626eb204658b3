"""The lab: real clusters that answer, outlive a disaster with their data, mirror faithfully, and leave nothing."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from reconciler.demo.lab.kafka import FEATURES, java_command
from tests.demo.lab.kafka import KafkaCluster, MirrorMaker
from tests.demo.lab.test_lab_parts import is_alive

pytestmark = [pytest.mark.system, pytest.mark.thorough]  # tests that use the lab would fail with it
BACK_DATED = 1_500_000_000_000  # 2017: any retention would have removed it


def produce(cluster: KafkaCluster, topic: str, numbers: range, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for n in numbers:
        key, headers = str(n).encode(), [("message-id", b"\x00id-%d" % n), ("empty", b""), ("absent", None)]
        value = None if n % 10 == 9 else b"value %d" % n
        producer.produce(topic, value, key, partition=partition, timestamp=BACK_DATED + n, headers=headers)
    assert producer.flush(30) == 0


def produce_plain(cluster: KafkaCluster, topic: str, keys: list[bytes], partition: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for key in keys:
        producer.produce(topic, b"value", key, partition=partition)
    assert producer.flush(30) == 0


def consume(cluster: KafkaCluster, topic: str, count: int, partition: int = 0) -> list[Message]:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, partition, cluster.start_offsets(topic)[partition])])
        found: list[Message] = []
        deadline = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            found += [m for m in consumer.consume(count - len(found), timeout=1) if m.error() is None]
        return found
    finally:
        consumer.close()


def test_records_that_were_sent_again_are_not_taken_for_the_last_ones(clusters, topic_name: str) -> None:
    source, target = clusters.source, clusters.destination
    for cluster in (source, target):
        cluster.create_topic(topic_name, 2)
    assert target.ends_as(topic_name, source, topic_name)
    settings = {"bootstrap.servers": source.bootstrap, "transactional.id": topic_name, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    for number in range(40):  # each transaction ends with a marker: the last record is far in front of the log's end
        producer.begin_transaction()
        if number < 3:
            producer.produce(topic_name, b"value", str(number).encode(), partition=0)
        producer.produce(topic_name, b"value", str(number).encode(), partition=1)
        producer.commit_transaction(30)
    assert source.last_records(topic_name) == {0: (b"2", b"value"), 1: (b"39", b"value")}
    produce_plain(target, topic_name, [b"0", b"1", b"0", b"1"], partition=0)
    produce_plain(target, topic_name, [b"39"], partition=1)
    assert not target.ends_as(topic_name, source, topic_name)
    produce_plain(target, topic_name, [b"2"], partition=0)
    assert target.ends_as(topic_name, source, topic_name)
    source.delete_records(topic_name, 0, before=source.end_offsets(topic_name)[0])
    assert source.last_records(topic_name) == {1: (b"39", b"value")}


def test_the_mirror_carries_records_whole_to_other_offsets(
    clusters, tmp_path: Path, kafka_jars: Path, topic_name: str
) -> None:
    source, destination = clusters.source, clusters.destination
    source.create_topic(topic_name, 2)
    produce(source, topic_name, range(50))
    produce(source, topic_name, range(100, 120), partition=1)
    source.delete_records(topic_name, 0, before=30)
    home = tmp_path / "mirror"
    with MirrorMaker(source, destination, [topic_name], home, kafka_jars, connect=topic_name) as mirror:
        assert mirror.wait_until_mirrored(topic_name) == {0: 20, 1: 20}
        pid = mirror.process.pid
    assert not is_alive(pid)
    there = mirror.target_topic(topic_name)
    assert there == f"a.{topic_name}"

    def content(m: Message) -> tuple[object, ...]:
        return m.key(), m.value(), m.timestamp(), m.headers()

    here = consume(source, topic_name, 20)
    copies = consume(destination, there, 20)
    assert [m.offset() for m in here] == list(range(30, 50))
    assert [m.offset() for m in copies] == list(range(20))
    assert [content(m) for m in copies] == [content(m) for m in here]
    others = consume(destination, there, 20, partition=1)
    assert [m.key() for m in others] == [str(n).encode() for n in range(100, 120)]


def test_a_cluster_that_kafkas_tool_did_not_format_has_the_same_features(tmp_path: Path, kafka_jars: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in kafka_jars.glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    found = []
    for name in ("formatted", "copied"):
        assert (jars / FEATURES).exists() == (name == "copied")
        with KafkaCluster(name, tmp_path / name, jars) as cluster:
            words = ["--bootstrap-server", cluster.bootstrap, "describe"]
            asked = java_command(jars, "org.apache.kafka.tools.FeatureCommand", *words, heap="64m")
            found.append(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    levels = [re.findall(r"Feature: (\S+).*FinalizedVersionLevel: (\S+)", each) for each in found]
    assert levels[0] == levels[1]
    assert len(levels[0]) >= 5
    assert (jars / FEATURES).read_bytes() == (tmp_path / "copied" / "data" / FEATURES).read_bytes()
