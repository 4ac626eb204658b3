"""A drill's first batch: a few records of each partition, read by Spark as the job would, or by Kafka's client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.core.anchors import Record
from reconciler.core.errors import Changed
from reconciler.core.probes import LogRange
from reconciler.ports import LogReader, ReadRequest, TopicPartition
from reconciler.spark.ranges.planning import OffsetRange
from reconciler.spark.ranges.reading import read as read_by_spark
from reconciler.spark.session import own_session, refused

Ranges = Mapping[TopicPartition, LogRange]


@dataclass(frozen=True, slots=True, order=True)
class FirstRecord:
    """One record of the batch; ``timestamp_ms`` is Kafka's, epoch ms."""

    offset: int
    timestamp_ms: int | None

    @classmethod
    def of(cls, record: Record) -> FirstRecord:
        return cls(record.offset, record.timestamp_ms)


FirstRecords = Mapping[TopicPartition, Sequence[FirstRecord]]
BatchReader = Callable[[Ranges], FirstRecords]
"""Reads the records of each range, whose end is exclusive, in offset order."""


def read_ranges(reader: LogReader, ranges: Ranges) -> dict[TopicPartition, list[Record]]:
    """All records of the ranges. Raises Changed if one lies outside the log by now, and the reader's errors."""
    found: dict[TopicPartition, list[Record]] = {at: [] for at in ranges}
    places = {at: of.start for at, of in ranges.items() if of.start < of.end}
    while places:
        requests = [ReadRequest(at, place, ranges[at].end - place) for at, place in places.items()]
        for request, chunk in zip(requests, reader.read(requests), strict=True):
            at = request.partition
            if chunk.out_of_range:
                raise Changed(
                    f"{at}: offset {request.offset} is not in the log any more.",
                    hint="Run the drill again.",
                )
            found[at] += [record for record in chunk.records if record.offset < ranges[at].end]
            places[at] = chunk.next_offset
            if chunk.next_offset >= ranges[at].end or not chunk.records:
                del places[at]
    return found


def by_client(reader: LogReader) -> BatchReader:
    """A reader of the batch that uses Kafka's own client."""

    def read(ranges: Ranges) -> FirstRecords:
        found = read_ranges(reader, ranges)
        return {at: [FirstRecord.of(record) for record in records] for at, records in found.items()}

    return read


def by_spark(spark: Any, bootstrap: str, options: Mapping[str, str]) -> BatchReader:
    """A reader of the batch that uses Spark's Kafka source. ``options`` are further options of it, for a login."""

    def read(ranges: Ranges) -> FirstRecords:
        found: dict[TopicPartition, list[FirstRecord]] = {at: [] for at in ranges}
        if not ranges:
            return found
        spans = [OffsetRange(at.topic, at.partition, of.start, of.end) for at, of in ranges.items()]
        frame = read_by_spark(spark, spans, bootstrap, options)
        hint = "Check that its options reach the cluster (--option kafka.NAME=VALUE), or drill with --no-spark."
        with refused("Spark could not read the first batch at the destination", hint):
            rows = frame.selectExpr("topic", "partition", "offset", "unix_millis(timestamp) AS at").collect()
        for row in rows:
            stamp = None if row["at"] is None or row["at"] < 0 else row["at"]
            found[TopicPartition(row["topic"], row["partition"])].append(FirstRecord(row["offset"], stamp))
        return {at: sorted(records, key=lambda each: each.offset) for at, records in found.items()}

    return read


def spark_session(place: Path) -> AbstractContextManager[Any]:
    """A small session with its files in ``place``; a session that this process already has is used and left running."""
    settings = {
        "spark.master": "local[2]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(place),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }
    return own_session("reconciler drill", settings, kafka=True)
