"""Golden files: the option that records them, the world that makes them, and the check for orphans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.golden.compare import RECORD, ROOT, Goldens
from tests.golden.corpus import Estate
from tests.golden.world import World

_deselected: list[str] = []
_skipped: list[str] = []
"""Also of other Pythons' words: their golden files have a test, which has not asked for them."""


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    _deselected.extend(item.nodeid for item in items if ROOT in item.path.parents)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and report.nodeid.startswith("tests/golden/"):
        _skipped.append(report.nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The check for orphans comes last: it needs to know what all others have asked for."""
    items.sort(key=lambda item: item.name == "test_every_golden_file_has_its_test")


@pytest.fixture(scope="session")
def goldens(request: pytest.FixtureRequest) -> Goldens:
    return Goldens(request.config.getoption(RECORD))


@pytest.fixture
def all_ran(request: pytest.FixtureRequest) -> bool:
    """True if every golden test has run in this process, and none was skipped or has failed."""
    here = [item for item in request.session.items if ROOT in item.path.parents]
    whole = {item.path for item in here} == set(ROOT.glob("test_*.py"))
    parts = any("::" in argument for argument in request.config.invocation_params.args)
    return whole and not parts and not (_deselected or _skipped or request.session.testsfailed)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """In a folder whose path has always the same length: sentences with it are folded at the terminal's width."""
    with TemporaryDirectory(prefix="golden-", dir="/tmp") as folder:
        yield World(Path(folder), monkeypatch)


@pytest.fixture
def estate(world: World) -> Estate:
    """A configuration of several jobs whose partitions have every verdict."""
    return Estate(world)
