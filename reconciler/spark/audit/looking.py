"""What is looked up once, before anything is read: where each log begins and ends, and that it is the right log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.core.anchors import fingerprint
from reconciler.core.errors import Changed, Unreachable
from reconciler.ports import LogReader, ReadRequest, TopicPartition
from reconciler.spark.audit.spans import Planned, Span
from reconciler.spark.ranges.planning import OffsetRange

Client = Mapping[str, Any]
"""librdkafka properties, ``bootstrap.servers`` among them."""
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is read of one partition: [start, end), cut at ``cut``. At the destination ``until`` ends what the job read.

    ``log_start`` is where the log begins, which ``start`` is behind if the audit was told to begin at a time.
    """

    span: Span
    at: TopicPartition
    start: int
    end: int
    cut: int
    until: int
    log_start: int

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.at.topic, self.at.partition, self.start, self.end)


@dataclass(frozen=True, slots=True)
class Log:
    """One cluster's side of the audit. ``silent`` are partitions of the source that no plan speaks of."""

    bootstrap_servers: str
    cluster_id: str
    stretches: tuple[Stretch, ...]
    silent: tuple[TopicPartition, ...] = ()


def look_at_destination(
    planned: Planned, client: Client, *, until: Mapping[TopicPartition, int] | None, since_ms: int | None
) -> Log:
    """The destination's stretches. Raises Changed where it is not the planned log; Unreachable, Refused."""
    reader = _reader(client, "destination")
    try:
        found = reader.describe({span.topic for span in planned.spans})
        if found.cluster_id != planned.destination_cluster_id:
            raise Changed(
                f"The plan is for cluster {planned.destination_cluster_id}, and [destination] is {found.cluster_id}.",
                hint="Audit with the configuration that the plan was made with.",
            )
        for span in planned.spans:
            info = found.topics.get(span.topic)
            anew = info is not None and span.topic_id not in (None, info.topic_id) and info.topic_id is not None
            if info is None or span.partition not in info.partitions or anew:
                raise Changed(
                    f"{span.topic}:{span.partition} is no longer the log that the plan is about: it was deleted, or "
                    "made anew.",
                    hint="What the job read of it cannot be known any more; audit the other topics with another --job.",
                )
        places = {TopicPartition(span.topic, span.partition): span for span in planned.spans}
        edges = _edges(reader, places, since_ms)
    finally:
        reader.close()
    stretches = []
    for at, span in places.items():
        log_start, start, end = edges[at]
        stop = end if until is None else min(end, max(until.get(at, end), span.resume_offset))
        stretches.append(Stretch(span, at, start, end, span.resume_offset, stop, log_start))
    return Log(str(client["bootstrap.servers"]), found.cluster_id, tuple(stretches))


def look_at_source(planned: Planned, client: Client, *, since_ms: int | None) -> Log:
    """The source's stretches. Raises Unreachable where it is dead, Changed where it is not the job's log any more."""
    reader = _reader(client, "source")
    try:
        found = reader.describe({span.source_topic for span in planned.spans})
        if planned.source_cluster_id not in (None, found.cluster_id) or found.cluster_id == (
            planned.destination_cluster_id
        ):
            raise Changed(
                f"The job read cluster {planned.source_cluster_id or 'unknown'}, and [source] is {found.cluster_id}.",
                hint="Correct [source], or audit without it.",
            )
        places = {}
        for span in planned.spans:
            at = TopicPartition(span.source_topic, span.partition)
            if span.source_topic in found.topics and span.partition in found.topics[span.source_topic].partitions:
                places[at] = span
            elif span.processed_until:
                raise Changed(
                    f"The source has no {at.topic}:{at.partition} any more, which the job has read.",
                    hint="Audit without the source.",
                )
        edges = _edges(reader, places, since_ms)
        _require_anchors(reader, places, edges)
    finally:
        reader.close()
    there = [TopicPartition(name, number) for name, info in found.topics.items() for number in info.partitions]
    stretches = tuple(
        Stretch(span, at, start, end, span.processed_until, end, log_start)
        for at, span in places.items()
        for log_start, start, end in [edges[at]]
    )
    silent = tuple(sorted(at for at in there if at not in places))
    return Log(str(client["bootstrap.servers"]), found.cluster_id, stretches, silent)


def _reader(client: Client, who: str) -> LogReader:
    from reconciler.kafka.reader import KafkaLogReader

    return KafkaLogReader(client, timeout_s=TIMEOUT_S, who=who)


def _edges(
    reader: LogReader, places: Iterable[TopicPartition], since_ms: int | None
) -> dict[TopicPartition, tuple[int, int, int]]:
    """Of each partition where the log begins, where reading begins, and where both end."""
    asked = list(places)
    if not asked:
        return {}
    ends, starts = reader.log_ends(asked), reader.log_starts(asked)
    first: Mapping[TopicPartition, int | None] = dict(starts)
    if since_ms is not None:
        first = dict(zip(asked, reader.offsets_for_times([(at, since_ms) for at in asked]), strict=True))
    found = {}
    for at in asked:
        begin = first[at]
        begin = ends[at] if begin is None else min(max(begin, starts[at]), ends[at])
        found[at] = (starts[at], begin, max(ends[at], begin))
    return found


def _require_anchors(
    reader: LogReader, places: Mapping[TopicPartition, Span], edges: Mapping[TopicPartition, tuple[int, int, int]]
) -> None:
    """The last processed records must be where the job saw them, or the stored offsets are another log's."""
    for at, span in places.items():
        if span.processed_until > edges[at][2]:
            raise _another_log(at)
    named = [
        (at, span.anchor_offset, span.anchor_fingerprint)
        for at, span in places.items()
        if span.anchor_fingerprint is not None and (span.anchor_offset or 0) >= edges[at][0]
    ]
    requests = [ReadRequest(at, offset, 1) for at, offset, _ in named if offset is not None]
    for (at, offset, name), chunk in zip(named, reader.read(requests) if requests else (), strict=True):
        for record in chunk.records[:1]:
            if record.offset == offset and fingerprint(record.key, record.value) != name:
                raise _another_log(at)


def _another_log(at: TopicPartition) -> Changed:
    return Changed(
        f"The source's {at.topic}:{at.partition} is not the log that the job has read: the last processed record is "
        "not where the plan says.",
        hint="It was made anew, or the plan was made after the failover. Audit without the source.",
    )


def is_dead(error: Exception) -> bool:
    """True for an error that says the cluster could not be reached, and not that it said no."""
    return isinstance(error, Unreachable) and error.retryable
