"""A SparkSession that can read Kafka, in the way of delta-spark's ``configure_spark_with_delta_pip``.

    from pyspark.sql import SparkSession
    from reconciler.spark.session import with_kafka

    spark = with_kafka(SparkSession.builder.appName("clicks")).getOrCreate()

PySpark's wheel lacks the Kafka connector, and one for another Spark minor version loads and then fails in the middle
of a query. ``with_kafka`` adds the one that fits, keeps the builder's own jars, and reports which it chose.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reconciler.core.errors import Refused, Unreachable
from reconciler.spark.connector import chosen_connector, with_kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DATA_LOSS", "chosen_connector", "own_session", "refused", "spark_message", "with_kafka"]

_SUBMITTED = ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME")
"""Set where spark-submit or a cluster configures Spark."""
DATA_LOSS = "Some data may have been lost"
"""In Spark's message where ``failOnDataLoss`` ends a query (3.5 to 4.3)."""


@contextmanager
def own_session(
    name: str, settings: Mapping[str, str], *, kafka: bool = False, tell: Callable[[str], None] | None = None
) -> Iterator[SparkSession]:
    """A session for one command, stopped after it; a session that this process already has is used and left running.

    ``kafka`` adds the connector and reports its version to ``tell``. Raises Unreachable if Spark does not start.
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
    _use_this_python(settings)
    if kafka:
        builder = with_kafka(builder, tell) if tell is not None else with_kafka(builder)
    try:
        with _keep_sigint_handler():
            session = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise Unreachable(
            f"Spark could not be started: {spark_message(error)}.",
            hint="Check --conf spark.master, and that Java 17 is installed.",
        ) from error
    try:
        session.sparkContext.setLogLevel("ERROR")
        yield session
    finally:
        session.stop()


@contextmanager
def refused(what: str, hint: str) -> Iterator[None]:
    """Raise Spark's errors as Refused: a sentence that begins with ``what`` and ends with the error's first line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise Refused(f"{what}: {spark_message(error)}.", hint=hint) from error


def spark_message(error: BaseException) -> str:
    """The first line of an exception from Spark, without a full stop."""
    text = str(getattr(error, "java_exception", None) or error).strip()
    return (text.splitlines() or [type(error).__name__])[0].rstrip(".")


@contextmanager
def _keep_sigint_handler() -> Iterator[None]:
    """Restore the SIGINT handler, which PySpark replaces with its own when a context starts."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _use_this_python(settings: Mapping[str, str]) -> None:
    """Run tasks on this machine with this Python, not with the first ``python3`` in the path."""
    if settings.get("spark.master", "local").startswith("local") and not any(name in os.environ for name in _SUBMITTED):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
