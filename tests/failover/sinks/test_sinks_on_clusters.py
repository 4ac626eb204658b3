"""Stopped or killed, failed over, run on, brought back: each record is in the sink once, or the start is refused.

On real clusters, with real queries. The files of the query say where it was killed; the commands alone decide the rest.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.config.file import load_config
from reconciler.state.jobs import JobState
from reconciler.state.store import open_state
from tests import ROOT
from tests.failover.checkpoint.checkpoint_files import cloned_by
from tests.failover.sinks.program import At, Program
from tests.failover.sinks.queries import Flow
from tests.spark.environments import OURS, python_with
from tests.spark.sent import BASE_MS, Kafka, Sent
from tests.starting import placed
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.system

Kill = Callable[[str, str, Mapping[str, Path]], None]


@dataclass
class World:
    """A topic that is mirrored in both directions, by hand, and the queries' folder."""

    source: Kafka
    destination: Kafka
    topic: str
    folder: Path
    sent: int = 0

    def send(self, until: int) -> None:
        """New records, with their copies: there, marks of transactions shift the numbers."""
        records = [Sent(0, b"%d" % n, b"%d" % n, BASE_MS + 1000 * n) for n in range(self.sent, until)]
        self.source.send(self.topic, records)
        for first in range(0, len(records), 7):
            name = f"mirror of {self.topic}"
            self.destination.send(f"a.{self.topic}", records[first : first + 7], transaction=name)
        self.sent = until

    def config(self, name: str, flow: Flow, checkpoint: Path, *, back: bool = False) -> Path:
        """One job."""
        topic = f"a.{self.topic}" if back else self.topic
        names = f'[topics.names.a]\n"{topic}@b" = "{self.topic}"' if back else ""
        home = "b" if back else "a"
        job = f'topics = ["{topic}"]\noffsets = "checkpoint:{checkpoint}'
        path = self.folder / f"{name}.toml"
        state = f"sqlite:///{flow.folder}-{'back' if back else 'there'}.db"
        open_state(state).create()
        path.write_text(
            f'[clusters.a]\nbootstrap_servers = "{self.source.bootstrap}"\n'
            f'[clusters.b]\nbootstrap_servers = "{self.destination.bootstrap}"\n{names}\n'
            f'[state]\nstore = "{state}"\n'
            f'[[jobs]]\nhome = "{home}"\nname = "clicks"\nsink = "{flow.address}"\n{job}"\n'
        )
        return path

    def fail_over(self, name: str, config: Path, checkpoint: Path) -> Path:
        """Track, plan and clone."""
        copy, plan = self.folder / f"{name}-copy", self.folder / f"{name}.plan.json"
        tracked = ran("track", "-c", config, "--once")
        assert tracked.returncode == 0, tracked.stdout + tracked.stderr
        planned = ran("plan", "-c", config, "--job", "clicks", "-o", plan)
        assert planned.returncode == 0, planned.stdout + planned.stderr
        cloned_by(config, plan, checkpoint, copy)
        return copy


def ran(*words: object) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "reconciler", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)


@pytest.fixture
def world(clusters: Any, topic_name: str, tmp_path: Path) -> World:
    made = World(Kafka(clusters.source.bootstrap), Kafka(clusters.destination.bootstrap), topic_name, tmp_path)
    made.source.create(topic_name)
    made.destination.create(f"a.{topic_name}")
    return made


def forget(log: Path, batch: int = 3) -> None:
    """The log as a query leaves it that is killed right before it writes this batch's entry."""
    (log / str(batch)).unlink()
    (log / f".{batch}.crc").unlink()


def refused_at_home(world: World, config: Path) -> None:
    """The original must not go on, now that its copy has run."""
    state = load_config(config).state
    assert state is not None
    placed(JobState(open_state(state), "clicks"), "a")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RECONCILER_PLANS": str(world.folder / "plans")}
    started = world.folder / "started"
    words = ["hook", "-c", config, "--job", "clicks", "--", "touch", started]
    command = [sys.executable, "-m", "reconciler", *map(str, words)]
    hooked = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)
    assert hooked.returncode == 4, hooked.stderr
    assert "without an error" in hooked.stderr
    assert not started.exists()
    checked = ran("plan", "-c", config, "--job", "clicks", "--format", "json")
    assert checked.returncode == 4
    assert [row["outcome"] for row in json.loads(checked.stdout)["jobs"][0]["sinks"]] == ["drops"]


