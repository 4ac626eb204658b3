"""There and back again, by nothing but the commands that the page of moves shows."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.checkpoints.checkpoint_files import Files
from tests.documents.runbooks import Person, commands
from tests.lab.kafka import KafkaCluster
from tests.watch.watching import runs_here
from tests.world import CommandResult, World

pytestmark = pytest.mark.system

PAGE = "move-jobs.md"
RECORDS = (24, 18)
ON_A, ON_B = (9, 3), (17, 11)
"""The last record that the job has processed in each partition: before the move to b, and before the way back."""


class Estate:
    """Two clusters that hold the same records under other offsets, and a job of one of them."""

    def __init__(self, world: World, a: KafkaCluster, policy: str, kind: str) -> None:
        self.b, self.kind, self.batch = world, kind, 0
        self.checkpoint = world.folder / "checkpoint"
        addresses = {"group": "kafka-group:", "checkpoint": f"checkpoint:{self.checkpoint}"}
        world.address = addresses.get(kind, world.address)
        self.a = World(a, world.folder, world.topic, lambda _: CommandResult(0, "", ""))
        self.on_b = world.mirrored if policy == "default" else world.topic
        self.a.deliver(*RECORDS, topic=world.topic)
        self.b.deliver(*RECORDS, topic=self.on_b, burst=3)
        self.person = Person(world.folder)
        job = world.folder / "bin" / "spark-submit"
        job.parent.mkdir()
        job.write_text('#!/bin/sh\ncat "$RECONCILER_STARTING_OFFSETS"\n')
        job.chmod(0o755)
        extra = f'[topics]\npolicy = "{policy}"\n[state]\nstore = "sqlite:///{world.folder}/state.db"'
        source = f'bootstrap_servers = "{a.bootstrap}"'
        world.config(extra=extra, source=source).rename(world.folder / "reconciler.toml")

    def right(self, on: World, topic: str, numbers: tuple[int, ...]) -> dict[str, dict[str, int]]:
        return {topic: {str(part): on.offset_of(number, part, topic) + 1 for part, number in enumerate(numbers)}}

    def processed(self, on: World, topic: str, numbers: tuple[int, ...]) -> None:
        """The job has processed records up to these: a table has its anchors, ``track`` takes those of the others."""
        if self.kind == "table":
            runs_here(on, *numbers, topic=topic)
            return
        offsets = {int(part): offset for part, offset in self.right(on, topic, numbers)[topic].items()}
        if self.kind == "group":
            consumer = Consumer({"bootstrap.servers": on.cluster.bootstrap, "group.id": on.group})
            at = [TopicPartition(topic, part, offset) for part, offset in offsets.items()]
            consumer.commit(offsets=at, asynchronous=False)
            consumer.close()
        else:
            self.has_run(topic, offsets)

    def has_run(self, topic: str, offsets: dict[int, int]) -> None:
        """The query has run another batch, in the folder where it lives."""
        if not self.batch:
            Files(self.checkpoint).began({topic: dict.fromkeys(offsets, 0)})
        folder = self.checkpoint if not self.batch else self.checkpoint.with_name("checkpoint-2")
        Files.at(folder).batch(self.batch, {topic: offsets})
        self.batch += 1

    def tracked(self) -> None:
        if self.kind != "table":
            ended = self.person.runs("reconciler track -c reconciler.toml --once")
            assert (ended.code, " 2 " in ended.out) == (0, True), ended.output

    def does(self, section: str) -> list[CommandResult]:
        """The section's commands, each of which ends with 0."""
        ended = [self.person.runs(command) for command in commands(PAGE, section)]
        assert [each.code for each in ended] == [0] * len(ended), [each.output for each in ended]
        return ended


@pytest.fixture(params=["default", "identity"])
def policy(request) -> str:
    return request.param


@pytest.fixture(params=["table", "group", "checkpoint"])
def estate(request, policy: str, clusters, world: World) -> Estate:
    return Estate(world, clusters.source, policy, request.param)


def started(ended: CommandResult) -> dict[str, dict[str, int]]:
    """The offsets that the job has found."""
    return json.loads(ended.out.splitlines()[-1])


def test_the_page_alone_leads_there_and_back(estate: Estate) -> None:
    estate.processed(estate.a, estate.a.topic, ON_A)
    made, known = estate.does("Once")
    assert "is ready" in made.out
    assert "lives on a, its home, from now on: starts" in known.out
    estate.tracked()

    moved, hook, status = estate.does("There")
    assert "clicks: starts exactly" in moved.out
    assert started(hook) == estate.right(estate.b, estate.on_b, ON_A)
    assert "on b" in status.out

    estate.processed(estate.b, estate.on_b, ON_B)  # the job has gone on there
    estate.tracked()
    moved, hook, status = estate.does("Back")
    assert "clicks: starts exactly" in moved.out
    assert started(hook) == estate.right(estate.a, estate.a.topic, ON_B)
    assert "on a" in status.out


@pytest.mark.parametrize("estate", ["group"], indirect=True)
def test_what_a_group_has_done_since_it_was_tracked_is_counted(estate: Estate) -> None:
    """The anchors are those of the move to b: all work there comes again, and is said before."""
    estate.processed(estate.a, estate.a.topic, ON_A)
    estate.does("Once")
    estate.tracked()
    estate.does("There")
    estate.processed(estate.b, estate.on_b, ON_B)
    moved, hook, _ = estate.does("Back")
    assert "clicks: starts early, at most 20 records again" in moved.out
    assert started(hook) == estate.right(estate.a, estate.a.topic, ON_A)
