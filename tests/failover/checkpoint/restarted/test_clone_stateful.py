"""Stateful queries fail over with their state: the results are those of a query that was never interrupted.

Four kinds of state, kept in either way, stopped after a commit and killed in mid-batch; then the commands alone, with
the source gone; then the same queries on the copies, on the other cluster, under its topics' names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.places.checkpoint.reading import read_checkpoint
from reconciler.places.checkpoint.show import describe
from tests.failover.checkpoint.restarted.clone_world import STOPS, Case, Destination, World, fail_over, rounds
from tests.failover.checkpoint.restarted.stateful_queries import PROVIDERS, QUERIES, batches, result, start
from tests.sizes import sampled

pytestmark = pytest.mark.system

PAIRS = [(query, provider) for query in QUERIES for provider in PROVIDERS]
CASES = [(*pair, stop) for stop in STOPS for pair in PAIRS]
EVERY_RUN = [("join", "rocksdb", "killed"), ("windows", "hdfs", "stopped")]
"""One source and two, each way to keep the state, either stop. The thorough run takes all."""


@pytest.fixture(scope="module")
def failed_over(
    request: pytest.FixtureRequest,
    clusters: Any,
    kafka_jars: Path,
    spark: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> World:
    """Everything that this run's tests look at, failed over at once."""
    thorough = request.config.getoption("--thorough")
    cases = tuple(CASES if thorough else EVERY_RUN)
    world = World(tmp_path_factory.mktemp("failover"), cases)
    destination = fail_over(world, "stateful", kafka_jars, clusters.destination.bootstrap)
    run_at_the_destination(world, spark, destination)
    return world


def run_at_the_destination(world: World, spark: Any, destination: Destination) -> None:
    """The queries on their copies, with more records now; and the same queries that never knew another cluster."""
    for homes in rounds(world, destination):
        for query in [start(spark, destination.side, *home) for home in homes]:
            query.awaitTermination()


def kept(cases: list[Any], full: Callable[[Any], Case]) -> list[Any]:
    return sampled(cases, keep=0, always=lambda case: full(case) in EVERY_RUN)


@pytest.mark.parametrize(("query", "provider", "stop"), kept(CASES, lambda case: case))
def test_the_results_are_those_of_a_query_that_was_never_interrupted(
    failed_over: World, query: str, provider: str, stop: str
) -> None:
    before = read_checkpoint(str(failed_over.before(query, provider, stop) / "checkpoint"))
    assert (before.repeats_a_batch, before.committed) == (stop == "killed", stop == "stopped")
    assert describe(failed_over.before(query, provider, stop) / "checkpoint").is_stateful
    after = read_checkpoint(str(failed_over.after(query, provider, stop) / "checkpoint"))
    assert after.query_id == before.query_id
    assert after.last.batch > before.last.batch
    found = result(query, failed_over.after(query, provider, stop))
    assert found == result(query, failed_over.plain(query))
    assert len(found) >= 5


@pytest.mark.parametrize(("query", "provider"), kept(PAIRS, lambda pair: (*pair, "killed")))
def test_a_batch_that_was_put_out_and_not_committed_comes_again_as_it_was(
    failed_over: World, query: str, provider: str
) -> None:
    """So a sink that knows batches by their number, and has this one, is right to leave it at that."""
    number = read_checkpoint(str(failed_over.before(query, provider, "killed") / "checkpoint")).last.batch
    before = batches(failed_over.before(query, provider, "killed"))[number]
    after = failed_over.after(query, provider, "killed")
    assert batches(after)[number] == before
    assert not json.loads((after / "checkpoint" / "_reconciler-clone.json").read_text())["repeats_empty"]
