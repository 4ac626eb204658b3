"""Spark's exceptions as this product's errors, and a plan from whatever names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from reconciler.core.errors import Changed, ConfigError, ReconcilerError, Refused
from reconciler.fileio import read_regular, why
from reconciler.formats.plan import Plan, parse_plan
from reconciler.spark.session import DATA_LOSS, spark_message


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn Spark's exceptions into this product's errors."""
    try:
        yield
    except ReconcilerError:
        raise
    except (PySparkException, Py4JError) as error:
        if DATA_LOSS in str(getattr(error, "java_exception", None) or error):
            raise Changed(
                "Records were deleted from a log while the audit read it.",
                hint="Run it again; or begin later, with --since, than retention reaches.",
            ) from error
        if isinstance(error, AnalysisException):
            raise ConfigError(f"Spark cannot run this audit: {spark_message(error)}.") from error
        raise Refused(
            f"Spark could not finish the audit: {spark_message(error)}.",
            hint="Check that the executors reach the clusters and the output, and have disk space.",
        ) from error


@contextmanager
def writing_findings() -> Iterator[None]:
    """Turn Spark's and Hadoop's refusal to write a folder into a ConfigError."""
    try:
        yield
    except (AnalysisException, Py4JError) as error:
        raise ConfigError(
            f"The findings cannot be written: {spark_message(error)}.",
            hint="Name a folder that does not exist, in a place where this user may write.",
        ) from error


def plan_of(given: Plan | str | Path) -> Plan:
    """The plan itself, or the one in this file. Raises ConfigError if it cannot be read."""
    if isinstance(given, Plan):
        return given
    try:
        return parse_plan(read_regular(Path(given)))
    except OSError as error:
        raise ConfigError(
            f"The plan {given} cannot be read: {why(error)}.", hint="Name the plan that was applied."
        ) from error
