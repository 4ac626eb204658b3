"""How often each record occurs in each place, and the figures that follow: sums over names, in Spark expressions.

For one name, sp and su count its records before and after the cut of the source's log; db, da and dl those before the
destination's cut, from it on, and after the audit's end; out counts its rows in the output. m = sp + su.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from reconciler.spark.audit.naming import CONTENT, ID, NAMELESS
from reconciler.spark.audit.output import FROM_SOURCE
from reconciler.spark.audit.sightings import AFTER, BEFORE, OUTPUT, PROCESSED, SIDES, UNPROCESSED

FIRST = {PROCESSED: "at_sp", UNPROCESSED: "at_su", BEFORE: "at_db", AFTER: "at_da"}
PART_SHIFT = 44
"""Puts partition and offset into one number, so that their minimum needs no sort: exact for offsets below 2^44."""
FIGURES = (
    "lost",
    "lost_not_at_destination",
    "lost_in_front_of_resume",
    "possibly_lost",
    "doubled",
    "read_again",
    "possibly_doubled",
    "only_at_destination",
    "nameless",
    "nameless_at_source",
    "nameless_at_destination",
    "output_unknown",
    "order_unknown",
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The conditions that decide how figures are computed. ``shared`` and ``cut_off`` are numbers of topics.

    ``offsets_only``: the source is dead and the output has only offsets, so a record that was read again has another
    name. ``shared``: topics with the same name at both clusters, where local writers may have written among mirrored
    records. ``cut_off``: topics whose source log no longer has its first record.
    """

    source_lives: bool
    has_output: bool
    unique: bool
    by_id: bool
    offsets_only: bool = False
    judges_order: bool = False
    shared: tuple[int, ...] = ()
    cut_off: tuple[int, ...] = ()


def tally(seen: DataFrame, scope: str | None, rows: DataFrame | None = None) -> DataFrame:
    """One row per name within its scope: ``n0`` to ``n5``, its count on each of ``SIDES``, and its first offsets.

    ``place`` is the first place where a log has it; a row of the output that is in no log has its own. ``unordered``:
    some row of the output has no ``seq``.
    """
    at = f.shiftleft(f.col("part").cast("bigint"), PART_SHIFT) + f.col("pos")
    all_seen = seen.select("topic", "place", "side", "by", "name", at.alias("at"), f.lit(False).alias("unordered"))
    if rows is not None:
        nothing = f.lit(None).cast("bigint").alias("at")
        unordered = f.col("seq").isNull()
        all_seen = all_seen.union(rows.select("topic", "place", f.lit(OUTPUT), "by", "name", nothing, unordered))
    within = f.lit(0) if scope is None else f.col(scope)
    in_log = f.col("side") != OUTPUT
    return (
        all_seen.groupBy(within.alias("scope"), "by", "name")
        .agg(
            *(f.sum(f.when(f.col("side") == side, 1).otherwise(0)).alias(f"n{side}") for side in range(len(SIDES))),
            *(f.min(f.when(f.col("side") == side, f.col("at"))).alias(name) for side, name in FIRST.items()),
            f.coalesce(f.min(f.when(in_log, f.col("place"))), f.min("place")).alias("place"),
            f.coalesce(f.min(f.when(in_log, f.col("topic"))), f.min("topic")).alias("topic"),
            f.max("unordered").alias("unordered"),
        )
        .drop("scope")
    )


def judged(tallied: DataFrame, rules: Rules) -> DataFrame:
    """The tally with the ``FIGURES`` of each name."""
    figures = _with_output(rules) if rules.has_output else _without_output(rules)
    zero = f.lit(0).cast("bigint")
    return tallied.select(
        "*", *(f.coalesce(figures.get(name, zero), zero).cast("bigint").alias(name) for name in FIGURES)
    )


def together(judged_names: DataFrame) -> DataFrame:
    """The names with a finding, and all others of a place as one row without a name: the same sums, in fewer rows."""
    is_finding = f.col("lost") + f.col("possibly_lost") + f.col("doubled") > 0
    named = [f.when(is_finding, f.col(column)).alias(column) for column in ("by", "name")]
    counts = [*(f"n{side}" for side in range(len(SIDES))), *FIGURES]
    return judged_names.groupBy("place", "topic", *named).agg(
        *(f.sum(name).alias(name) for name in counts), *(f.min(name).alias(name) for name in FIRST.values())
    )


def sums(judged_names: DataFrame) -> list[dict[str, Any]]:
    """The figures of each place, and how many records are on each side. One row per place."""
    columns = [
        *(f.sum(f"n{side}").alias(name) for side, name in enumerate(SIDES)),
        *(f.sum(n).alias(n) for n in FIGURES),
    ]
    return [row.asDict() for row in judged_names.groupBy("place").agg(*columns).collect()]


# ---------------------------------------------------------------- figures


class _Counts:
    """The counts of one name, and the sums that all rules use."""

    def __init__(self) -> None:
        self.sp, self.su, self.db, self.da, self.dl, self.out = (f.col(f"n{side}") for side in range(len(SIDES)))
        self.m = self.sp + self.su
        self.copies = self.db + self.da
        self.known = self.m > 0
        self.short = _above(self.su - self.da - self.dl)
        """Unprocessed records that the job does not find after the resume offset."""
        self.skipped = f.least(self.short, _above(self.db - self.sp))
        """Those of these records that the destination has before it."""
        self.absent = self.short - self.skipped
        self.again = _above(self.da - self.su)
        """Copies after the resume offset beyond those of unprocessed records."""


