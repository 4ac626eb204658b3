"""A failover, and a failback after it, by nothing but the commands that the runbooks show."""

from __future__ import annotations

import json
import re

import pytest

from tests.documents.runbooks import Person, commands, settings
from tests.lab.kafka import KafkaCluster
from tests.watch.watching import runs_here
from tests.world import CommandResult, World

pytestmark = pytest.mark.system

RECORDS = (24, 18)
ON_A, ON_B = (9, 3), (17, 11)
"""The last record that the job has processed in each partition: before the failover, and before the failback."""


class Estate:
    """Two clusters that hold the same records under other offsets, and a job of one of them."""

    def __init__(self, world: World, a: KafkaCluster, policy: str) -> None:
        self.b, self.policy = world, policy
        self.a = World(a, world.folder, world.topic, lambda _: CommandResult(0, "", ""))
        self.on_b = world.mirrored if policy == "default" else world.topic
        self.a.deliver(*RECORDS, topic=world.topic)
        self.b.deliver(*RECORDS, topic=self.on_b, burst=3)
        self.person = Person(world.folder)
        job = world.folder / "bin" / "spark-submit"
        job.parent.mkdir()
        job.write_text('#!/bin/sh\ncat "$RECONCILER_STARTING_OFFSETS"\n')
        job.chmod(0o755)

    def right(self, on: World, topic: str, numbers: tuple[int, ...]) -> dict[int, int]:
        return {partition: on.offset_of(number, partition, topic) + 1 for partition, number in enumerate(numbers)}

    def configure(self) -> None:
        """The configuration that the people of this job have, and the one that the failback's runbook shows."""
        extra = f'[topics]\npolicy = "{self.policy}"'
        source = f'bootstrap_servers = "{self.a.cluster.bootstrap}"'
        self.b.config(extra=extra, source=source).rename(self.b.folder / "reconciler.toml")
        text = settings("failback.md", "By the hook").replace("kafka-a:9092", self.a.cluster.bootstrap)
        text = text.replace('"a.events@b" = "events"', f'"{self.on_b}@b" = "{self.b.topic}"')
        if self.policy == "identity":
            text = re.sub(r"^\[topics\..*\n.*\n", f"{extra}\n", text, flags=re.MULTILINE)
        text = text.partition("[[jobs]]")[0]  # the jobs are their own
        job = self.b.job("clicks", self.on_b).replace("home = 'a'", "home = 'b'")
        (self.b.folder / "failback.toml").write_text(f"{text}\n{job}\n")


@pytest.fixture(params=["default", "identity"])
def estate(request, clusters, world: World) -> Estate:
    return Estate(world, clusters.source, request.param)


def test_the_runbooks_alone_lead_through_a_failover_and_a_failback(estate: Estate) -> None:
    runs_here(estate.a, *ON_A, topic=estate.a.topic)
    estate.configure()
    shown = [command.split()[1] for command in commands("failover.md")]
    assert shown == ["check", "plan", "apply", "apply", "check", "show"]
    ended = [estate.person.runs(command) for command in commands("failover.md")]
    assert [each.code for each in ended] == [3, 0, 0, 0, 0, 0], [each.output for each in ended]
    assert "0 records will be read again" in ended[0].out
    right = estate.right(estate.b, estate.on_b, ON_A)
    assert estate.b.offsets(estate.on_b) == right
    assert json.loads(ended[-1].out) == {estate.on_b: {str(number): offset for number, offset in right.items()}}

    runs_here(estate.b, *ON_B, topic=estate.on_b)  # the job has gone on, on the other cluster
    assert [command.split()[1] for command in commands("failback.md")] == ["check", "plan", "apply", "check", "hook"]
    ended = [estate.person.runs(command) for command in commands("failback.md")]
    assert [each.code for each in ended] == [3, 0, 0, 0, 0], [each.output for each in ended]
    assert "0 records will be read again" in ended[0].out
    right = estate.right(estate.a, estate.a.topic, ON_B)
    assert estate.b.offsets(estate.a.topic) == right
    started = json.loads(ended[-1].out.splitlines()[-1])
    assert started == {estate.a.topic: {str(number): offset for number, offset in right.items()}}

    back = estate.person.runs("reconciler rollback failback.plan.json -c reconciler.toml")
    assert back.code == 0, back.output
    assert estate.b.offsets(estate.on_b) == estate.right(estate.b, estate.on_b, ON_B)

    (by_hook,) = commands("failback.md", "By the hook")
    ended_by_hook = estate.person.runs(by_hook)
    assert ended_by_hook.code == 0, ended_by_hook.output
    assert json.loads(ended_by_hook.out.splitlines()[-1]) == started
