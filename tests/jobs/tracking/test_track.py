"""``reconciler track`` beside the live members of a group."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.config.file import load_config
from reconciler.places.kafka.group import KafkaGroupStore
from tests.starting import state_of, with_state
from tests.world import CommandResult, World, source_record

pytestmark = pytest.mark.system


def test_a_groups_commits_are_read_beside_its_live_members_and_without_joining_them(
    clusters: Any, world: World
) -> None:
    from confluent_kafka import Consumer

    servers = clusters.source.bootstrap
    World(clusters.source, world.folder, world.topic, lambda _: CommandResult(0, "", "")).deliver(6, topic=world.topic)
    settings = {"bootstrap.servers": servers, "group.id": world.group}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    config = with_state(world.config(world.job(store="kafka-group:"), source=f'bootstrap_servers = "{servers}"'))
    try:
        consumer.subscribe([world.topic])
        message = consumer.poll(60)
        assert message is not None
        consumer.commit(message, asynchronous=False)
        assert world.run("track", "-c", config, "--once").code == 0
        (job,) = load_config(config).jobs
        (entry,) = state_of(config, job.name, job.home).newest(1)
        ((at, known),) = entry.numbers.items()
        assert known.record is not None
        assert (at.topic, at.partition, known.number, known.record.id) == (world.topic, 0, 1, source_record(0).id)
        following = consumer.poll(60)  # the group was not rebalanced
        assert following is not None
        assert (following.error(), following.offset()) == (None, 1)
    finally:
        consumer.close()
    commits = KafkaGroupStore({"bootstrap.servers": servers})
    assert commits.read(world.group, ["no-such-topic"]) == []
    assert commits.read(f"nobody in {world.group}", [world.topic]) == []
    commits.close()
