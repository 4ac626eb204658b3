"""One small SparkSession for all tests of this room, and a Kafka cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.sent import Kafka

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
"""Spark's tasks, also those of child processes, run in this Python, not in the first ``python3`` in the path."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    from reconciler.spark.connector import with_kafka

    builder = SparkSession.builder.master("local[2]").appName("reconciler-tests")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(key, value)
    session = with_kafka(builder, print).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def kafka(clusters: Any) -> Kafka:
    return Kafka(clusters.source.bootstrap)
