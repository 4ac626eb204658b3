"""Findings as rows: a bounded number of examples, and all of them as Parquet."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from reconciler.core.errors import ConfigError
from reconciler.spark.audit.errors import writing_findings
from reconciler.spark.audit.naming import ID
from reconciler.spark.audit.result import COUNTS, FIGURES, AuditResult, Example
from reconciler.spark.audit.sightings import AFTER, BEFORE, PROCESSED, UNPROCESSED, Places, small_table
from reconciler.spark.audit.tally import FIRST, PART_SHIFT

KINDS = ("lost", "possibly_lost", "doubled", "reordered")
PARTITIONS, FINDINGS = "partitions", "findings"
"""The folders of the results in Parquet."""
MOST_EXAMPLES = 1_000
"""The most examples in one result, over all partitions and kinds."""
_TOPICS = "place int, source_topic string, topic string"


def findings(names: DataFrame, late: DataFrame | None) -> DataFrame:
    """One row per name and kind: ``place``, ``kind``, ``count``, ``id_hash``, and the first offset at each cluster.

    For a lost record these are the copies that the job should have read, if there are such.
    """
    kinds = f.array(*(f.struct(f.lit(kind).alias("kind"), f.col(kind).alias("count")) for kind in KINDS[:3]))
    sp, su, db, da = (f.col(FIRST[side]) for side in (PROCESSED, UNPROCESSED, BEFORE, AFTER))
    rows = names.where("lost + possibly_lost + doubled > 0").select("*", f.explode(kinds).alias("of"))
    doubled = f.col("of.kind") == "doubled"
    rows = rows.where("of.count > 0").select(
        "place",
        "of.kind",
        "of.count",
        _id_hash().alias("id_hash"),
        f.when(doubled, f.coalesce(sp, su)).otherwise(f.coalesce(su, sp)).alias("source"),
        f.coalesce(da, db).alias("destination"),
    )
    if late is not None:
        part = f.shiftleft(f.col("part").cast("bigint"), PART_SHIFT)
        reordered = late.select(
            "place",
            f.lit("reordered").alias("kind"),
            f.lit(1).cast("bigint").alias("count"),
            _id_hash().alias("id_hash"),
            (part + f.col("source")).alias("source"),
            (part + f.col("destination")).alias("destination"),
        )
        rows = rows.union(reordered)
    return rows.where("place >= 0").select("place", *_shown())


def examples(all_found: DataFrame, places: Places, of_each: int) -> tuple[Example, ...]:
    """The first ``of_each`` findings of every place and kind by offset, at most ``MOST_EXAMPLES``."""
    order = ("source_partition", "source_offset", "destination_partition", "destination_offset", "id_hash")
    by_offset = Window.partitionBy("place", "kind").orderBy(*(f.asc_nulls_last(name) for name in order))
    first = f.row_number().over(by_offset)
    chosen = all_found.withColumn("turn", first).where(f.col("turn") <= of_each)
    rows = chosen.orderBy("place", "kind", "turn").limit(MOST_EXAMPLES).drop("turn").collect()
    topics = {number: (source_topic, topic) for number, source_topic, topic in _topics(places)}
    return tuple(_example(*topics[row["place"]], **row.asDict()) for row in rows)


def _example(source_topic: str, topic: str, *, place: int, **found: Any) -> Example:
    return Example(source_topic=source_topic, topic=topic, **found)


def refuse_unwritable(spark: SparkSession, folder: str, *parts: str) -> None:
    """Raise ConfigError where ``parts`` of the folder could not be written: before they are computed for nothing.

    Makes the folder, and a file that it removes again. On Spark Connect, whose server has the files, nothing is tried.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        return
    jvm: Any = context._jvm
    base = folder.rstrip("/")
    with writing_findings():
        path = jvm.org.apache.hadoop.fs.Path
        files = path(base).getFileSystem(context._jsc.hadoopConfiguration())
        taken = next((part for part in parts if files.exists(path(f"{base}/{part}"))), None)
        if taken is not None:
            raise ConfigError(
                f"The findings cannot be written: {base}/{taken} exists already.", hint="Name a folder that does not."
            )
        trial = path(f"{base}/.reconciler-trial-{uuid4().hex}")
        files.create(trial).close()
        files.delete(trial, False)


def write_parquet(spark: SparkSession, folder: str, result: AuditResult, all_found: DataFrame, places: Places) -> None:
    """``FOLDER/partitions``: a row per partition. ``FOLDER/findings``: a row per finding.

    Raises ConfigError if either exists already.
    """
    numbers = ("stored_offset", "resume_offset", "until", "replay_at_most", "replay_exact")
    schema = "source_topic string, topic string, partition int, " + ", ".join(
        f"{name} bigint" for name in (*numbers, *COUNTS, *FIGURES)
    )
    rows: list[tuple[Any, ...]] = [
        (
            *(row.source_topic, row.topic, row.partition),
            *(getattr(row, name) for name in numbers),
            *(row.counts[name] for name in COUNTS),
            *(row.figures[name] for name in FIGURES),
        )
        for row in result.partitions
    ]
    base = folder.rstrip("/")
    with writing_findings():
        small_table(spark, rows, schema).coalesce(1).write.parquet(f"{base}/{PARTITIONS}")
        named = all_found.join(f.broadcast(small_table(spark, _topics(places), _TOPICS)), "place")
        named.select(*Example.__slots__).write.parquet(f"{base}/{FINDINGS}")


def _topics(places: Places) -> list[tuple[int, str, str]]:
    """Each place's number, and its topic's name at both clusters."""
    named = {resumed.place: resumed.row.topic for resumed in places.planned.resumed_rows}
    return [(number, place.topic, named[place]) for number, place in enumerate(places.all)]


def _id_hash() -> Column:
    """As in plans: the first 16 hex digits of the id's SHA-256, which is the name of a record with an id."""
    return f.when(f.col("by") == ID, f.lower(f.hex(f.substring("name", 1, 8))))


def _shown() -> list[Column]:
    def part(name: str) -> Column:
        return f.shiftright(f.col(name), PART_SHIFT).cast("int")

    def offset(name: str) -> Column:
        return f.col(name).bitwiseAND(f.lit(2**PART_SHIFT - 1))

    return [
        f.col("kind"),
        part("source").alias("source_partition"),
        offset("source").alias("source_offset"),
        part("destination").alias("destination_partition"),
        offset("destination").alias("destination_offset"),
        f.col("id_hash"),
        f.col("count"),
    ]
