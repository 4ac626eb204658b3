"""The rows of a job's sink as a DataFrame, by the address that the configuration gives.

The file sink's folder is read through its own log, so that files of unfinished batches are left out. Tables are read by
their own Spark reader where the session has its jars; without them, by the list of their Parquet files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from reconciler.core.errors import ConfigError, Refused
from reconciler.sinks.delta import DeltaSink
from reconciler.sinks.files import FileSink
from reconciler.sinks.iceberg import IcebergSink
from reconciler.sinks.registry import open_sink
from reconciler.spark.audit.output import Columns
from reconciler.spark.session import spark_message

_NO_SUCH_FORMAT = "DATA_SOURCE_NOT_FOUND"
_NUMBERS = frozenset({"partition", "offset"})


def sink_rows(
    spark: SparkSession, address: str, columns: Columns, options: Mapping[str, str] | None = None
) -> DataFrame:
    """All rows of the sink at ``address``: ``files:``, ``delta:`` or ``iceberg:``. A sink that is not there has none.

    ``options`` are for Spark's reader. Raises ConfigError for another sink and for one that Spark cannot read; Refused
    and Unreachable as sinks do.
    """
    sink = open_sink(address)
    if isinstance(sink, FileSink):
        formats = sink.formats()
        if len(formats) > 1:
            raise Refused(
                f"{sink.shown} has files of several formats: {', '.join(sorted(formats))}.",
                hint="Name one: --output FORMAT:PATH",
            )
        place = address.partition(":")[2]
        return _loaded(spark, formats.pop(), [place], options, sink.shown) if formats else _nothing(spark, columns)
    if not isinstance(sink, DeltaSink | IcebergSink):
        raise ConfigError(
            f"The rows of {sink.shown} are not known: it tells only batches.",
            hint="Name the rows: --output FORMAT:PATH",
        )
    more = {}
    if isinstance(sink, DeltaSink):
        place = address.partition(":")[2].partition("?")[0]
        with_jars = _own_reader(spark, "delta", place, options)
        if with_jars is not None:
            return with_jars
        more = {"basePath": place}  # partition columns stand in the paths alone
    files = sink.data_files()
    return (
        _loaded(spark, "parquet", files, {**(options or {}), **more}, sink.shown) if files else _nothing(spark, columns)
    )


def _own_reader(spark: SparkSession, kind: str, place: str, options: Mapping[str, str] | None) -> DataFrame | None:
    """The table by Spark's own reader of it; None if the session has none."""
    try:
        return spark.read.format(kind).options(**(options or {})).load(place)
    except (PySparkException, Py4JError) as error:
        if _NO_SUCH_FORMAT in spark_message(error):
            return None
        raise _unreadable(place, error) from error


def _loaded(
    spark: SparkSession, kind: str, places: Iterable[str], options: Mapping[str, str] | None, shown: str
) -> DataFrame:
    try:
        return spark.read.format(kind).options(**(options or {})).load(list(places))
    except (PySparkException, Py4JError) as error:
        raise _unreadable(shown, error) from error


def _unreadable(shown: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"The sink {shown} cannot be read: {spark_message(error)}.", hint="Correct the sink, or --option."
    )


def _nothing(spark: SparkSession, columns: Columns) -> DataFrame:
    """No rows, with the columns that were named."""
    named = {name: field for field, name in asdict(columns).items() if name and field != "topic_name"}
    if any("." in name for name in named):
        raise ConfigError("The sink has no rows, and so no nested columns.", hint="Correct the sink's address.")
    kinds = [StructField(name, LongType() if field in _NUMBERS else StringType()) for name, field in named.items()]
    return spark.createDataFrame([], StructType(kinds))
