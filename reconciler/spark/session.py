"""A SparkSession that can read Kafka, in the way of delta-spark's ``configure_spark_with_delta_pip``.

    from pyspark.sql import SparkSession
    from reconciler.spark.session import with_kafka

    spark = with_kafka(SparkSession.builder.appName("clicks")).getOrCreate()

PySpark's wheel lacks the Kafka connector, and one of another Spark minor version loads and then fails in the middle of
a query. ``with_kafka`` adds the one that fits, keeps the builder's own jars, and says which it chose.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reconciler.core.errors import Unreachable
from reconciler.spark.connector import chosen_connector, with_kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["chosen_connector", "own_session", "with_kafka"]

_SUBMITTED = ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME")
"""Set where somebody else says how Spark runs."""


@contextmanager
def own_session(
    name: str, settings: Mapping[str, str], *, kafka: bool = False, tell: Callable[[str], None] | None = None
) -> Iterator[SparkSession]:
    """A session for one command, ended behind it; one that this process has already is used, and left alone.

    ``kafka`` adds the connector; ``tell`` is told which. Raises Unreachable where Spark does not start.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.appName(name)
    for key, value in {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **settings}.items():
        builder = builder.config(key, value)
    _work_as_here(settings)
    if kafka:
        builder = with_kafka(builder, tell) if tell is not None else with_kafka(builder)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        first = (str(getattr(error, "java_exception", None) or error).strip().splitlines() or ["?"])[0]
        raise Unreachable(
            f"Spark could not be started: {first.rstrip('.')}.",
            hint="See --conf spark.master, and that there is Java 17.",
        ) from error
    try:
        session.sparkContext.setLogLevel("ERROR")
        yield session
    finally:
        session.stop()


def _work_as_here(settings: Mapping[str, str]) -> None:
    """Tasks on this machine run in this Python, not in the ``python3`` that is first in the path."""
    if settings.get("spark.master", "local").startswith("local") and not any(name in os.environ for name in _SUBMITTED):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