def test_killed_in_a_batch_and_failed_over_each_record_is_in_the_files_once(spark: Any, world: World) -> None:
    """One query died after the sink had its batch, one before."""
    flows = {name: Flow("files", str(world.folder / name)) for name in ("taken", "open")}
    begun = {name: world.folder / f"{name}-checkpoint" for name in flows}
    world.send(35)
    run(spark, flows, world.source, world.topic, begun)
    for name, checkpoint in begun.items():
        forget(checkpoint / "commits")
        if name == "open":
            forget(Path(flows[name].folder) / "out" / "_spark_metadata")
    configs = {name: world.config(name, flow, begun[name]) for name, flow in flows.items()}
    copies = {name: world.fail_over(name, config, begun[name]) for name, config in configs.items()}
    world.send(60)
    found = run(spark, flows, world.destination, f"a.{world.topic}", copies)
    assert found == {name: list(range(60)) for name in flows}

    refused_at_home(world, configs["taken"])


def run(
    spark: Any, flows: dict[str, Flow], at: Kafka, topic: str, checkpoints: dict[str, Path]
) -> dict[str, list[int]]:
    """All queries at once, to the topic's end, and what their sinks hold then."""
    queries = [flow.start(spark, at.bootstrap, topic, checkpoints[name]) for name, flow in flows.items()]
    for query in queries:
        query.awaitTermination()
    return {name: flow.ids(spark) for name, flow in flows.items()}


@pytest.fixture
def python_of_iceberg() -> str:
    return str(python_with("pyspark-4.0.4", "pyspark==4.0.4", *OURS))


def killed_and_brought_back(world: World, program: Program, kill: Kill) -> None:
    """kill -9, twice: of the queries, and of their copies. What is refused, and what each sink holds at the end."""
    flows, begun = program.flows, {kind: world.folder / f"{kind}-checkpoint" for kind in program.flows}
    mirrored = f"a.{world.topic}"
    world.send(80)
    kill(world.source.bootstrap, world.topic, begun)
    configs = {kind: world.config(f"{kind}-there", flow, begun[kind]) for kind, flow in flows.items()}
    copies = {kind: world.fail_over(f"{kind}-there", configs[kind], begun[kind]) for kind in flows}
    world.send(160)
    kill(world.destination.bootstrap, mirrored, copies)
    homes = {kind: world.config(f"{kind}-back", flow, copies[kind], back=True) for kind, flow in flows.items()}
    for kind, config in configs.items():
        if At(flows[kind], copies[kind]).next_batch > At(flows[kind], begun[kind]).next_batch + 1:
            refused_at_home(world, config)
    returned = {kind: world.fail_over(f"{kind}-back", homes[kind], copies[kind]) for kind in flows}
    world.send(190)
    found = program.run(world.source.bootstrap, world.topic, returned)
    assert found == {kind: list(range(190)) for kind in flows}
    shutil.rmtree(world.folder, ignore_errors=True)


@pytest.mark.thorough
@pytest.mark.parametrize(("step", "of"), [("writing", "files"), ("taken", "delta"), ("planned", "app")])
def test_killed_at_every_step_and_brought_back_each_record_is_in_each_sink_once(
    world: World, step: str, of: str
) -> None:
    """Of one sink's query at this very step; the two others die wherever they are."""
    pytest.importorskip("deltalake")
    flows = {kind: Flow(kind, str(world.folder / kind)) for kind in ("files", "delta", "app")}
    program = Program(flows, world.folder / "program")

    def kill(bootstrap: str, topic: str, checkpoints: Mapping[str, Path]) -> None:
        assert program.killed_at(step, of, bootstrap, topic, checkpoints, skip=2), f"{step} was over each time"

    killed_and_brought_back(world, program, kill)


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["taken"])
def test_killed_at_every_step_and_brought_back_each_record_is_in_iceberg_once(
    world: World, python_of_iceberg: str, step: str
) -> None:
    pytest.importorskip("pyiceberg")
    flows = {"iceberg": Flow("iceberg", str(world.folder / "iceberg"))}
    program = Program(flows, world.folder / "program", python_of_iceberg)

    def kill(bootstrap: str, topic: str, checkpoints: Mapping[str, Path]) -> None:
        assert program.killed_at(step, "iceberg", bootstrap, topic, checkpoints, skip=2), f"{step} was over each time"

    killed_and_brought_back(world, program, kill)
