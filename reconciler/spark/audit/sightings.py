"""Every record of a log, once: its place, its side of the plan's cut, its name, its offset.

Places and topics are numbers, not texts, because these rows are kept for each record during an audit: about 60 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from reconciler.spark.audit.looking import LogExtent, ReadStretch
from reconciler.spark.audit.naming import Naming
from reconciler.spark.audit.result import COUNTS
from reconciler.spark.audit.resumed_rows import ALL_PARTITIONS, AuditedJob, AuditUnit
from reconciler.spark.ranges.reading import read

SIDES = COUNTS
"""The source's log before the stored offset, and from it on; the destination's before the resume offset, from it on,
and from the audit's end on; the job's output."""
PROCESSED, UNPROCESSED, BEFORE, AFTER, BEYOND, OUTPUT = range(len(SIDES))
SOURCE_SIDES, DESTINATION_SIDES = (PROCESSED, UNPROCESSED), (BEFORE, AFTER, BEYOND)
SCHEMA = "topic int, place int, side int, by string, name binary, part int, pos bigint"
"""``topic`` and ``place`` are numbers in ``Places``; ``part`` and ``pos`` are the log's partition and offset."""


@dataclass(frozen=True)
class Places:
    """All places of an audit, numbered in order."""

    planned: AuditedJob

    @cached_property
    def all(self) -> tuple[AuditUnit, ...]:
        return tuple(sorted({resumed.place for resumed in self.planned.resumed_rows}))

    @cached_property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({place.topic for place in self.all}))

    @cached_property
    def numbers(self) -> dict[AuditUnit, int]:
        return {place: number for number, place in enumerate(self.all)}

    def are_compared_apart(self, scope: str | None) -> bool:
        """True if names are compared only within a source partition. ``scope``: the column they are matched in."""
        scopes = {"place": len(self.all), "topic": len(self.topics)}.get(scope or "", 1)
        return scopes == len(self.all) and all(place.partition != ALL_PARTITIONS for place in self.all)

    @cached_property
    def of_topics(self) -> dict[str, int]:
        return {topic: number for number, topic in enumerate(self.topics)}


def sightings(
    spark: SparkSession,
    log: LogExtent,
    naming: Naming,
    places: Places,
    sides: Sequence[int],
    *,
    since_ms: int | None,
) -> DataFrame:
    """The log's records: before each stretch's cut they are ``sides[0]``, from ``until`` on ``sides[2]``."""
    ranges = [stretch.range for stretch in log.stretches if stretch.start < stretch.end]
    if not ranges:
        return small_table(spark, [], SCHEMA)
    options = dict(log.cluster.options)
    if naming.needs_headers:
        options["includeHeaders"] = "true"
    records = read(spark, ranges, log.cluster.bootstrap_servers, options)
    if since_ms is not None:
        records = records.where(f.unix_millis("timestamp") >= f.lit(since_ms))
    named = naming.named(records, "topic", "partition", "offset")
    cuts = f.broadcast(small_table(spark, [_cut(stretch, places) for stretch in log.stretches], _CUTS))
    in_front, behind, beyond = (f.lit(side) for side in sides)
    side = f.when(f.col("offset") < f.col("cut"), in_front).when(f.col("offset") < f.col("until"), behind)
    joined = named.join(cuts, (named["topic"] == cuts["log_topic"]) & (named["partition"] == cuts["part"]))
    return joined.select(
        cuts["topic"], "place", side.otherwise(beyond).alias("side"), "by", "name", "part", f.col("offset").alias("pos")
    )


_CUTS = "log_topic string, part int, topic int, place int, cut bigint, until bigint"


def _cut(stretch: ReadStretch, places: Places) -> tuple[str, int, int, int, int, int]:
    place = stretch.resumed.place
    numbers = (places.of_topics[place.topic], places.numbers[place])
    return (stretch.at.topic, stretch.at.partition, *numbers, stretch.cut, stretch.until)


def small_table(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: str) -> DataFrame:
    """A table of the driver's ``rows`` of numbers, texts and nulls.

    Spark folds the JSON to constant rows while it plans. ``createDataFrame`` of a list would need Python on executors.
    """
    names = [field.split()[0] for field in schema.split(", ")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows], separators=(",", ":"))
    fields = ",".join(f"{name}:{kind}" for name, kind in (field.split() for field in schema.split(", ")))
    parsed = f.from_json(f.lit(text), f"array<struct<{fields}>>")
    return spark.range(0, 1, numPartitions=1).select(f.explode(parsed).alias("row")).select("row.*")
