"""Compares the order of records with the log that they were read from.

Records are paired by name and by how many of that name came before. A name that does not occur equally often on both
sides, or has a row without a place in the output's order, cannot be paired without guessing: such records are not
judged (``tally`` counts them). A judged record is out of order if a record before it on the tested side comes after it
in the log.
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
    tested = f.col("side").isin(*DESTINATION_SIDES)
    both = chosen.select(
        f.col("place").alias("scope"),
        *("by", "name", tested.alias("tested")),
        *(f.when(~tested, f.col(name)).alias(name) for name in ("place", "part", "pos")),
        f.when(tested, f.col("pos")).alias("seq"),
        (f.col("side") == AFTER).alias("read"),
    )
    late = _behind(_paired(both).where("read"), ties=False)
    return late.select("place", "by", "name", "part", f.col("pos").alias("source"), f.col("seq").alias("destination"))


def output_order(
    seen: DataFrame, rows: DataFrame, scope: str | None, spread: Sequence[int], *, source_lives: bool
) -> DataFrame:
    """Rows of the output after a row that the log has later: the source's log, or the destination's if that is dead.

    Columns as above; the offset in the other log is null.
    """
    sides = SOURCE_SIDES if source_lives else DESTINATION_SIDES
    within = f.lit(0) if scope is None else f.col(scope)
    log = seen.where(f.col("side").isin(*sides))
    log = log.where(~f.col("place").isin(*spread)) if spread else log
    log = log.select(within.alias("scope"), "by", "name", f.lit(False).alias("tested"), "place", "part", "pos")
    out = rows.where((f.col("by") != NAMELESS) & f.col("seq").isNotNull())
    out = out.select(within.alias("scope"), "by", "name", f.lit(True).alias("tested"), "seq")
    late = _behind(_paired(log.unionByName(out, allowMissingColumns=True)), ties=True)
    there, nothing = f.col("pos"), f.lit(None).cast("bigint")
    offsets = (there, nothing) if source_lives else (nothing, there)
    return late.select("place", "by", "name", "part", offsets[0].alias("source"), offsets[1].alias("destination"))


def _paired(both: DataFrame) -> DataFrame:
    """Each of the log's records beside the tested side's record of the same name and rank.

    ``both`` are the records of the log, with ``place``, ``part`` and ``pos``, and those that are ``tested``, with
    ``seq``: one shuffle by name brings them together.
    """
    names = Window.partitionBy("scope", "by", "name")
    tested_more = f.sum(f.when(f.col("tested"), 1).otherwise(-1)).over(names)
    rank = f.row_number().over(Window.partitionBy("scope", "by", "name", "tested").orderBy("pos", "seq"))
    ranked = both.withColumn("tested_more", tested_more).where("tested_more = 0").withColumn("rank", rank)
    kept = [name for name in ("place", "part", "pos", "seq", "read") if name in both.columns]
    return ranked.groupBy("scope", "by", "name", "rank").agg(*(f.max(name).alias(name) for name in kept))


def _behind(paired: DataFrame, *, ties: bool) -> DataFrame:
    """The rows before which, by ``seq``, a larger ``pos`` of the same place occurs. ``ties``: of rows with the same
    ``seq`` none is before another."""
    place = Window.partitionBy("place")
    if ties:
        paired = paired.withColumn("step", f.dense_rank().over(place.orderBy("seq")))
        before = place.orderBy("step").rangeBetween(Window.unboundedPreceding, -1)
    else:
        before = place.orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    return paired.withColumn("furthest", f.max("pos").over(before)).where("pos < furthest")
