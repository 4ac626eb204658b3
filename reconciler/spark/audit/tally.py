"""Count: sightings of the logs and the output's rows, grouped by a record's name; the figures; the findings.

A record's name is the job's message id if it has one, else a hash over key and value. Names are only compared for
equality. Spark itself reads ids that are a key or a header; the code of ``plan`` reads the others (JSON, a user's
function). One pass over the data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from types import SimpleNamespace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from reconciler.config.identity import SpecifiedIdentity, identity_from_spec
from reconciler.core.anchors import Identity
from reconciler.core.errors import ConfigError
from reconciler.ports import TopicPartition
from reconciler.spark.audit.extents import ClusterLog, ReachedLogs
from reconciler.spark.audit.result import FIGURES, Counts, Example, RecordPlace, Rules, judge
from reconciler.spark.audit.stays import Stays
from reconciler.spark.batches.reading import read

NAME_BYTES = 16
"""Bytes kept of a name's hash: two of 10^9 names are equal with a probability of 10^-21."""
OFFSET_BITS = 44
"""``at`` is a reach's number and an offset in one number, whose minimum needs no sort: exact for offsets below 2^44."""
OUTPUT, NOWHERE = -1, -1
"""The cluster of the output's rows; the unit of a row that belongs to none."""
SCHEMA = "scope int, name binary, cluster int, unit int, read int, ahead int, at bigint"
"""Names are compared within a ``scope``. ``unit`` is its number in ``Stays.units``; null for rows without a place."""
KINDS = ("lost", "possibly_lost", "doubled", "unknown_rows")
"""The figures that are findings; the others are details of them."""
PER_TASK = 2_000_000
"""The most records of a partition for one task: their names must fit into its memory."""
SUMMING_TASKS = 16
"""Tasks that keep the findings and sums. Spark's 200 would cost more than their few rows."""
EXAMPLES = 10  # of each kind


@dataclass(frozen=True, slots=True)
class Scope:
    """Everything that is fixed before the first record is read. ``apart``: names are compared within a unit."""

    found: Stays
    looked: ReachedLogs
    naming: Naming
    rules: Rules
    apart: bool
    since_ms: int | None = None

    def of(self, unit: Column, name: Column) -> Column:
        """The scope of a record or row. Records without a name are counted by unit."""
        return unit if self.apart else f.when(name.isNull(), unit).otherwise(0)


