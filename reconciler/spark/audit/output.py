"""The job's own output: the columns that identify a row's record, and the rows of a sink.

The file sink's folder is read through its own log, so that files of unfinished batches are left out. Delta and Iceberg
tables are read by the list of their Parquet files, so that the session needs no jars.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from reconciler.core.errors import ConfigError, Refused
from reconciler.failover.sinks.files import FileSink
from reconciler.failover.sinks.judging import open_sink
from reconciler.failover.sinks.tables import DeltaSink, IcebergSink
from reconciler.spark.audit.stays import Stays
from reconciler.spark.audit.tally import NOWHERE, hash_column, hash_content, small_table
from reconciler.spark.session import spark_message

WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
"""Spark's short type names of integers."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The output's column for each field, by name; nested fields have dots.

    Either ``id``, the value that ``[jobs.identity] id`` reads: bytes, text or whole numbers. Or ``key`` and ``value``:
    the record's own bytes. ``topic`` and ``partition`` of the record are used too, if both are given.
    """

    id: str | None = None
    key: str | None = None
    value: str | None = None
    topic: str | None = None
    partition: str | None = None

    def __post_init__(self) -> None:
        if (self.key is None) != (self.value is None) or (self.id is None) == (self.value is None):
            raise ConfigError(
                "Rows of the output are identified by either id, or key and value.",
                hint="For example: --column id=event_id",
            )
        if self.partition is not None and self.topic is None:
            raise ConfigError("A partition needs its topic.", hint="Name the column: --column topic=NAME")

    @classmethod
    def named(cls, given: Mapping[str, str]) -> Columns:
        """From FIELD: NAME texts. Raises ConfigError for an unknown field."""
        known = [field.name for field in fields(cls)]
        if unknown := [name for name in given if name not in known]:
            raise ConfigError(f"There is no field {', '.join(unknown)}.", hint=f"Known here: {', '.join(known)}.")
        return cls(**given)


@dataclass(frozen=True)
class Output:
    """The rows that the job has written, and their columns. ``name`` is the output's, for the result."""

    frame: DataFrame
    columns: Columns
    name: str = "the output"

    def rows(self, found: Stays) -> DataFrame:
        """``name`` of each row, null where it does not identify its record; and its ``unit``, null without columns.

        Rows of other topics are left out, where a column has the topic. Raises ConfigError for columns that do not
        exist or cannot be used.
        """
        columns, frame = self.columns, self.frame
        kept = frame.select(
            *(column.alias(name) for name, column in self._name_columns().items()),
            self._column("topic", columns.topic, ("string",)).alias("topic"),
            self._column("partition", columns.partition, (*WHOLE_NUMBERS, "decimal")).cast("int").alias("partition"),
        )
        if columns.topic is not None:
            kept = kept.where(f.col("topic").isin(*found.roots))
        name = hash_column(f.col("id")) if columns.id is not None else hash_content("key", "value")
        if columns.partition is None:
            return kept.select(name.alias("name"), f.lit(None).cast("int").alias("unit"))
        return self._placed(kept.withColumn("name", name), found).select("name", "unit")

    def _placed(self, rows: DataFrame, found: Stays) -> DataFrame:
        numbers = {unit: number for number, unit in enumerate(found.units)}
        units = [
            (topic, unit.partition, number)
            for topic, root in found.roots.items()
            for unit, number in numbers.items()
            if unit.topic == root
        ]
        table = small_table(rows.sparkSession, units, "of_topic string, of_partition int, unit int")
        is_unit = f.coalesce(f.col("of_partition") == f.col("partition"), f.col("of_partition").isNull())
        joined = rows.join(f.broadcast(table), (f.col("of_topic") == f.col("topic")) & is_unit, "left")
        return joined.withColumn("unit", f.coalesce("unit", f.lit(NOWHERE)))

    def _name_columns(self) -> dict[str, Column]:
        columns = self.columns
        if columns.id is not None:
            is_binary = self._kind("id", columns.id, ("binary", "string", *WHOLE_NUMBERS)) == "binary"
            return {"id": f.col(columns.id) if is_binary else f.col(columns.id).cast("string").cast("binary")}
        named = {"key": columns.key, "value": columns.value}
        return {field: self._column(field, name, ("binary", "string")).cast("binary") for field, name in named.items()}

    def _column(self, field: str, name: str | None, kinds: tuple[str, ...]) -> Column:
        if name is None:
            return f.lit(None).cast("string")
        self._kind(field, name, kinds)
        return f.col(name)

    def _kind(self, field: str, name: str, kinds: tuple[str, ...]) -> str:
        return require_type(self.frame, field, name, kinds, hint=f"Name the right one: --column {field}=COLUMN")


