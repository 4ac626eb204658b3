"""Sightings of both logs and the sink's rows, grouped by name; the figures; the findings. One pass over the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from reconciler.spark.audit.failovers.extents import ClusterLog
from reconciler.spark.audit.failovers.figures import FIGURES, Counts, judge
from reconciler.spark.audit.naming import CONTENT, ID, By, Naming
from reconciler.spark.audit.sightings import small_table
from reconciler.spark.audit.tally import PART_SHIFT
from reconciler.spark.columns import kept
from reconciler.spark.ranges.reading import read

NAME_BYTES = 16
"""Bytes of a name's hash that are kept: two of 10^9 names are equal with a chance of 10^-21."""
SINK = -1
SCHEMA = "name binary, cluster int, read int, ahead int, at bigint"
KINDS = ("lost", "possibly_lost", "doubled", "unknown_rows")
"""The figures of which each is a finding; the others say more about them."""
PER_TASK = 2_000_000
"""Records that one task reads of a partition at most, so that its names fit into its share of the memory."""


class SparkOperations:
    """``figures.Operations`` on Spark's columns."""

    def least(self, one: Any, other: Any) -> Column:
        return f.least(_column(one), _column(other))

    def greatest(self, one: Any, other: Any) -> Column:
        return f.greatest(_column(one), _column(other))

    def where(self, condition: Any, then: Any, otherwise: Any) -> Column:
        return f.when(condition, _column(then)).otherwise(_column(otherwise))


def _column(value: Any) -> Column:
    return value if isinstance(value, Column) else f.lit(value).cast("bigint")


def records_of(spark: SparkSession, log: ClusterLog, naming: Naming, *, since_ms: int | None) -> DataFrame | None:
    """The log's records with the Kafka source's columns; None if there are none."""
    ranges = [reach.range for reach in log.reaches if reach.start < reach.end]
    if not ranges:
        return None
    options = dict(log.cluster.options)
    if naming.needs_headers:
        options["includeHeaders"] = "true"
    tasks = sum(-(-(each.until_offset - each.from_offset) // PER_TASK) for each in ranges)
    if tasks > len(ranges) and not any(name.lower() == "minpartitions" for name in options):
        options["minPartitions"] = str(tasks)
    records = read(spark, ranges, log.cluster.bootstrap_servers, options)
    return records if since_ms is None else records.where(f.unix_millis("timestamp") >= f.lit(since_ms))


def sighted(records: DataFrame, log: ClusterLog, naming: Naming, number: int) -> DataFrame:
    """Each record's name, how many stays have read it, whether it lies ahead of the job, and where it is.

    ``number`` is the cluster's. Columns: ``SCHEMA``; ``at`` is the reach's number and the offset in one number.
    """
    most = max((len(reach.read) for reach in log.reaches), default=0)
    cuts = f.broadcast(_cuts(records.sparkSession, log.reaches, most))
    named = naming.named(records, "topic", "partition", "offset")
    joined = named.join(cuts, (named["topic"] == cuts["log_topic"]) & (named["partition"] == cuts["log_part"]))
    offset = f.col("offset")
    readings = [
        f.when((offset >= f.col(f"start{turn}")) & (offset < f.col(f"end{turn}")), 1).otherwise(0)
        for turn in range(most)
    ]
    return joined.select(
        _short(naming).alias("name"),
        f.lit(number).alias("cluster"),
        sum(readings, f.lit(0)).alias("read"),
        f.when(offset >= f.col("until"), 1).otherwise(0).alias("ahead"),
        (f.shiftleft(f.col("lane").cast("bigint"), PART_SHIFT) + offset).alias("at"),
    )


def _short(naming: Naming) -> Column:
    """The name, cut; null for a record that cannot be looked up among the sink's rows."""
    kind = ID if naming.by is By.ID else CONTENT
    return f.when(f.col("by") == kind, f.substring("name", 1, NAME_BYTES))


def _cuts(spark: SparkSession, reaches: Sequence[Any], most: int) -> DataFrame:
    bounds = ", ".join(f"start{turn} bigint, end{turn} bigint" for turn in range(most))
    schema = "log_topic string, log_part int, lane int, until bigint" + (f", {bounds}" if bounds else "")
    rows = []
    for lane, reach in enumerate(reaches):
        pairs = [bound for pair in reach.read for bound in pair]
        padding = [0] * (2 * most - len(pairs))
        rows.append((reach.at.topic, reach.at.partition, lane, reach.until, *pairs, *padding))
    return small_table(spark, rows, schema)


def of_sink(names: DataFrame) -> DataFrame:
    """The sink's rows, from their column ``name``, as ``SCHEMA``."""
    return names.select(
        f.substring("name", 1, NAME_BYTES).alias("name"),
        f.lit(SINK).alias("cluster"),
        f.lit(0).alias("read"),
        f.lit(0).alias("ahead"),
        f.lit(None).cast("bigint").alias("at"),
    )


@dataclass(frozen=True)
class Found:
    """``sums`` over all names: the figures, and ``named{n}``, ``nameless{n}`` for each cluster and ``named``,
    ``nameless`` for the sink. ``names``: one row per name with a finding."""

    sums: Mapping[str, int]
    names: DataFrame


@contextmanager
def tallied(seen: DataFrame, clusters: int, *, unique: bool) -> Iterator[Found]:
    """Group the sightings by name, and judge each name. Findings stay on the executors' disks meanwhile."""
    counted = seen.groupBy("name").agg(
        *(f.sum(f.when(f.col("cluster") == n, 1).otherwise(0)).alias(f"held{n}") for n in range(clusters)),
        f.sum("read").alias("read"),
        f.sum("ahead").alias("ahead"),
        f.sum(f.when(f.col("cluster") == SINK, 1).otherwise(0)).alias("rows"),
        *(f.min(f.when(f.col("cluster") == n, f.col("at"))).alias(f"at{n}") for n in range(clusters)),
    )
    counts = Counts([f.col(f"held{n}") for n in range(clusters)], f.col("read"), f.col("ahead"), f.col("rows"))
    figures = judge(counts, unique=unique, use=SparkOperations())
    has_name = f.col("name").isNotNull()
    judged = counted.select(
        "*", *(f.when(has_name, figures[name]).otherwise(0).cast("bigint").alias(name) for name in FIGURES)
    )
    observation = Observation("sums")
    sides = {"": "rows", **{str(n): f"held{n}" for n in range(clusters)}}
    observed = judged.observe(
        observation,
        *(f.sum(name).alias(name) for name in FIGURES),
        *(f.sum(f.when(has_name, f.col(column))).alias(f"named{side}") for side, column in sides.items()),
        *(f.sum(f.when(~has_name, f.col(column))).alias(f"nameless{side}") for side, column in sides.items()),
    )
    any_finding = sum((f.col(kind) for kind in KINDS[1:]), f.col(KINDS[0])) > 0
    # Spark 3.5 reports no observation if no row is kept, and ``get`` would wait for ever: hence one more row.
    findings = observed.where(any_finding)
    added = seen.sparkSession.range(1).select(*(f.lit(None).cast(kind).alias(name) for name, kind in findings.dtypes))
    with kept(findings.unionByName(added), "DISK_ONLY") as names:
        names.count()
        yield Found({name: int(value or 0) for name, value in observation.get.items()}, names.where(has_name))
