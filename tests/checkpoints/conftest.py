"""A checkpoint of two committed batches, and Spark with named sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.checkpoint_files import Files
from tests.spark.sessions import set_for_now


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path / "checkpoint")
    made.began({"o": {0: 0, 1: 0}})
    made.batch(0, {"o": {0: 10, 1: 11}}, "17")
    made.batch(1, {"o": {0: 30, 1: 31}}, "18")
    return made


@pytest.fixture
def named_sources(spark: Any) -> Iterator[None]:
    """Sources have names of their own, in the second format of the offset log."""
    settings = {
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.offsetLog.formatVersion": "2",
    }
    with set_for_now(spark, settings):
        yield
