"""The world of a job that has failed over, on the run's own clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.world import World, a_world


@pytest.fixture
def world(clusters: Any, tmp_path: Path, topic_name: str, capsys: pytest.CaptureFixture[str]) -> Iterator[World]:
    yield from a_world(clusters, tmp_path, topic_name, capsys)