def read_records(spark: SparkSession, log: ClusterLog, scope: Scope) -> DataFrame | None:
    """The log's records with the Kafka source's columns; None if there are none."""
    ranges = [reach.range for reach in log.reaches if reach.edges.start < reach.edges.end]
    if not ranges:
        return None
    options = dict(log.cluster.options)
    if scope.naming.needs_headers:
        options["includeHeaders"] = "true"
    tasks = sum(-(-(each.until_offset - each.from_offset) // PER_TASK) for each in ranges)
    if tasks > len(ranges) and not any(name.lower() == "minpartitions" for name in options):
        options["minPartitions"] = str(tasks)
    records = read(spark, ranges, log.cluster.bootstrap_servers, options)
    return records if scope.since_ms is None else records.where(f.unix_millis("timestamp") >= f.lit(scope.since_ms))


def sight_records(records: DataFrame, log: ClusterLog, scope: Scope, number: int) -> DataFrame:
    """Each record, as ``SCHEMA``: how many stays have read it, whether it is ahead of the job, and its place."""
    most = max((len(reach.read) for reach in log.reaches), default=0)
    cuts = f.broadcast(_cuts(records.sparkSession, log, scope, most))
    named = scope.naming.named(records, "topic", "partition", "offset")
    joined = named.join(cuts, (named["topic"] == cuts["log_topic"]) & (named["partition"] == cuts["log_part"]))
    offset, name = f.col("offset"), f.substring("name", 1, NAME_BYTES)
    readings = [
        f.when((offset >= f.col(f"start{turn}")) & (offset < f.col(f"end{turn}")), 1).otherwise(0)
        for turn in range(most)
    ]
    return joined.select(
        scope.of(f.col("unit"), f.col("name")).alias("scope"),
        name.alias("name"),
        f.lit(number).alias("cluster"),
        "unit",
        sum(readings, f.lit(0)).alias("read"),
        f.when(offset >= f.col("until"), 1).otherwise(0).alias("ahead"),
        (f.shiftleft(f.col("lane").cast("bigint"), OFFSET_BITS) + offset).alias("at"),
    )


def _cuts(spark: SparkSession, log: ClusterLog, scope: Scope, most: int) -> DataFrame:
    bounds = "".join(f", start{turn} bigint, end{turn} bigint" for turn in range(most))
    units = {unit: number for number, unit in enumerate(scope.found.units)}
    rows = []
    for lane, reach in enumerate(log.reaches):
        pairs = [bound for each in reach.read for bound in (each.start, each.end)]
        padding = [0] * (2 * most - len(pairs))
        unit = units[scope.found.unit(reach.at)]
        rows.append((reach.at.topic, reach.at.partition, lane, unit, reach.until, *pairs, *padding))
    schema = "log_topic string, log_part int, lane int, unit int, until bigint"
    return small_table(spark, rows, schema + bounds)


def sight_rows(rows: DataFrame, scope: Scope) -> DataFrame:
    """The output's rows, from their columns ``name`` and ``unit``, as ``SCHEMA``."""
    return rows.select(
        scope.of(f.col("unit"), f.col("name")).alias("scope"),
        f.substring("name", 1, NAME_BYTES).alias("name"),
        f.lit(OUTPUT).alias("cluster"),
        "unit",
        *(f.lit(0).alias(name) for name in ("read", "ahead")),
        f.lit(None).cast("bigint").alias("at"),
    )


def sight_all(spark: SparkSession, scope: Scope, rows: DataFrame | None) -> DataFrame:
    """Every record of the logs, and every one of the output's rows."""
    frames = [] if rows is None else [sight_rows(rows, scope)]
    for number, log in enumerate(scope.looked.logs):
        records = read_records(spark, log, scope)
        frames.append(small_table(spark, [], SCHEMA) if records is None else sight_records(records, log, scope, number))
    return reduce(DataFrame.union, frames)


# ---------------------------------------------------------------- figures


def _column(value: Any) -> Column:
    return value if isinstance(value, Column) else f.lit(value).cast("bigint")


_COLUMNS = SimpleNamespace(
    least=lambda one, other: f.least(_column(one), _column(other)),
    greatest=lambda one, other: f.greatest(_column(one), _column(other)),
    where=lambda condition, then, otherwise: f.when(condition, _column(then)).otherwise(_column(otherwise)),
)
"""The functions with which ``judge`` computes on Spark's columns."""


@dataclass(frozen=True)
class Found:
    """``sums``: by a unit's number, the ``FIGURES``; ``held{n}`` and ``nameless{n}``, the records of each cluster that
    were compared and those without a name; ``rows`` and ``nameless``, the output's. ``names``: a row per finding."""

    sums: Mapping[int, Mapping[str, int]]
    names: DataFrame

    def total(self, name: str) -> int:
        return sum(each[name] for each in self.sums.values())


@contextmanager
def tally(
    seen: DataFrame, clusters: int, rules: Rules, *, has_output: bool = True, kinds: Sequence[str] = KINDS
) -> Iterator[Found]:
    """Group the sightings by name, and judge each name. Findings of ``kinds`` stay on the executors' disks meanwhile.

    All names of a unit without a finding become one row, so that its sums cost no second pass.
    """
    held, at = [f"held{n}" for n in range(clusters)], [f"at{n}" for n in range(clusters)]
    is_cluster = [f.col("cluster") == n for n in range(clusters)]
    of_rows = f.when(f.col("cluster") == OUTPUT, 1).otherwise(0)
    counted = seen.groupBy("scope", "name").agg(
        *(f.sum(f.when(each, 1).otherwise(0)).alias(name) for each, name in zip(is_cluster, held, strict=True)),
        *(f.sum(name).alias(name) for name in ("read", "ahead")),
        f.sum(of_rows if has_output else f.col("read")).alias("rows"),
        *(f.min(f.when(each, f.col("at"))).alias(name) for each, name in zip(is_cluster, at, strict=True)),
        f.coalesce(f.min("unit"), f.lit(NOWHERE)).alias("unit"),
    )
    counts = Counts([f.col(name) for name in held], f.col("read"), f.col("ahead"), f.col("rows"))
    figures, has_name = judge(counts, rules, _COLUMNS), f.col("name").isNotNull()
    sides = {"": "rows", **{str(n): name for n, name in enumerate(held)}}
    judged = counted.select(
        *("unit", "name", *at),
        *(f.when(has_name, f.col(name)).otherwise(0).alias(name) for name in sides.values()),
        *(f.when(has_name, 0).otherwise(f.col(name)).alias(f"nameless{side}") for side, name in sides.items()),
        *(f.when(has_name, _column(figures[name])).otherwise(0).alias(name) for name in FIGURES),
    )
    is_finding = sum((f.col(kind) for kind in kinds[1:]), f.col(kinds[0])) > 0
    sums = [*sides.values(), *(f"nameless{side}" for side in sides), *FIGURES]
    together = judged.groupBy("unit", f.when(is_finding, f.col("name")).alias("name")).agg(
        *(f.sum(name).alias(name) for name in sums), *(f.min(name).alias(name) for name in at)
    )
    with persist_on_disk(together.coalesce(SUMMING_TASKS)) as names:
        by_unit = names.groupBy("unit").agg(*(f.sum(name).alias(name) for name in sums)).collect()
        found = {row["unit"]: {name: int(row[name] or 0) for name in sums} for row in by_unit}
        yield Found(found, names.where(has_name))


# ---------------------------------------------------------------- findings


def find_examples(counted: Found, scope: Scope) -> tuple[Example, ...]:
    """The first findings of every kind, by their places in the logs."""
    at = [f"at{number}" for number in range(len(scope.looked.logs))]
    order = [*(f.asc_nulls_last(name) for name in at), f.asc("name")]
    found: list[Example] = []
    for kind in (kind for kind in KINDS if counted.total(kind)):
        chosen = counted.names.where(f.col(kind) > 0).orderBy(*order).limit(EXAMPLES)
        for row in chosen.select("name", kind, *at).collect():
            places = (
                _place(log, row[name]) for log, name in zip(scope.looked.logs, at, strict=True) if row[name] is not None
            )
            id_hash = bytes(row["name"])[:8].hex() if scope.naming.is_by_id else None
            found.append(Example(kind, row[kind], id_hash, tuple(places)))
    return tuple(found)


def _place(log: ClusterLog, at: int) -> RecordPlace:
    reach, offset = log.reaches[at >> OFFSET_BITS], at & (2**OFFSET_BITS - 1)
    stays = (each.stay for each in reach.read if each.start <= offset < each.end)
    return RecordPlace(log.cluster_id, *reach.at, offset, tuple(stays))


def small_table(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: str) -> DataFrame:
    """A table of the driver's ``rows`` of numbers, texts and nulls.

    Spark folds the JSON to constant rows while it plans. ``createDataFrame`` of a list would need Python on executors.
    """
    fields = [field.split() for field in schema.split(", ")]
    text = json.dumps([dict(zip((name for name, _ in fields), row, strict=True)) for row in rows])
    kinds = ",".join(f"{name}:{kind}" for name, kind in fields)
    parsed = f.from_json(f.lit(text), f"array<struct<{kinds}>>")
    return spark.range(0, 1, numPartitions=1).select(f.explode(parsed).alias("row")).select("row.*")


NO_TIMESTAMP, APPEND_TIME = -1, 1
"""Kafka's ``TimestampType`` ids, as in the source's column ``timestampType``."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The naming of the job's records: by id, or by key and value.

    ``unique``: no two records that are compared share an id.
    """

    is_by_id: bool
    identity: Identity
    unique: bool = False

    @classmethod
    def of(cls, id: str | Identity, *, by_id: bool | None, unique: bool, apart: bool) -> Naming:
        """``by_id`` None: by id if there is one. ``apart``: names of two partitions are never compared, so that ids may
        begin again in each. Unique ids say nothing of records that are named by key and value. Raises ConfigError.
        """
        identity = identity_from_spec(id=id) if isinstance(id, str) else id
        has_id = identity.id_of is not None
        if by_id and not has_id:
            raise ConfigError(
                "The output has ids, but the job's identity reads none from a record.",
                hint="Set [jobs.identity] id, or name the output's key and value.",
            )
        is_by_id = has_id if by_id is None else by_id
        return cls(is_by_id, identity, is_by_id and (unique or (apart and identity.has_unique_ids)))

    @property
    def told_apart_by(self) -> str:
        return "id" if self.is_by_id else "key and value"

    @property
    def _spec(self) -> str:
        """The id as a text of the configuration, if Spark can read it by itself."""
        settings = self.identity.settings if isinstance(self.identity, SpecifiedIdentity) else None
        return "" if settings is None or settings.frame != "none" else settings.id

    @property
    def needs_headers(self) -> bool:
        return self.is_by_id and self._spec != "key"

    def named(self, log: DataFrame, *keep: str) -> DataFrame:
        """A log's columns ``keep``, with ``name``: null for a record without an id."""
        if not self.is_by_id:
            return log.select(*keep, hash_content("key", "value").alias("name"))
        return log.select(*keep, self._id(log).alias("id")).select(*keep, hash_column(f.col("id")).alias("name"))

    def _id(self, log: DataFrame) -> Column:
        if self._spec == "key":
            return f.col("key")
        if self._spec.startswith("header:"):
            name = self._spec.partition(":")[2]
            found = f.filter("headers", lambda header: header["key"] == f.lit(name))
            return f.try_element_at(found, f.lit(-1))["value"]
        columns = ["topic", "partition", "offset", "key", "value", "headers"]
        record = [f.unix_millis("timestamp"), f.col("timestampType"), *(log[name] for name in columns)]
        return _read_in_python(self.identity)(*record)


def hash_column(column: Column) -> Column:
    """SHA-256 (32 bytes) of a column of bytes."""
    return f.unhex(f.sha2(column, 256))


def hash_content(key: str, value: str) -> Column:
    """The name of key and value columns, of a log or of the output."""
    return hash_column(f.concat(_part(key), _part(value)))


def _part(name: str) -> Column:
    """Null, or length and bytes, so that different pairs of key and value never give the same bytes."""
    column = f.col(name)
    length = f.unhex(f.lpad(f.hex(f.octet_length(column).cast("bigint")), 16, "0"))
    present = f.concat(f.lit(b"\x01"), length, column)
    return f.when(column.isNull(), f.lit(b"\x00")).otherwise(present)


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """A record from Spark's Kafka source; satisfies ``core.anchors.Record``."""

    at: TopicPartition
    offset: int
    timestamp_ms: int | None
    append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def _read_in_python(identity: Identity) -> Any:
    """The job's own id function over a log's columns. ``config.identity`` makes sure that it never raises."""
    id_of = identity.id_of

    def read(stamp: int, kind: int, topic: str, partition: int, offset: int, key: Any, value: Any, headers: Any) -> Any:
        record = LoggedRecord(
            at=TopicPartition(topic, partition),
            offset=offset,
            timestamp_ms=None if kind == NO_TIMESTAMP or stamp is None or stamp < 0 else stamp,
            append_time=kind == APPEND_TIME,
            key=as_bytes(key),
            value=as_bytes(value),
            headers=tuple((header["key"], as_bytes(header["value"])) for header in headers or ()),
        )
        return id_of(record) if id_of is not None else None

    return f.udf(read, "binary", useArrow=False)


@contextmanager
def persist_on_disk(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep what Spark computes of the frame on its executors' disks until the block ends."""
    from pyspark import StorageLevel

    frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


def as_bytes(value: Any) -> bytes | None:
    """A binary value of a row, which PySpark gives as a bytearray; None for null."""
    return None if value is None else bytes(value)
