"""One small SparkSession for all tests of this room, and a Kafka cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.archived import make_spark_archive, share_classes
from tests.spark.environments import PYSPARK
from tests.spark.sent import Kafka
from tests.spark.sessions import local_session, set_for_now

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
"""Spark's tasks, also those of child processes, run in this Python, not in the first ``python3`` in the path."""


STREAMING = "org.apache.spark.sql.execution.streaming"
FEW_PROCESSES = f"{STREAMING}{'.checkpointing' if PYSPARK >= (4, 1) else ''}.FileSystemBasedCheckpointFileManager"
"""Leaves the files that the default leaves, which runs ``readlink`` several times for each that it renames. Queries
that are programs of their own have the default: those of README, guide and demo, and the sources of clones."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    make_spark_archive()
    share_classes()
    session = local_session(
        "reconciler-tests",
        spark_sql_shuffle_partitions="1",
        spark_sql_streaming_checkpointFileManagerClass=FEW_PROCESSES,
    )
    yield session
    session.stop()


@pytest.fixture
def kafka(clusters: Any) -> Kafka:
    return Kafka(clusters.source.bootstrap)


@pytest.fixture
def named_sources(spark: Any) -> Iterator[None]:
    """Sources have names of their own, in the second format of the offset log."""
    settings = {
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.offsetLog.formatVersion": "2",
    }
    with set_for_now(spark, settings):
        yield
