"""There and back again, by nothing but the commands that the page of moves shows."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.demo.lab.kafka import KafkaCluster
from tests.documents.runbooks import PAGES, Person, commands
from tests.failover.checkpoint.checkpoint_files import Files
from tests.jobs.watch.watching import runs_here
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

    def does(self, section: str, *, but: str = "") -> list[CommandResult]:
        """The section's commands, without those of one name. Each ends with the code that a person waits for."""
        found = [command for command in commands(PAGE, section) if not but or f" {but} " not in command]
        ended = [self.person.runs(command) for command in found]
        right = [3 if " plan " in command and " -o " not in command else 0 for command in found]
        assert [each.code for each in ended] == right, [each.output for each in ended]
        return ended

    def lives_on(self, cluster: str) -> bool:
        _, _, status = commands(PAGE, "There")
        return f"on {cluster}" in self.person.runs(status).out


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
    made, _, known = estate.does("Once")
    assert "is ready" in made.out
    assert "lives on a, its home, from now on: starts" in known.out

    moved, hook, status = estate.does("There")
    assert "clicks: starts exactly" in moved.out
    assert started(hook) == estate.right(estate.b, estate.on_b, ON_A)
    assert "on b" in status.out

    estate.processed(estate.b, estate.on_b, ON_B)  # the job has gone on there
    _, moved, hook, status = estate.does("Back")
    assert "clicks: starts exactly" in moved.out
    assert started(hook) == estate.right(estate.a, estate.a.topic, ON_B)
    assert "on a" in status.out


@pytest.mark.parametrize("estate", ["group"], indirect=True)
def test_what_a_group_has_done_since_it_was_tracked_is_counted(estate: Estate) -> None:
    """The anchors are those of the move to b: all work there comes again, and is said before."""
    estate.processed(estate.a, estate.a.topic, ON_A)
    estate.does("Once")
    estate.does("There")
    estate.processed(estate.b, estate.on_b, ON_B)
    moved, hook, _ = estate.does("Back", but="track")
    assert "clicks: starts early, at most 20 records again" in moved.out
    assert started(hook) == estate.right(estate.a, estate.a.topic, ON_A)


@pytest.mark.parametrize(("estate", "policy"), [("table", "default"), ("group", "default")], indirect=True)
def test_a_plan_moves_a_job_and_is_taken_back(estate: Estate) -> None:
    estate.processed(estate.a, estate.a.topic, ON_A)
    estate.does("Once")
    drilled, _, checked = estate.does("In your own time")
    assert "could fail over" in drilled.out
    assert "2 exact" in checked.out

    _, applied, shown = estate.does("Where plans are approved, or without hooks")
    assert applied.code == 0
    assert started(shown) == estate.right(estate.b, estate.on_b, ON_A)
    assert estate.lives_on("b")
    cancel, back = commands(PAGE, "How to go back")
    assert estate.person.runs(back).code == 0
    assert estate.lives_on("a")

    (move, *_) = commands(PAGE, "There")
    assert estate.person.runs(move).code == 0
    assert not estate.lives_on("a")
    assert estate.person.runs(cancel).code == 0
    assert estate.lives_on("a")


def test_every_command_of_the_page_is_in_one_of_these_sections() -> None:
    tested = ["Once", "There", "Back", "In your own time", "Where plans are approved, or without hooks"]
    listed = [command for section in [*tested, "How to go back"] for command in commands(PAGE, section)]
    text = (PAGES / PAGE).read_text(encoding="utf-8")
    assert sorted(listed) == sorted(
        line.strip() for line in text.splitlines() if line.startswith("    ") and "reconciler " in line
    )
    assert "`reconciler" not in text.replace("`reconciler mirror`", "")
