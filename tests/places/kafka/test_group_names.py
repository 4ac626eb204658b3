"""A consumer group that is named differently on each cluster, moved there and back between real clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.demo.lab.kafka import KafkaCluster, commit_group
from tests.places.bare_jobs import exits
from tests.world import World

pytestmark = pytest.mark.system


def write(cluster: KafkaCluster, topic: str, numbers: range) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in numbers:
        producer.produce(topic, b"%d" % number, b"k", timestamp=1_700_000_000_000 + number)
    assert producer.flush(30) == 0


def test_a_group_goes_there_and_back_under_its_name_on_each_cluster(world: World, clusters: Any) -> None:
    a, b, topic = clusters.source, clusters.destination, world.topic
    here, there = world.group, f"a.{world.group}"
    config: Path = world.folder / "reconciler.toml"
    config.write_text(
        f'[clusters.a]\nbootstrap_servers = "{a.bootstrap}"\n[clusters.b]\nbootstrap_servers = "{b.bootstrap}"\n'
        f'[topics]\npolicy = "identity"\n[state]\nstore = "files:{world.folder}/state"\n'
        f'[[jobs]]\nname = "clicks"\ngroup = {{a = "{here}", b = "{there}"}}\nhome = "a"\ntopics = ["{topic}"]\n'
        'offsets = "kafka-group:"\n'
    )

    def run(*words: object) -> str:
        return exits(world.run(*words, "-c", config), 0).out

    for cluster in (a, b):
        cluster.create_topic(topic, 1)
    write(a, topic, range(30))
    write(b, topic, range(5, 30))  # the mirror began late
    commit_group(a, there, topic, {0: 1})  # others have these names
    commit_group(b, here, topic, {0: 2})
    run("init")
    hook = ("hook", "--job", "clicks", "--plans", world.folder / "plans")
    run(*hook, "--accept", "new")

    commit_group(a, here, topic, {0: 18})
    run("track", "--once")
    run("move", "--to", "b", "--yes")
    run(*hook)
    assert b.group_offsets(there, topic) == {0: 13}

    commit_group(b, there, topic, {0: 20})
    run("track", "--once")
    run("move", "--to", "a", "--yes")
    run(*hook)
    assert a.group_offsets(here, topic) == {0: 25}
    assert (a.group_offsets(there, topic), b.group_offsets(here, topic)) == ({0: 1}, {0: 2})
