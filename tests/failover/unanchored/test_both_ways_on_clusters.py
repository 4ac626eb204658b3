"""Numbers alone, and offset syncs that a mirror in the other direction left of a topic that is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.demo.lab.in_use import ClusterInUse
from tests.demo.lab.kafka import KafkaCluster, MirrorMaker
from tests.failover.unanchored.test_bare_offsets_on_clusters import (
    THERE,
    TOPIC,
    checked,
    configured,
    job_table,
    records,
    save,
    skipped,
    wait_until,
)

pytestmark = pytest.mark.system

GONE = 500
"""Records that retention took from the source before it was mirrored: its numbers are ahead of the places there."""
COUNT = 1_000
SYNCS = "mm2-offset-syncs.a.internal"


def send(cluster: ClusterInUse, topic: str, word: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%s %d" % (word.encode(), number), b"k%d" % number, partition=0)
    assert producer.flush(60) == 0


def mirrored(source: ClusterInUse, target: ClusterInUse, directory: Path, jars: Path, end: int) -> None:
    """Mirror the topic until its copy ends there; an orderly stop commits the position."""
    with MirrorMaker(source, target, [TOPIC], directory, jars) as mirror:
        copy = f"{source.name}.{TOPIC}"
        mirror.wait_until(lambda: target.end_offsets(copy).get(0, 0) >= end or None, 120, f"{copy} to reach {end}")


def test_syncs_of_a_topic_that_was_mirrored_from_here_and_is_gone_skip_nothing(
    tmp_path: Path, kafka_jars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka import TopicPartition as KafkaPartition

    with (
        KafkaCluster("a", tmp_path / "a", kafka_jars) as source,
        KafkaCluster("b", tmp_path / "b", kafka_jars) as destination,
    ):
        source.create_topic(TOPIC, 1)
        send(source, TOPIC, "gone", GONE)
        (deleted,) = source.admin().delete_records([KafkaPartition(TOPIC, 0, GONE)]).values()
        deleted.result()
        send(source, TOPIC, "first", COUNT)
        mirrored(source, destination, tmp_path / "to b", kafka_jars, COUNT)
        destination.create_topic(TOPIC, 1)  # the failover: programs write here, and it is mirrored back
        send(destination, TOPIC, "here", COUNT)
        mirrored(destination, source, tmp_path / "to a", kafka_jars, COUNT)
        (deleted,) = destination.admin().delete_topics([TOPIC]).values()
        deleted.result()
        wait_until(lambda: TOPIC not in destination.admin().list_topics().topics, "the topic to be gone")
        send(source, TOPIC, "second", COUNT)  # the failback, and the next failover
        mirrored(source, destination, tmp_path / "to b", kafka_jars, 2 * COUNT)
        there = records(destination, THERE, 0)
        source.kill()
        address = f"sqlite:///{tmp_path / 'offsets.db'}"
        stored = {f"g{number}": GONE + 150 * number + 77 for number in range(5)}
        save(address, {name: StoredOffset(offset) for name, offset in stored.items()}, 0)
        jobs = [job_table(name, address) for name in stored]
        found = checked(configured(tmp_path / "by default.toml", destination, jobs), capsys)
        believed = [*jobs, f'[mirror]\noffset_syncs_topic = "{SYNCS}"\n']
        told = checked(configured(tmp_path / "believed.toml", destination, believed), capsys)
    sent = [b"%s %d" % (word, number) for word in (b"first", b"second") for number in range(COUNT)]
    origin = {value: GONE + at for at, value in enumerate(sent)}
    numbers = {at: origin[value] for at, value in there.items()}
    assert sum(skipped(numbers, told[name][0]["resume_offset"], at) for name, at in stored.items()) > GONE, (
        "these syncs do skip, where a person says that they are the mirror's"
    )
    for name, at in stored.items():
        (row,) = found[name]
        assert "may be of a mirror from here" in row["detail"], row
        assert row["resume_offset"] is None or not skipped(numbers, row["resume_offset"], at), row
