"""A checkpoint of two committed batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failover.checkpoint.checkpoint_files import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path / "checkpoint")
    made.began({"o": {0: 0, 1: 0}})
    made.batch(0, {"o": {0: 10, 1: 11}}, "17")
    made.batch(1, {"o": {0: 30, 1: 31}}, "18")
    return made
