"""Two clusters in memory, and a configuration of several jobs, for commands that run in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.corpus import Estate
from tests.golden.world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


@pytest.fixture
def estate(world: World) -> Estate:
    return Estate(world)