# ---------------------------------------------------------------- rows of a place


def spark_rows(spark: SparkSession, address: str, options: Mapping[str, str]) -> DataFrame:
    """The rows at FORMAT:PATH, by any of Spark's sources. Raises ConfigError if they cannot be read."""
    kind, mark, path = address.partition(":")
    if not mark or not kind:
        raise ConfigError(f"--output {address} is not FORMAT:PATH.", hint="For example: parquet:/srv/clicks/out")
    with _reading("output"):
        if kind == "table":
            return spark.table(path)
        reader = spark.read.format(kind).options(**options)
        return reader.load(path) if path else reader.load()


def sink_rows(spark: SparkSession, address: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """All rows of the sink at ``address``: ``files:``, ``delta:`` or ``iceberg:``.

    ``options`` are for Spark's reader. Raises ConfigError for another sink and for one that Spark cannot read; Refused
    and Unreachable as sinks do.
    """
    sink, more = open_sink(address), dict(options or {})
    place = address.partition(":")[2].partition("?")[0]
    if isinstance(sink, FileSink):
        formats = sink.formats()
        if len(formats) > 1:
            raise Refused(
                f"{sink.shown} has files of several formats: {', '.join(sorted(formats))}.",
                hint="Name one: --output FORMAT:PATH",
            )
        kind, files = next(iter(formats), ""), [address.partition(":")[2]] if formats else []
    elif isinstance(sink, DeltaSink | IcebergSink):
        if isinstance(sink, DeltaSink):
            more["basePath"] = place  # only the paths have the partition columns
        kind, files = "parquet", list(sink.data_files())
    else:
        raise ConfigError(
            f"The sink {sink.shown} shows only batches, not rows.",
            hint="Name the rows: --output FORMAT:PATH",
        )
    if not files:
        raise ConfigError(
            f"{sink.shown} has no rows yet.", hint="Audit once the job has written, or without the output."
        )
    with _reading(f"sink {sink.shown}"):
        return spark.read.format(kind).options(**more).load(files)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _unreadable(what, error) from error


def _unreadable(what: str, error: Exception) -> ConfigError:
    return ConfigError(f"The {what} cannot be read: {spark_message(error)}.", hint="Correct its address, or --option.")


def require_type(output: DataFrame, field: str, name: str, allowed: tuple[str, ...], *, hint: str = "") -> str:
    """The Spark type of the column ``name``, which the operator named for ``field``.

    ``allowed`` are Spark's short type names, without a decimal's digits; empty: any type. Raises ConfigError if there
    is no such column, it is of another type, or the name is a star: to Spark all columns, or all fields of one.
    """
    try:
        columns = output.select(name).dtypes
    except AnalysisException as error:
        raise ConfigError(
            f"The output has no column {name!r} for the {field}; it has: {', '.join(output.columns)}.", hint=hint
        ) from error
    if len(columns) != 1:
        raise ConfigError(f"{name!r} for the {field} is {len(columns)} columns, and must be one.", hint=hint)
    ((_, found),) = columns
    if allowed and found.partition("(")[0] not in allowed:
        raise ConfigError(f"The column {name!r} for the {field} is of type {found}, and not {' or '.join(allowed)}.")
    return str(found)
