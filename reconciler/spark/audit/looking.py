"""The logs' extents, looked up once before any record is read, and the check that they are the right logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

from reconciler.core.anchors import has_fingerprint
from reconciler.core.errors import Changed, Unreachable
from reconciler.formats.decimal_text import some
from reconciler.formats.plan import PartitionPlan
from reconciler.ports import ClusterInfo, LogReader, ReadRequest, TopicPartition
from reconciler.spark.audit.resumed_rows import AuditedJob, ResumedRow
from reconciler.spark.ranges.planning import OffsetRange
from reconciler.spark.ranges.reading import reads_committed
from reconciler.spark.target import ClusterAccess

TIMEOUT_S = 10.0

Until: TypeAlias = Mapping[TopicPartition, int | None] | None
"""The job's position by destination partition, None where it is unknown; without any, the logs' ends."""


@dataclass(frozen=True, slots=True)
class ReadStretch:
    """The offsets of one partition that are read: [start, end), cut at ``cut``. The job has read up to ``until``.

    ``log_start`` is where the log begins; ``start`` is later if the audit begins at a time. ``is_unplaced``: how far
    the job has read is not known, and ``until`` is the resume offset.
    """

    resumed: ResumedRow
    at: TopicPartition
    start: int
    end: int
    cut: int
    until: int
    log_start: int
    is_unplaced: bool = False

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.at.topic, self.at.partition, self.start, self.end)

    @property
    def is_short(self) -> bool:
        """True if the log ends before its cut: it is no longer the log that the plan was made for."""
        return self.end < self.cut

    @property
    def hides_records(self) -> bool:
        """True if there are records of which it is not known whether the job has read them."""
        return self.is_unplaced and max(self.cut, self.start) < self.end

    @property
    def is_cut_off(self) -> bool:
        """True if the log has deleted records from the cut on which the audit does not leave out by their time."""
        return is_cut_off(self.cut, self.log_start, self.start)


@dataclass(frozen=True, slots=True)
class LogExtent:
    """One cluster's side of the audit. ``silent`` are partitions that hold records and are in no plan."""

    cluster: ClusterAccess
    cluster_id: str
    stretches: tuple[ReadStretch, ...]
    silent: tuple[TopicPartition, ...] = ()


def log_of(cluster: ClusterAccess, name: str) -> LogReader:
    """The cluster's log as Spark reads it: where that leaves out aborted records, up to the last stable offset.

    Spark would wait forever for records behind an open transaction.
    """
    return cluster.reader(name, timeout_s=TIMEOUT_S, committed_only=reads_committed(cluster.options))


def look_at_destination(
    planned: AuditedJob,
    cluster: ClusterAccess,
    *,
    until: Until,
    since_ms: int | None,
) -> LogExtent:
    """The destination's stretches. Raises Changed if it is not the planned log; Unreachable, Refused."""
    with closing(log_of(cluster, "destination")) as reader:
        found = reader.describe({resumed.row.topic for resumed in planned.resumed_rows})
        if found.cluster_id != planned.destination_cluster_id:
            raise Changed(
                f"The plan is for cluster {planned.destination_cluster_id}, and [destination] is {found.cluster_id}.",
                hint="Audit with the configuration that the plan was made with.",
            )
        for resumed in planned.resumed_rows:
            if not is_planned_log(found, resumed.row.key, resumed.row.topic_id):
                raise Changed(
                    f"{resumed.row.key} is no longer the log that the plan is about: it was deleted or recreated.",
                    hint="Its records cannot be compared any more; audit the other topics with another --job.",
                )
        places = {resumed.row.key: resumed for resumed in planned.resumed_rows}
        edges = edges_of(reader, places, since_ms)
        known = {*places, *planned.undecided}
        silent = with_records(reader, (at for at in _all_places(found) if at not in known), since_ms)
    stretches = []
    for at, resumed in places.items():
        edge = edges[at]
        position, cut = (until or {}).get(at, edge.end), resumed.resume_offset
        stop = min(edge.end, max(position or 0, cut))
        stretches.append(
            ReadStretch(
                resumed=resumed,
                at=at,
                start=edge.start,
                end=edge.end,
                cut=cut,
                until=stop,
                log_start=edge.log_start,
                is_unplaced=position is None,
            )
        )
    return LogExtent(cluster, found.cluster_id, tuple(stretches), silent)


def look_at_source(planned: AuditedJob, cluster: ClusterAccess, *, since_ms: int | None) -> LogExtent:
    """The source's stretches. Raises Unreachable if it is dead, Changed if it is no longer the job's log."""
    with closing(log_of(cluster, "source")) as reader:
        found = reader.describe({resumed.row.source_topic for resumed in planned.resumed_rows})
        if planned.source_cluster_id not in (None, found.cluster_id) or found.cluster_id == (
            planned.destination_cluster_id
        ):
            raise Changed(
                f"The job read cluster {planned.source_cluster_id or 'unknown'}, and [source] is {found.cluster_id}.",
                hint="Correct [source], or audit without it.",
            )
        places = {}
        for resumed in planned.resumed_rows:
            at, info = resumed.row.source_key, found.topics.get(resumed.row.source_topic)
            if info is not None and info.has(resumed.row.partition):
                places[at] = resumed
            elif resumed.processed_until:
                raise Changed(
                    f"The source has no {at} any more, which the job has read.",
                    hint="Audit without the source.",
                )
        edges = edges_of(reader, places, since_ms)
        require_anchors(reader, {at: resumed.row for at, resumed in places.items()}, edges)
        silent = with_records(reader, (at for at in _all_places(found) if at not in places), since_ms)
    stretches = tuple(
        ReadStretch(
            resumed=resumed,
            at=at,
            start=edge.start,
            end=edge.end,
            cut=resumed.processed_until,
            until=edge.end,
            log_start=edge.log_start,
        )
        for at, resumed in places.items()
        for edge in [edges[at]]
    )
    return LogExtent(cluster, found.cluster_id, stretches, silent)


