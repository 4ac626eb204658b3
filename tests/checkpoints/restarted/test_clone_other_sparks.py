"""Stateful queries of another PySpark fail over with their state: the results are those of queries left alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from reconciler.checkpoints.reading import read_checkpoint
from tests.checkpoints.restarted.clone_world import STOPS, World, await_files, fail_over, rounds, running
from tests.checkpoints.restarted.stateful_queries import result
from tests.spark.environments import python_with_pyspark

pytestmark = [pytest.mark.system, pytest.mark.thorough]

KINDS = (
    ("windows", "hdfs"),
    ("unique", "rocksdb"),
    ("join", "rocksdb"),  # its state in the second format
    ("totals", "hdfs"),
    ("transform", "rocksdb"),
)
CASES = tuple((*kind, stop) for stop in STOPS for kind in KINDS)
NAMED = tuple(("named", "rocksdb", stop) for stop in STOPS)
VERSIONS = {"4.3.0": CASES + NAMED}


@pytest.fixture(scope="module")
def failed_over(clusters: Any, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], World]:
    """All queries of a PySpark, failed over at once and run on; once for each version."""

    @cache
    def of(version: str) -> World:
        world = World(tmp_path_factory.mktemp(f"pyspark-{version}"), VERSIONS[version], python_with_pyspark(version))
        destination = fail_over(
            world, f"with-{version}-{uuid.uuid4().hex[:8]}", kafka_jars, clusters.destination.bootstrap
        )
        for number, homes in enumerate(rounds(world, destination)):
            there = world.folder / f"there-{number}"
            with running(there, destination.side, [(*home, None) for home in homes], world.python) as (child, began):
                await_files(child, began, ["done"])
        return world

    return of


@pytest.mark.parametrize(
    ("version", "query", "provider", "stop"),
    [(version, *case) for version, cases in VERSIONS.items() for case in cases],
)
def test_the_results_are_those_of_a_query_that_was_never_interrupted(
    failed_over: Callable[[str], World], version: str, query: str, provider: str, stop: str
) -> None:
    world = failed_over(version)
    before = read_checkpoint(str(world.before(query, provider, stop) / "checkpoint"))
    assert (before.repeats_a_batch, before.committed) == (stop == "killed", stop == "stopped")
    assert before.last.version == (2 if query == "named" else 1)
    after = read_checkpoint(str(world.after(query, provider, stop) / "checkpoint"))
    assert after.query_id == before.query_id
    assert after.last.batch > before.last.batch
    found = result(query, world.after(query, provider, stop))
    assert found == result(query, world.plain(query))
    assert len(found) >= 5
