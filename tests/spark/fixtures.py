"""One small SparkSession for all tests of this room, and a Kafka cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.archived import make_spark_archive, share_classes
from tests.spark.sent import Kafka
from tests.spark.sessions import local_session

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
"""Spark's tasks, also those of child processes, run in this Python, not in the first ``python3`` in the path."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    make_spark_archive()
    share_classes()
    session = local_session("reconciler-tests", spark_sql_shuffle_partitions="1")
    yield session
    session.stop()


@pytest.fixture
def kafka(clusters: Any) -> Kafka:
    return Kafka(clusters.source.bootstrap)
