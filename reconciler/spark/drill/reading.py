"""The first batch of a drill: a few records of each partition, read by Spark as the job would, or by Kafka's client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.core.anchors import Record
from reconciler.core.errors import Changed, Refused
from reconciler.core.probes import LogRange
from reconciler.ports import LogReader, ReadRequest, TopicPartition
from reconciler.spark.session import own_session

Ranges = Mapping[TopicPartition, LogRange]


@dataclass(frozen=True, slots=True, order=True)
class Seen:
    """One record of the batch; ``timestamp_ms`` is Kafka's."""

    offset: int
    timestamp_ms: int | None

    @classmethod
    def of(cls, record: Record) -> Seen:
        return cls(record.offset, record.timestamp_ms)


Batch = Mapping[TopicPartition, Sequence[Seen]]
BatchReader = Callable[[Ranges], Batch]
"""Reads the records of each range, whose end is exclusive, in offset order."""


def read_ranges(reader: LogReader, ranges: Ranges) -> dict[TopicPartition, list[Record]]:
    """All records of the ranges. Raises Changed where one lies outside the log by now; else as the reader does."""
    found: dict[TopicPartition, list[Record]] = {at: [] for at in ranges}
    places = {at: of.start for at, of in ranges.items() if of.start < of.end}
    while places:
        requests = [ReadRequest(at, place, ranges[at].end - place) for at, place in places.items()]
        for request, chunk in zip(requests, reader.read(requests), strict=True):
            at = request.partition
            if chunk.out_of_range:
                raise Changed(
                    f"{at.topic}-{at.partition}: offset {request.offset} is not in the log any more.",
                    hint="Run the drill again.",
                )
            found[at] += [record for record in chunk.records if record.offset < ranges[at].end]
            places[at] = chunk.next_offset
            if chunk.next_offset >= ranges[at].end or not chunk.records:
                del places[at]
    return found


def by_client(reader: LogReader) -> BatchReader:
    """The batch read by Kafka's own client."""

    def read(ranges: Ranges) -> Batch:
        return {at: [Seen.of(record) for record in records] for at, records in read_ranges(reader, ranges).items()}

    return read


def by_spark(spark: Any, bootstrap: str, options: Mapping[str, str]) -> BatchReader:
    """The batch read by Spark's Kafka source. ``options`` are more of the source's, for clusters that want a login."""

    def read(ranges: Ranges) -> Batch:
        found: dict[TopicPartition, list[Seen]] = {at: [] for at in ranges}
        if not ranges:
            return found
        frame = spark.read.format("kafka").options(**_options(bootstrap, ranges), **options).load()
        with _told():
            rows = frame.selectExpr("topic", "partition", "offset", "unix_millis(timestamp) AS at").collect()
        for row in rows:
            stamp = None if row["at"] is None or row["at"] < 0 else row["at"]
            found[TopicPartition(row["topic"], row["partition"])].append(Seen(row["offset"], stamp))
        return {at: sorted(seen, key=lambda each: each.offset) for at, seen in found.items()}

    return read


def _options(bootstrap: str, ranges: Ranges) -> dict[str, str]:
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for at, of in sorted(ranges.items()):
        starts.setdefault(at.topic, {})[str(at.partition)] = of.start
        ends.setdefault(at.topic, {})[str(at.partition)] = of.end
    return {
        "kafka.bootstrap.servers": bootstrap,
        "assign": json.dumps({topic: [int(number) for number in of] for topic, of in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "failOnDataLoss": "true",
    }


@contextmanager
def _told() -> Iterator[None]:
    """What Spark says of a read that failed, as a sentence."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        said = (str(getattr(error, "java_exception", None) or error).strip().splitlines() or ["it did not say why"])[0]
        raise Refused(
            f"Spark could not read the first batch at the destination: {said.rstrip('.')}.",
            hint="See that its options reach the cluster (--option kafka.NAME=VALUE), or drill with --no-spark.",
        ) from error


def spark_session(place: Path) -> AbstractContextManager[Any]:
    """A small session whose own files are in ``place``; one that this process has already is used, and left alone."""
    settings = {
        "spark.master": "local[2]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(place),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }
    return own_session("reconciler drill", settings, kafka=True)
