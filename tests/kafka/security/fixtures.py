"""The secured broker and a world on it, for test modules that name this one in ``pytest_plugins``: one for the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.security.secured import Secured, secured_broker
from tests.world import World


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Secured]:
    """Tests share it: use topics and groups of your own, and give the user what you need before each use."""
    found = secured_broker(tmp_path_factory.mktemp("secured"), kafka_jars)
    with found.tokens, found.cluster:
        found.add_user()
        yield found


@pytest.fixture
def secured_world(secured: Secured, world_on: Callable[..., World]) -> World:
    """A failed-over world on the secured broker; its own reads and writes go through the plain door."""
    return world_on(secured.cluster)
