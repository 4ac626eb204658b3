"""The three sizes of a test run, and the order in which workers take the tests.

``pytest`` touches every claim once, on real servers. ``pytest -m "not system"`` runs the fast tests only.
``pytest -m "" --thorough`` runs every case: each kill step of each store, every seed, other PySparks, the browser.

A case that only repeats a claim for another step, seed or version has the marker ``thorough``. ``sampled`` gives that
marker to all but a few cases of a list.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

SEED = int(os.environ.get("RECONCILER_TEST_SEED", "1"))
"""Chooses the cases that ``sampled`` keeps. All workers of a run must read the same number."""

SHARED = {
    "golden": ("tests/golden/",),  # they count together which files were asked for
    "hbase": ("tests/places/hbase/", "[hbase"),
    "hdfs": ("tests/places/files/", "tests/failover/checkpoint/test_clone_hdfs.py", "[files_hdfs"),
    "mysql": ("tests/places/sql/", "[mysql"),
    "postgresql": ("tests/places/postgresql/", "[postgresql"),
    "secured": ("tests/kafka/security/", "tests/config/test_planted.py"),
    "spark ranges": ("tests/spark/batches/", "tests/spark/audit/", "tests/failover/sinks/test_sinks_on_clusters.py"),
    "spark streams": (
        "tests/jobs/drill/test_drill_kafka.py",
        "tests/spark/job/test_job_kafka.py",
        "tests/failover/checkpoint/restarted/test_clone_stateful.py",
        *(f"tests/failover/checkpoint/test_{name}.py" for name in ("clone_kafka", "checkpoint_kafka")),
    ),
    "zookeeper": ("tests/places/zookeeper/", "[zookeeper"),
}
"""Units larger than a file, mostly for servers that one worker starts once: name, and what their tests' ids contain.

Tests on Spark are two units in the thorough run, so that two workers have a session, and both have come to the end of
theirs when the others have done the rest. In other runs one worker has them all: one session less is warmed up.
"""

APART = ("tests/lives/", "tests/spark/batches/lives/")
"""Simulated lives share nothing. Each case is a unit, or one worker would still have hundreds when the others end."""

SLOWEST = (
    "tests/soak/",
    "spark streams",
    "spark ranges",
    "hbase",
    "tests/demo/test_demo.py",
    "tests/spark/test_other_pysparks.py",
    "tests/deploy/test_containers.py",
    "tests/failover/faults/test_faults_writing.py",
    "secured",
    "tests/demo/lab/test_lab.py",
    "zookeeper",
    "postgresql",
    "mysql",
    "hdfs",
    "tests/documents/test_readme.py",
    "tests/documents/test_guide.py",
    "tests/failover/faults/test_faults_leaders.py",
    "tests/failover/faults/test_faults_reading.py",
    "tests/jobs/watch/test_watch.py",
    "golden",
    "tests/hostile/",
    "tests/cli/terminal/test_output.py",
    "tests/spark/",
    "tests/failover/checkpoint/",
    "tests/simulation/",
    "tests/kafka/",
    "tests/failover/",
)
"""Units that take long, the longest first: a worker that began one of them last would end long after the others."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="run every case, also those marked thorough")


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """True in the thorough run, for tests that repeat their rounds, or take every step, in it alone."""
    return bool(request.config.getoption("--thorough"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--thorough"):
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    items.sort(key=lambda item: _rank(unit_of(item.nodeid)))


def unit_of(nodeid: str) -> str:
    """The unit that one worker runs as a whole: a file, or all tests that share a server which is slow to start."""
    if nodeid.startswith(APART):
        return nodeid
    for name, marks in SHARED.items():
        if any(mark in nodeid for mark in marks):
            return name
    return nodeid.partition("::")[0]


def _rank(unit: str) -> int:
    return next((number for number, name in enumerate(SLOWEST) if unit.startswith(name)), len(SLOWEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    thorough: bool = config.getoption("--thorough")

    class Units(LoadScopeScheduling):
        """Hands out whole units, in the order of the collection."""

        def _split_scope(self, nodeid: str) -> str:
            unit = unit_of(nodeid)
            return "spark" if unit.startswith("spark ") and not thorough else unit

    return Units(config, log)


def sampled(
    cases: Iterable[Any], keep: int, *, always: Callable[[Any], bool] = lambda case: False, seed: int = SEED
) -> list[Any]:
    """``cases`` as parameters: ``keep`` of them, and those that are ``always`` run, in every run; others when thorough.

    The choice depends on ``seed`` and on the number of cases only.
    """
    listed = list(cases)
    others = [number for number, case in enumerate(listed) if not always(case)]
    kept = set(random.Random(seed).sample(others, min(keep, len(others))))
    return [case if always(case) or number in kept else _thorough(case) for number, case in enumerate(listed)]


def _thorough(case: Any) -> Any:
    if isinstance(case, tuple) and hasattr(case, "marks"):  # a ParameterSet, which may have an id of its own
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.thorough])
    if isinstance(case, (tuple, list)):
        return pytest.param(*case, marks=pytest.mark.thorough)
    return pytest.param(case, marks=pytest.mark.thorough)