def _without_output(rules: Rules) -> dict[str, Column]:
    n = _Counts()
    if rules.source_lives:
        doubled = f.when(n.known, n.again).otherwise(0)
        return {
            "lost": n.short,
            "lost_not_at_destination": n.absent,
            "lost_in_front_of_resume": n.skipped,
            "doubled": doubled,
            "read_again": f.when(n.sp > 0, doubled).otherwise(0),
            "only_at_destination": f.when(n.known, 0).otherwise(n.copies + n.dl),
            "order_unknown": f.when(n.known & (n.m != n.copies + n.dl), n.da).otherwise(0),
        }
    seen_before = f.when(n.db > 0, n.da).otherwise(_above(n.da - 1))
    read_again = f.when(n.db > 0, n.da).otherwise(0)
    if rules.unique:
        named = f.col("by") == ID
        return {
            "doubled": f.when(named, seen_before).otherwise(0),
            "read_again": f.when(named, read_again).otherwise(0),
            "possibly_doubled": f.when(named, 0).otherwise(seen_before),
        }
    return {"possibly_doubled": seen_before}


def _with_output(rules: Rules) -> dict[str, Column]:
    n = _Counts()
    figures = _against_source(n, rules) if rules.source_lives else _against_destination(n, rules)
    in_log = n.m + n.copies + n.dl > 0
    nameless = f.col("by") == NAMELESS
    of_log = in_log & ~nameless
    if rules.by_id:
        nameless = nameless | (f.col("by") == CONTENT)  # a record without an id cannot be looked for by id
        of_log = of_log & ~nameless
    from_source = f.col("by") == FROM_SOURCE  # only known: it should occur once
    only_once = {"doubled": _above(n.out - 1)}
    if rules.offsets_only:
        figures["read_again"] = f.lit(0)
    if rules.judges_order:
        reference = n.m if rules.source_lives else n.copies + n.dl
        figures["order_unknown"] = f.when((reference != n.out) | f.col("unordered"), n.out).otherwise(0)
    zero = f.lit(0)
    named = {
        name: f.when(of_log, column).when(from_source, only_once.get(name, zero)).otherwise(zero)
        for name, column in figures.items()
    }
    there = n.copies + n.dl
    not_named = {
        "nameless": n.m + there + n.out,
        "nameless_at_source": n.m,
        "nameless_at_destination": there,
    }
    unknown = f.when(~in_log & ~nameless & ~from_source, n.out).otherwise(0)
    return {
        **named,
        **{name: f.when(nameless, column).otherwise(0) for name, column in not_named.items()},
        "output_unknown": unknown,
    }


def _against_source(n: _Counts, rules: Rules) -> dict[str, Column]:
    """A record should be processed as often as the source has it, less the copies that are still ahead of the job."""
    ahead = f.least(n.dl, _above(n.su - n.da))
    lost = _above(n.m - ahead - n.out)
    absent = f.least(lost, n.absent)
    # Not in the source's log: written locally (the job reads it from the resume offset on), or deleted at the source.
    lost_local, local = _above(n.da - n.out), n.copies + n.dl
    may_be_deleted = f.col("topic").isin(*rules.cut_off) if rules.cut_off else f.lit(False)
    possibly = f.when(may_be_deleted, _above(n.copies - n.out) - lost_local).otherwise(0)
    doubled = f.when(n.known, _above(n.out - n.m)).otherwise(_above(n.out - local))
    return {
        "lost": f.when(n.known, lost).otherwise(lost_local),
        "lost_not_at_destination": f.when(n.known, absent).otherwise(0),
        "lost_in_front_of_resume": f.when(n.known, f.least(lost - absent, n.skipped)).otherwise(0),
        "possibly_lost": f.when(n.known, 0).otherwise(possibly),
        "doubled": doubled,
        "read_again": f.least(doubled, n.again),
        "only_at_destination": f.when(n.known, 0).otherwise(local),
    }


def _against_destination(n: _Counts, rules: Rules) -> dict[str, Column]:
    """A record should be processed as often as the destination has it, or once if names are unique."""
    once = f.least(n.copies, f.lit(1))
    shared = f.col("topic").isin(*rules.shared) if rules.shared else f.lit(False)
    # In a topic with the same name at both clusters, a record before the resume offset may be a local writer's.
    surely = f.when(shared, n.da if not rules.unique else f.least(n.da, f.lit(1))).otherwise(
        once if rules.unique else f.greatest(n.da, once)
    )
    should = once if rules.unique else n.copies
    most = f.least(n.copies + n.dl, f.lit(1)) if rules.unique else n.copies + n.dl
    lost, doubled = _above(surely - n.out), _above(n.out - most)
    possibly_doubled = f.lit(0) if rules.unique else _above(f.least(n.out, n.copies) - f.greatest(n.db, once))
    return {
        "lost": lost,
        "possibly_lost": _above(should - n.out) - lost,
        "doubled": doubled,
        "read_again": f.least(doubled, n.da),
        "possibly_doubled": possibly_doubled,
    }


def _above(column: Column) -> Column:
    """The number, or 0 if it is negative."""
    return f.greatest(column, f.lit(0))
