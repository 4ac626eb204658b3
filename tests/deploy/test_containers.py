"""A failover on clusters in containers: a daemon of the tests' own, the base image made here, Kafka's built on it.

The pair of clusters is had as everywhere, by ``clusters``; that it lives in containers is all that is different.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import main
from reconciler.clock import clock_ms
from reconciler.demo.lab.in_use import ID_HEADER, delete_all, make_events, produce
from tests.demo.lab.containers import IMAGE, ContainerCluster, container_mirror, kafka_image
from tests.demo.lab.kafka import commit_group
from tests.demo.lab.private_daemon import BASE, PrivateDaemon, kernel_lacks, lacking
from tests.demo.lab.real_clusters import Clusters, in_containers
from tests.starting import with_state
from tests.waiting import LIMIT_S, wait_until

pytestmark = [pytest.mark.system, pytest.mark.thorough]
GROUP, PARTITIONS, PRODUCED = "clicks", 2, 600


@pytest.fixture(scope="module")
def daemon() -> Iterator[PrivateDaemon]:
    """Skips where this user or this kernel cannot have one: nothing in the product or its tests could help that."""
    if os.geteuid() != 0:
        pytest.skip("containers: a Docker daemon needs root")
    if missing := lacking():
        reason = f"containers: not installed here: {', '.join(missing)}"
        if os.environ.get("RECONCILER_REQUIRE_SYSTEM") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    if reason := kernel_lacks():
        pytest.skip(f"containers: {reason}")
    with PrivateDaemon() as started, pytest.MonkeyPatch.context() as environment:
        environment.setenv("DOCKER_HOST", started.address)
        environment.setenv("BASE", BASE)
        yield started
    assert started.leftovers() == []


@pytest.fixture(scope="module")
def clusters(daemon: PrivateDaemon, kafka_jars: Path) -> Iterator[Clusters]:
    with ExitStack() as until_the_end:
        yield Clusters(in_containers(kafka_image(daemon.client, lambda: kafka_jars)), until_the_end)


def ids_from(cluster: ContainerCluster, topic: str, offsets: dict[int, int]) -> set[str]:
    """The records that a job reads from these offsets on."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in offsets.items()])
    found: set[str] = set()
    unread = set(offsets)
    deadline = time.monotonic() + LIMIT_S
    while unread:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.add(dict(message.headers())[ID_HEADER].decode())
        elif message is not None:  # the end
            unread.discard(message.partition())
    consumer.close()
    return found


def written(configuration: Path, clusters: Clusters, topic: str) -> str:
    configuration.write_text(
        f'[clusters.a]\nbootstrap_servers = "{clusters.source.bootstrap}"\n'
        f'[clusters.b]\nbootstrap_servers = "{clusters.destination.bootstrap}"\n'
        f'[state]\nstore = "sqlite:///{configuration.with_name("state.db")}"\n'
        f'[[jobs]]\nhome = "a"\nname = "j"\ngroup = "{GROUP}"\ntopics = ["{topic}"]\noffsets = "kafka-group:"\n'
        f'[jobs.identity]\nid = "header:{ID_HEADER}"\n'
    )
    return str(with_state(configuration))


def test_a_failover_between_clusters_in_containers_loses_and_doubles_nothing(
    clusters: Clusters, daemon: PrivateDaemon, topic_name: str, tmp_path: Path, capsys: Any
) -> None:
    source, destination = clusters.source, clusters.destination
    assert len(daemon.client.containers.list()) == 2
    source.create_topic(topic_name, PARTITIONS)
    now_ms = clock_ms()
    produce(source, topic_name, make_events("old", 100, PARTITIONS, now_ms - 200_000, seed=1), "old")
    delete_all(source, topic_name)
    events = list(make_events("new", PRODUCED, PARTITIONS, now_ms - 100_000, seed=2))
    produce(source, topic_name, iter(events), "new")
    mirrored = f"a.{topic_name}"

    stored = {0: 180, 1: 210}  # the next offset to read, in the source's numbers
    commit_group(source, GROUP, topic_name, stored)
    unread = ids_from(source, topic_name, stored)
    assert 0 < len(unread) < PRODUCED
    config = written(tmp_path / "reconciler.toml", clusters, topic_name)
    assert main(["track", "-c", config, "--once"]) == 0
    wanted = Counter(event.partition for event in events)
    (folder := tmp_path / "mirror").mkdir()
    with container_mirror(source, destination, IMAGE, folder) as mirror:
        wait_until(lambda: Counter(destination.end_offsets(mirrored)) == wanted, mirror.get_logs, look_s=0.5)
    source.kill()
    assert not source.running

    assert main(["plan", "-c", config]) == 3
    plan = str(tmp_path / "plan.json")
    assert main(["plan", "-c", config, "-o", plan]) == 0
    assert main(["apply", plan, "-c", config, "--yes"]) == 0
    capsys.readouterr()
    assert main(["plan", "--to", "b", "-c", config, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["jobs"][0]["partitions"]
    resumed = {row["partition"]: row["stored_offset"] for row in rows}
    assert resumed != stored
    assert ids_from(destination, mirrored, resumed) == unread
