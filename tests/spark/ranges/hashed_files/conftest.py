"""The world of this room's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.spark.ranges import hashed_files
from tests.spark.ranges.hashed_files.world import Local, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(hashed_files, "Directory", Local)
    return World(tmp_path)
