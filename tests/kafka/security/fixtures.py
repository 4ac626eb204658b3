"""The secured broker and a world on it, for test modules that name this one in ``pytest_plugins``: one for the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.kafka.security.secured import Secured, secured_broker
from tests.world import World, a_world


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Secured]:
    """Tests share it: use topics and groups of your own, and give the user what you need before each use."""
    found = secured_broker(tmp_path_factory.mktemp("secured"), kafka_jars)
    with found.tokens, found.cluster:
        found.add_user()
        yield found


@pytest.fixture
def secured_world(
    secured: Secured, tmp_path: Path, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> Iterator[World]:
    """A failed-over world on the secured broker; its own reads and writes go through the plain door."""
    yield from a_world(SimpleNamespace(destination=secured.cluster), tmp_path, topic_name, capsys)
