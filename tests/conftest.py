"""Real clusters for tests marked ``system``: a pair for the whole run, each started when a test first asks for it.

They are processes of this machine, or containers where a Docker daemon is there (``real_clusters``).
Nothing of the lab is imported before such a test runs. Where Java or the jars cannot be had these tests are
skipped with the reason; with RECONCILER_REQUIRE_SYSTEM=1 in the environment they fail instead.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import hypothesis
import pytest

from reconciler.core.errors import ConfigError, Unreachable
from tests.spark.archived import share_classes

if TYPE_CHECKING:
    from tests.demo.lab.kafka import KafkaCluster
    from tests.demo.lab.real_clusters import Clusters
    from tests.world import World

pytest_plugins = (
    "tests.sizes",
    "tests.config.configurations",
    "tests.in_memory",
    "tests.kafka.security.fixtures",
    "tests.spark.fixtures",
    "tests.places.files.fixtures",
    "tests.places.hbase.fixtures",
    "tests.places.postgresql.fixtures",
    "tests.places.sql.fixtures",
    "tests.places.zookeeper.fixtures",
)
"""Fixtures that tests of several rooms use. Importing these modules starts nothing and loads no client."""

share_classes()
# Byte code is kept even where the environment forbids it: workers would rewrite all asserts, and some hundred processes
# compile the product, again in each run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job: children would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
# No input is too slow here: on a busy machine the default of 200 ms would fail any property now and then.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")
for _size in ("COLUMNS", "LINES"):  # a worker of pytest-xdist has those of a terminal that is not there
    os.environ.pop(_size, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-goldens", action="store_true", help="write the golden files of tests/golden again")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that a collection makes is garbage, and it lives to the end: the collector never looks through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """What a command that runs inside this process does to its logging and its collector ends with the test."""
    root, product = logging.getLogger(), logging.getLogger("reconciler")
    handlers, levels = list(root.handlers), (root.level, product.level)
    hooks, collector = (sys.excepthook, threading.excepthook), gc.get_threshold()
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        return (yield)
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        product.setLevel(levels[1])
        sys.excepthook, threading.excepthook = hooks
        signal.signal(signal.SIGINT, on_interrupt)  # a Spark session puts its own there
        gc.set_threshold(*collector)  # a command's own is for seconds: of a whole run's clients none would be collected


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """A test sees the log in pytest's format. PySpark's loggers give theirs to each handler, and pytest adds its own to
    every logger that does not propagate."""
    captured = item.config.pluginmanager.get_plugin("logging-plugin")
    if captured is not None:
        for handler in (captured.caplog_handler, captured.report_handler):
            handler.setFormatter(captured.formatter)


def _cannot(reason: str) -> NoReturn:
    if os.environ.get("RECONCILER_REQUIRE_SYSTEM") == "1":
        pytest.fail(f"system tests are required here: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The cached jars of Kafka; fetched when they are not there. The first run on a machine archives their classes."""
    from reconciler import artifacts
    from tests.demo.lab.archives import archive_kafka

    try:
        artifacts.java_executable()
        jars = artifacts.kafka_jars(print)
    except (ConfigError, Unreachable) as error:
        _cannot(str(error))
    archive_kafka(jars)
    return jars


@pytest.fixture(scope="session")
def clusters(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """The run's pair of clusters. Tests of all workers share them: use topics and groups of ``topic_name``'s making.

    Mirrors into the shared destination need a ``connect`` name each.
    """
    from tests.demo.lab.real_clusters import SharedClusters, chosen

    home = tmp_path_factory.getbasetemp()
    folder = (home.parent if "PYTEST_XDIST_WORKER" in os.environ else home) / "shared-clusters"
    folder.mkdir(exist_ok=True)
    with ExitStack() as until_the_end:
        try:
            begin = chosen(lambda: request.getfixturevalue("kafka_jars"), lambda: tmp_path_factory.mktemp("clusters"))
        except ConfigError as error:
            _cannot(str(error))
        yield SharedClusters(begin, folder, until_the_end)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name no other test has, for a topic or a group, that says which test it belongs to."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{readable}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def world_on(tmp_path: Path, topic_name: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., World]:
    """Makes the world of a job on one cluster: its topic (``topic_name``, or another name), store and configuration."""
    from tests.world import World, commands_here

    def make(cluster: KafkaCluster, name: str = topic_name) -> World:
        return World(cluster, tmp_path, name, commands_here(capsys))

    return make


@pytest.fixture
def world(clusters: Clusters, world_on: Callable[..., World]) -> World:
    """The world of a job on the run's destination."""
    return world_on(clusters.destination)
