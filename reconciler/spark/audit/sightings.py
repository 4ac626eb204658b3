"""Every record of a log, once: its place, its side of the plan's cut, its name, its offset.

Numbers where texts would do, for this is what is kept of each record while an audit runs: about 60 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.spark.audit.looking import Log, Stretch
from reconciler.spark.audit.naming import Naming
from reconciler.spark.audit.small import small_table
from reconciler.spark.audit.spans import Place, Planned
from reconciler.spark.ranges.reading import options_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIDES = (
    "source_processed",
    "source_unprocessed",
    "destination_before",
    "destination_after",
    "destination_beyond",
    "output",
)
"""The source's log in front of the stored offset, and behind it; the destination's in front of the resume offset, from
there on, and behind where the audit ends; the job's output."""
PROCESSED, UNPROCESSED, BEFORE, AFTER, BEYOND, OUTPUT = range(len(SIDES))
SOURCE_SIDES, DESTINATION_SIDES = (PROCESSED, UNPROCESSED), (BEFORE, AFTER, BEYOND)
SCHEMA = "topic int, place int, side int, by string, name binary, part int, pos bigint"
"""``topic`` and ``place`` are numbers of ``Places``; ``part`` and ``pos`` the log's own partition and offset."""


@dataclass(frozen=True)
class Places:
    """All places of an audit, numbered in order."""

    planned: Planned

    @cached_property
    def all(self) -> tuple[Place, ...]:
        return tuple(sorted({span.place for span in self.planned.spans}))

    @cached_property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({place.topic for place in self.all}))

    def number(self, place: Place) -> int:
        return self._numbers[place]

    @cached_property
    def _numbers(self) -> dict[Place, int]:
        return {place: number for number, place in enumerate(self.all)}

    @cached_property
    def of_topics(self) -> dict[str, int]:
        return {topic: number for number, topic in enumerate(self.topics)}


def sightings(
    spark: SparkSession,
    log: Log,
    naming: Naming,
    places: Places,
    sides: Sequence[int],
    *,
    since_ms: int | None,
    options: Mapping[str, str] | None,
) -> DataFrame:
    """The log's records: in front of each stretch's cut they are ``sides[0]``, from ``until`` on ``sides[2]``."""
    from pyspark.sql import functions as f

    ranges = [stretch.range for stretch in log.stretches if stretch.start < stretch.end]
    if not ranges:
        return small_table(spark, [], SCHEMA)
    given = dict(options or {})
    if naming.needs_headers:
        given["includeHeaders"] = "true"
    records = spark.read.format("kafka").options(**options_for(ranges, log.bootstrap_servers, given)).load()
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


def _cut(stretch: Stretch, places: Places) -> tuple[str, int, int, int, int, int]:
    place = stretch.span.place
    numbers = (places.of_topics[place.topic], places.number(place))
    return (stretch.at.topic, stretch.at.partition, *numbers, stretch.cut, stretch.until)
