"""Compares the order of records with the log that they were read from.

Records are paired by name and by how many of that name came before. A name that does not occur equally often on both
sides cannot be paired without guessing: such records are not judged (``tally`` counts them). A judged record is out of
order if a record before it on the tested side comes after it in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from reconciler.spark.audit.naming import NAMELESS
from reconciler.spark.audit.sightings import AFTER, DESTINATION_SIDES, SOURCE_SIDES


def destination_order(seen: DataFrame, spread: Sequence[int]) -> DataFrame:
    """Records that the job reads from the resume offset on, and that come after a later record of the source.

    Columns: ``place``, ``name``, ``by``; ``source`` and ``destination``, the offsets. ``spread`` are places whose
    partitions do not correspond, so that there is no order to compare.
    """
    chosen = seen.where(~f.col("place").isin(*spread)) if spread else seen
    scoped = chosen.withColumn("scope", f.col("place")).withColumn("seq", f.col("pos"))
    tested = scoped.where(f.col("side").isin(*DESTINATION_SIDES))
    paired = _paired(scoped.where(f.col("side").isin(*SOURCE_SIDES)), tested.withColumn("read", f.col("side") == AFTER))
    late = _behind(paired.where("read"), ties=False)
    return late.select("place", "by", "name", "part", f.col("pos").alias("source"), f.col("seq").alias("destination"))


def output_order(
    seen: DataFrame, rows: DataFrame, scope: str | None, spread: Sequence[int], *, source_lives: bool
) -> DataFrame:
    """Rows of the output after a row that the log has later: the source's log, or the destination's if that is dead.

    Columns as above; the offset in the other log is null.
    """
    sides = SOURCE_SIDES if source_lives else DESTINATION_SIDES
    within = f.lit(0) if scope is None else f.col(scope)
    log = seen.where(f.col("side").isin(*sides)).withColumn("scope", within).withColumn("seq", f.col("pos"))
    log = log.where(~f.col("place").isin(*spread)) if spread else log
    out = rows.where((f.col("by") != NAMELESS) & f.col("seq").isNotNull()).withColumn("scope", within)
    late = _behind(_paired(log, out.withColumn("read", f.lit(True))), ties=True)
    there, nothing = f.col("pos"), f.lit(None).cast("bigint")
    offsets = (there, nothing) if source_lives else (nothing, there)
    return late.select("place", "by", "name", "part", offsets[0].alias("source"), offsets[1].alias("destination"))


def _paired(log: DataFrame, tested: DataFrame) -> DataFrame:
    """The log's ``place``, ``part`` and ``pos`` beside the tested side's ``seq`` and ``read``."""
    reference = _ranked(log).select("scope", "by", "name", "rank", "often", "place", "part", "pos")
    return reference.join(
        _ranked(tested).select("scope", "by", "name", "rank", "often", "seq", "read"),
        ["scope", "by", "name", "rank", "often"],
    )


def _ranked(rows: DataFrame) -> DataFrame:
    names = Window.partitionBy("scope", "by", "name")
    rank = f.row_number().over(names.orderBy("seq"))
    return rows.withColumn("rank", rank).withColumn("often", f.count(f.lit(1)).over(names))


def _behind(paired: DataFrame, *, ties: bool) -> DataFrame:
    """The rows before which, by ``seq``, a larger ``pos`` of the same place occurs. One sorted pass per place."""
    before = Window.partitionBy("place").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    if not ties:
        return paired.withColumn("furthest", f.max("pos").over(before)).where("pos < furthest")
    steps = paired.groupBy("place", "seq").agg(f.max("pos").alias("top"))
    furthest = steps.select("place", "seq", f.max("top").over(before).alias("furthest"))
    return paired.join(furthest, ["place", "seq"]).where("pos < furthest")
