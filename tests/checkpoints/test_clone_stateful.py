"""Stateful queries fail over with their state: the results are those of a query that was never interrupted.

Four kinds of state, kept in either way, stopped after a commit and killed in mid-batch; then the commands alone, with
the source gone; then the same queries on the copies, on the other cluster, under its topics' names.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.checkpoints.show import describe
from tests.checkpoints.checkpoint_files import command
from tests.checkpoints.clone_world import Destination, Source, await_files, kill, last_words, running
from tests.checkpoints.stateful_queries import PROVIDERS, QUERIES, batches, result, start

pytestmark = pytest.mark.system

STOPS = ("stopped", "killed")
CASES = [(query, provider, stop) for stop in STOPS for query in QUERIES for provider in PROVIDERS]
WITH_ENDS = "hdfs"
"""Queries killed after they had put their batch out; the end of that batch is tracked too."""


@dataclass
class World:
    """Where each case's query runs: before the failover, and after it."""

    folder: Path

    def before(self, query: str, provider: str, stop: str) -> Path:
        return self.folder / stop / f"{query}-{provider}"

    def after(self, query: str, provider: str, stop: str) -> Path:
        return self.folder / "after" / stop / f"{query}-{provider}"

    def plain(self, query: str) -> Path:
        return self.folder / "plain" / query


def job(name: str, store: str) -> str:
    topics = ["ORDERS", "PAYS"] if name.startswith("join") else ["ORDERS"]
    return f'[[jobs]]\nname = "{name}"\ngroup = "{name}"\ntopics = {json.dumps(topics)}\nstore = "{store}"\n'


def configuration(world: World, source: Source, destination: Destination) -> Path:
    """One job a checkpoint; where the end of a batch is wanted, another one for it."""
    lines = [
        f'[source]\nalias = "a"\nbootstrap_servers = "{source.side.bootstrap}"',
        f'[destination]\nbootstrap_servers = "{destination.side.bootstrap}"',
        f'[anchors]\nstore = "sqlite:///{world.folder}/anchors.db"',
    ]
    for query, provider, stop in CASES:
        name, store = f"{query}-{provider}-{stop}", f"checkpoint:{world.before(query, provider, stop)}/checkpoint"
        lines.append(job(name, store))
        if stop == "killed" and provider == WITH_ENDS:
            lines.append(job(f"{name}-end", f"{store}?position=end"))
    path = world.folder / "reconciler.toml"
    path.write_text("\n".join(lines).replace("ORDERS", source.side.orders).replace("PAYS", source.side.pays))
    return path


@pytest.fixture(scope="module")
def failed_over(clusters: Any, kafka_jars: Path, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    from reconciler.lab.kafka import KafkaCluster

    world = World(tmp_path_factory.mktemp("failover"))
    with KafkaCluster("lost", world.folder / "lost", kafka_jars) as lost:
        source = Source(lost.bootstrap, "stateful")
        destination = Destination(clusters.destination.bootstrap, source.side)
        run_at_the_source(world, source)
        config = configuration(world, source, destination)
        assert command("track", "-c", config, "--once") == 0
        lost.kill()
    destination.send(range(120))
    plan = world.folder / "plan.json"
    assert command("plan", "-c", config, "-o", plan) == 0
    for query, provider, stop in CASES:
        old, new = world.before(query, provider, stop), world.after(query, provider, stop)
        shutil.copytree(old / "output", new / "output")
        arguments = [old / "checkpoint", new / "checkpoint", "--plan", plan, "--job", f"{query}-{provider}-{stop}"]
        more = ["-c", config] if provider == WITH_ENDS else []
        assert command("checkpoint", "clone", *arguments, *more) == 0
    run_at_the_destination(world, spark, destination)
    return world


def run_at_the_source(world: World, source: Source) -> None:
    """All queries over the first records; then over more of them, into a batch that is killed."""
    source.send(range(60))
    names = [(query, provider) for query in QUERIES for provider in PROVIDERS]
    killed = {name: world.before(*name, "killed") for name in names}
    with running(world.folder, source.side, [(*name, home, None) for name, home in killed.items()]) as (child, began):
        await_files(child, began, ["done"])
    shutil.copytree(world.folder / "killed", world.folder / "stopped")
    source.send(range(60, 100))
    places = [(*name, home, "after" if name[1] == WITH_ENDS else "before") for name, home in killed.items()]
    with running(world.folder, source.side, places) as (child, began):
        await_files(child, began, [f"{query}-{provider}" for query, provider in names])
        kill(child)


def run_at_the_destination(world: World, spark: Any, destination: Destination) -> None:
    """The queries on their copies, with more records now; and the same queries that never knew another cluster.

    Copies of one query have its id, and Spark runs one query of an id at a time: so in two rounds.
    """
    destination.send(range(120, 160))
    for topic in (destination.side.orders, destination.side.pays):
        destination.copy(topic, last_words())
    plain = [(query, "hdfs", world.plain(query)) for query in QUERIES]
    stopped, killed = ([(*case[:2], world.after(*case)) for case in CASES if case[2] == stop] for stop in STOPS)
    for homes in (stopped, killed + plain):
        for query in [start(spark, destination.side, *home) for home in homes]:
            query.awaitTermination()


@pytest.mark.parametrize(("query", "provider", "stop"), CASES)
def test_the_results_are_those_of_a_query_that_was_never_interrupted(
    failed_over: World, query: str, provider: str, stop: str
) -> None:
    before = describe(failed_over.before(query, provider, stop) / "checkpoint")
    assert (before.repeats, before.committed) == (stop == "killed", stop == "stopped")
    assert before.operators
    after = describe(failed_over.after(query, provider, stop) / "checkpoint")
    assert after.query_id == before.query_id
    assert after.last_batch > before.last_batch
    found = result(query, failed_over.after(query, provider, stop))
    assert found == result(query, failed_over.plain(query))
    assert len(found) >= 5


@pytest.mark.parametrize("query", QUERIES)
def test_a_batch_that_was_put_out_and_not_committed_comes_again_as_it_was(failed_over: World, query: str) -> None:
    """So a sink that knows batches by their number, and has this one, is right to leave it at that."""
    number = describe(failed_over.before(query, WITH_ENDS, "killed") / "checkpoint").last_batch
    before = batches(failed_over.before(query, WITH_ENDS, "killed"))[number]
    assert batches(failed_over.after(query, WITH_ENDS, "killed"))[number] == before


@pytest.mark.parametrize("query", QUERIES)
def test_a_batch_whose_end_is_not_known_is_repeated_empty(failed_over: World, query: str) -> None:
    home = failed_over.before(query, "rocksdb", "killed") / "checkpoint"
    new = failed_over.after(query, "rocksdb", "killed") / "checkpoint"
    number = describe(home).last_batch
    assert manifest(new)["repeats_empty"]
    entries = [(new / "offsets" / str(n)).read_text().splitlines()[2:] for n in (number - 1, number)]
    assert entries[0] == entries[1]


def manifest(home: Path) -> dict[str, Any]:
    return json.loads((home / "_reconciler-clone.json").read_text())