def _all_places(found: ClusterInfo) -> Iterable[TopicPartition]:
    return (at for info in found.topics.values() for at in info.places)


def gaps(destination: LogExtent, source: LogExtent | None) -> set[TopicPartition]:
    """The destination's partitions of which no log has all records that the job should have read after the cut."""
    here = source.stretches if source is not None else ()
    # Where partitions do not correspond, a partition's records may have come from any.
    partly = {s.resumed.row.topic for s in here if s.is_cut_off and s.resumed.remapped}
    known = {s.resumed.row.key for s in here if not s.is_cut_off and s.resumed.row.topic not in partly}
    return {s.at for s in destination.stretches if s.is_short or (s.is_cut_off and s.at not in known)}


def unshown(source: LogExtent | None, *, has_output: bool) -> list[TopicPartition]:
    """The source's partitions with deleted records that the job had not read, if no output shows what became of them.

    The destination may hold them in front of the resume offset. A partition without a stored offset begins anywhere.
    """
    stretches = () if has_output or source is None else source.stretches
    return [s.at for s in stretches if s.is_cut_off and s.resumed.row.stored_offset is not None]


def left_out(planned: AuditedJob, destination: LogExtent, source: LogExtent | None, *, has_output: bool) -> bool:
    """True if a partition, or records that the job should have read, cannot be compared."""
    silent = destination.silent or (source is not None and source.silent)
    missing = gaps(destination, source) or unshown(source, has_output=has_output)
    return bool(planned.undecided or silent or missing or any(s.hides_records for s in destination.stretches))


def of_unplaced(places: Iterable[TopicPartition]) -> Iterable[str]:
    """A sentence on the partitions of which it is not known how far the job has read."""
    found = [str(at) for at in places]
    if found:
        yield (
            f"How far the job has read {some(found)} is not known: its store has no offset of this cluster there, or "
            "only one before the resume offset, so that no record was expected from there on. Audit without --until "
            "stored once the job has reached the log's end or is stopped; or with a configuration whose store is where "
            "the job keeps its offsets now, such as a copied checkpoint."
        )


def is_cut_off(cut: int, log_start: int, start: int) -> bool:
    """True if a log that is read from ``start`` on has deleted records from ``cut`` on.

    Where reading begins behind the log's own start, the audit begins at a time, and leaves out what is before that.
    """
    return cut < log_start == start


def is_planned_log(found: ClusterInfo, at: TopicPartition, topic_id: str | None) -> bool:
    """False if the cluster has no such partition now, or its topic has another id than in the plan."""
    info = found.topics.get(at.topic)
    if info is None or not info.has(at.partition):
        return False
    return None in (topic_id, info.topic_id) or topic_id == info.topic_id


@dataclass(frozen=True, slots=True)
class PartitionEdges:
    """Offsets of one partition: where the log begins, where reading begins, and where both end."""

    log_start: int
    start: int
    end: int


def edges_of(
    reader: LogReader, places: Iterable[TopicPartition], since_ms: int | None
) -> dict[TopicPartition, PartitionEdges]:
    partitions = list(places)
    if not partitions:
        return {}
    ends, starts = reader.log_ends(partitions), reader.log_starts(partitions)
    first: Mapping[TopicPartition, int | None] = dict(starts)
    if since_ms is not None:
        first = dict(zip(partitions, reader.offsets_for_times([(at, since_ms) for at in partitions]), strict=True))
    found = {}
    for at in partitions:
        begin = first[at]
        begin = ends[at] if begin is None else min(max(begin, starts[at]), ends[at])
        found[at] = PartitionEdges(starts[at], begin, max(ends[at], begin))
    return found


def with_records(
    reader: LogReader, places: Iterable[TopicPartition], since_ms: int | None
) -> tuple[TopicPartition, ...]:
    """Those of the partitions that hold records, or have held some that the audit does not leave out by their time."""
    edges = edges_of(reader, places, since_ms)
    older = {at for at, edge in edges.items() if edge.log_start < edge.start == edge.end}
    return tuple(sorted(at for at, edge in edges.items() if edge.end > 0 and at not in older))


def require_anchors(
    reader: LogReader, rows: Mapping[TopicPartition, PartitionPlan], edges: Mapping[TopicPartition, PartitionEdges]
) -> None:
    """Raise Changed unless the last processed records are where the job saw them: else this is another log.

    ``rows``: by the source's partition.
    """
    for at, row in rows.items():
        if (row.stored_offset or 0) > edges[at].end:
            raise _another_log(at)
    anchors = {at: row.anchor for at, row in rows.items()}
    requests = [
        ReadRequest(at, anchor.offset, 1)
        for at, anchor in anchors.items()
        if anchor is not None
        and anchor.fingerprint is not None
        and anchor.offset is not None
        and anchor.offset >= edges[at].log_start
    ]
    for request, chunk in zip(requests, reader.read(requests) if requests else (), strict=True):
        anchor = anchors[request.partition]
        for record in chunk.records[:1]:
            same_record = anchor is not None and has_fingerprint(record, anchor.fingerprint or "")
            if record.offset == request.offset and not same_record:
                raise _another_log(request.partition)


def _another_log(at: TopicPartition) -> Changed:
    return Changed(
        f"The source's {at} is not the log that the job has read: the last processed record is "
        "not where the plan says.",
        hint="It was recreated, or the plan was made after the failover. Audit without the source.",
    )


def is_dead(error: Exception) -> bool:
    """True if the cluster could not be reached; False if it refused."""
    return isinstance(error, Unreachable) and error.retryable
