"""``init`` asks a cluster that MirrorMaker fills, and a store; what it writes passes ``config check``, and works."""

from __future__ import annotations

import json
import logging
import os
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from reconciler.ports import TopicPartition
from tests.demo.lab.kafka import MirrorMaker
from tests.demo.lab.real_clusters import Clusters, processes
from tests.world import World, source_record

pytestmark = pytest.mark.system

RECORDS = 60
SECRET = "correct horse battery"


@pytest.fixture(scope="module")
def clusters(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """A pair of these tests' own: on the shared ones, other tests' topics look like those of other mirrors."""
    with ExitStack() as until_the_end:
        yield Clusters(processes(tmp_path_factory.mktemp("init-clusters"), kafka_jars), until_the_end)


@pytest.fixture(scope="module")
def mirrored(clusters: Any, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A topic of the source that MirrorMaker has copied to the destination, two partitions with ids in a header."""
    from confluent_kafka import Producer

    topic = f"init-{os.urandom(4).hex()}"
    source = clusters.source
    source.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": source.bootstrap, "log_level": 0})
    for partition in (0, 1):
        for number in range(RECORDS):
            record = source_record(number, partition)
            body = json.dumps({"user": number % 5, "what": number, "of": partition}).encode()
            headers = [("message-id", record.id), ("kind", b"click")]
            producer.produce(topic, body, b"user-%d" % (number % 5), partition=partition, headers=headers)
    assert producer.flush(60) == 0
    folder = tmp_path_factory.mktemp("init-mirror")
    with MirrorMaker(source, clusters.destination, [topic], folder, kafka_jars) as mirror:
        mirror.wait_until_mirrored(topic)
    return topic


@pytest.fixture
def world(clusters: Any, mirrored: str, world_on: Callable[..., World]) -> World:
    """A job whose store is at the 40th record of each partition of the mirrored topic."""
    world = world_on(clusters.destination, mirrored)
    world.save({partition: stored_after(clusters, mirrored, partition) for partition in (0, 1)})
    return world


def stored_after(clusters: Any, topic: str, partition: int, number: int = 40) -> Any:
    """What a job has stored that processed so many records of the source's partition."""
    from reconciler.config.identity import identity_from_spec
    from reconciler.core.anchors import StoredOffset
    from reconciler.kafka.reader import KafkaLogReader
    from reconciler.ports import ReadRequest

    reader = KafkaLogReader({"bootstrap.servers": clusters.source.bootstrap})
    try:
        (chunk,) = reader.read([ReadRequest(TopicPartition(topic, partition), number - 1, 1)])
        cluster_id = reader.describe(()).cluster_id
    finally:
        reader.close()
    identity = identity_from_spec(id="header:message-id")
    return StoredOffset(number, identity.anchor_of(chunk.records[0], cluster_id=cluster_id, topic_id=None), 1)


@pytest.fixture
def written(world: World) -> Path:
    path = world.folder / "written.toml"
    ended = world.run(
        *("init", "--bootstrap-servers", world.cluster.bootstrap, "--store", world.address), "--output", path
    )
    assert ended.code == 0, ended.output
    assert f"Next: reconciler config check -c {path}" in ended.out
    return path


def test_the_mirror_the_job_and_its_ids_are_found(world: World, written: Path) -> None:
    content = tomllib.loads(written.read_text())
    assert content["clusters"] == {"a": {}, "standby": {"bootstrap_servers": world.cluster.bootstrap}}
    assert content["topics"] == {"policy": "default", "separator": "."}
    (job,) = content["jobs"]
    assert job == {
        "name": world.group,
        "home": "a",
        "topics": [world.topic],
        "offsets": world.address,
        "identity": {"id": "header:message-id"},
    }
    text = written.read_text()
    assert "# MirrorMaker's name of the source, by its topic a.checkpoints.internal" in text
    assert "# header message-id: present on 120 of 120 records looked at, all different" in text
    assert "# header kind: present on 120 of 120 records looked at, 1 different" in text
    assert "# Found there: 2 stored offsets, all with an anchor that holds an id." in text


def test_the_written_file_passes_config_check_and_finds_the_offsets(world: World, written: Path) -> None:
    ended = world.run("config", "check", "-c", written)
    assert ended.code == 0, ended.output
    assert f"ok    topic a.{world.topic}: 2 partitions" in ended.out
    assert "0 failed" in ended.out
    rows = world.checked(written)
    assert {row["finding"] for row in rows.values()} == {"exact"}  # nothing was deleted before it was mirrored
    assert [rows[partition]["resume_offset"] for partition in (0, 1)] == [40, 40]


def test_groups_that_were_mirrored_become_jobs(world: World) -> None:
    """A consumer group with offsets of the mirrored topic is a job whose store is kafka-group:."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as KafkaPartition

    group = f"{world.topic}-group"
    consumer = Consumer({"bootstrap.servers": world.cluster.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[KafkaPartition(world.mirrored, 0, 7)], asynchronous=False)
    consumer.close()
    shown = world.run(*("init", "--bootstrap-servers", world.cluster.bootstrap, "--group", group, "--output", "-"))
    assert shown.code == 0, shown.output
    (job,) = tomllib.loads(shown.out)["jobs"]
    assert (job["name"], job["topics"], job["offsets"]) == (group, [world.topic], "kafka-group:")
    assert "# Found there: 1 stored offset, none with an anchor." in shown.out
    assert f"# Offsets without an anchor were found for {group}." in shown.out


def test_no_secret_is_written_and_the_file_works_once_it_is_in_the_environment(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """sasl.password is not used on this cluster, and taken by the client all the same."""
    path = world.folder / "client.properties"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    path.write_text(
        f"bootstrap.servers={world.cluster.bootstrap}\nsecurity.protocol=PLAINTEXT\n"
        f'sasl.jaas.config={login} username="me" password="{SECRET}";\nkey.deserializer=org.example.Any\n'
    )
    output = world.folder / "written.toml"
    ended = world.run("init", "--client-config", path, "--store", world.address, "--output", output)
    assert ended.code == 0, ended.output
    assert SECRET not in output.read_text() + ended.output
    logging.getLogger("reconciler").warning("a client library says %s", SECRET)
    assert SECRET not in capsys.readouterr().err
    assert tomllib.loads(output.read_text())["clusters"]["standby"] == {
        "bootstrap_servers": world.cluster.bootstrap,
        "client": {
            "security.protocol": "PLAINTEXT",
            "sasl.username": "me",
            "sasl.password": "${RECONCILER_SASL_PASSWORD}",
        },
    }
    assert "Set in the environment first: RECONCILER_SASL_PASSWORD." in ended.out
    assert world.run("config", "check", "-c", output).code == 2
    monkeypatch.setenv("RECONCILER_SASL_PASSWORD", SECRET)
    checked = world.run("config", "check", "-c", output)
    assert checked.code == 0, checked.output
    assert SECRET not in checked.output
