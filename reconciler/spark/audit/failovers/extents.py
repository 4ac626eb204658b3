"""The logs' extents over all stays, looked up once before any record is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from reconciler.core.errors import Changed, ReconcilerError, Unreachable
from reconciler.formats.decimal_text import some
from reconciler.formats.plan import PartitionPlan
from reconciler.ports import ClusterInfo, LogReader, TopicPartition
from reconciler.spark.audit.failovers.stays import ClusterStays, Stays
from reconciler.spark.audit.looking import (
    PartitionEdges,
    Until,
    edges_of,
    is_cut_off,
    is_dead,
    is_planned_log,
    log_of,
    of_unplaced,
    require_anchors,
    with_records,
)
from reconciler.spark.ranges.planning import OffsetRange
from reconciler.spark.target import ClusterAccess


@dataclass(frozen=True, slots=True)
class Reach:
    """The offsets of one partition that are read: [start, end). ``read`` are those that the job's stays have read.

    From ``until`` on the job has not come to them; None on a cluster that it has left. ``log_start`` is where the log
    begins. ``is_unplaced``: how far the job has read is not known, and ``until`` is the last resume offset.
    """

    at: TopicPartition
    start: int
    end: int
    log_start: int
    read: tuple[tuple[int, int], ...]
    until: int | None
    is_unplaced: bool = False

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.at.topic, self.at.partition, self.start, self.end)

    @property
    def is_short(self) -> bool:
        """True if the log ends before an offset of the plans."""
        return any(self.end < max(bounds) for bounds in self.read)

    @property
    def hides_records(self) -> bool:
        """True if there are records of which it is not known whether the job has read them."""
        return self.is_unplaced and max(self.until or 0, self.start) < self.end

    def is_cut_off(self, cut: int) -> bool:
        """As ``looking.is_cut_off``: records from the cut on are gone, and not left out by their time."""
        return is_cut_off(cut, self.log_start, self.start)


@dataclass(frozen=True, slots=True)
class ClusterLog:
    """One cluster's side of the audit. ``silent`` are partitions of its topics that hold records and are in no plan."""

    cluster: ClusterAccess
    cluster_id: str
    reaches: tuple[Reach, ...]
    is_last: bool
    silent: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ReachedLogs:
    """The logs that answered, and a sentence for each cluster that was given and did not."""

    logs: tuple[ClusterLog, ...]
    dead: tuple[str, ...]
    absent: tuple[str, ...]
    """Clusters of the plans that were not given."""


def look_at(
    found: Stays,
    given: Mapping[str, ClusterAccess],
    *,
    until: Until,
    since_ms: int | None,
) -> ReachedLogs:
    """The logs of the plans' clusters. ``given``: their settings, under a name for messages.

    Raises Changed if a cluster is none of the plans', or a log is no longer the one that the job has read; Unreachable
    if the cluster where the job is now does not answer; Refused.
    """
    logs: dict[int, ClusterLog] = {}
    dead: dict[str, ReconcilerError] = {}
    for name, cluster in given.items():
        try:
            number, log = _look(found, name, cluster, until, since_ms)
        except ReconcilerError as error:
            if not is_dead(error):
                raise
            dead[name] = error
            continue
        if number in logs:
            raise Changed(f"[{name}] is the same cluster as another one.", hint="Correct its bootstrap_servers.")
        logs[number] = log
    missing = [each for number, each in enumerate(found.clusters) if number not in logs]
    if any(each.is_last for each in missing):
        raise next(iter(dead.values()), None) or Unreachable(
            "The cluster that the last plan leads to was not given.", hint="Add it to the configuration."
        )
    return ReachedLogs(
        tuple(log for _, log in sorted(logs.items())),
        tuple(f"[{name}] did not answer, and was taken for dead: {error.message}" for name, error in dead.items()),
        tuple(each.cluster_id or "unknown" for each in missing) if not dead else (),
    )


def _look(
    found: Stays,
    name: str,
    cluster: ClusterAccess,
    until: Until,
    since_ms: int | None,
) -> tuple[int, ClusterLog]:
    with closing(log_of(cluster, name)) as reader:
        info = reader.describe({at.topic for each in found.clusters for at in each.intervals})
        number = _which(found, name, info)
        stays = found.clusters[number]
        _require_topics(stays, info)
        edges = edges_of(reader, stays.intervals, since_ms)
        _require_anchors(reader, stays.sources, edges)
        there = (at for topic in sorted({at.topic for at in stays.intervals}) for at in info.topics[topic].places)
        silent = with_records(reader, (at for at in there if at not in stays.intervals), since_ms)
    reaches = []
    for at, intervals in stays.intervals.items():
        edge = edges[at]
        position = (until or {}).get(at, edge.end) if stays.is_last else edge.end
        known = max(position or 0, intervals[-1].start)  # what a hand-over skipped is expected, too
        stop = min(edge.end, known) if stays.is_last else None
        read = tuple((each.start, stop if each.end is None and stop is not None else each.end) for each in intervals)
        closed = tuple((start, edge.end if end is None else end) for start, end in read)
        reaches.append(
            Reach(
                at=at,
                start=edge.start,
                end=edge.end,
                log_start=edge.log_start,
                read=closed,
                until=stop,
                is_unplaced=position is None,
            )
        )
    return number, ClusterLog(cluster, info.cluster_id, tuple(reaches), stays.is_last, silent)


def _which(found: Stays, name: str, info: ClusterInfo) -> int:
    """The number of the plans' cluster that this is. Raises Changed if it is none."""
    ids = [each.cluster_id for each in found.clusters]
    if info.cluster_id in ids:
        return ids.index(info.cluster_id)
    if None in ids:
        return ids.index(None)
    raise Changed(
        f"The plans are for the clusters {some([str(each) for each in ids])}, and [{name}] is {info.cluster_id}.",
        hint="Audit with the configuration that the plans were made with.",
    )


def _require_topics(stays: ClusterStays, info: ClusterInfo) -> None:
    for at in stays.intervals:
        if not is_planned_log(info, at, stays.topic_ids.get(at.topic)):
            raise Changed(
                f"{at} is no longer the log that the plans are about: it was deleted or recreated.",
                hint="Its records cannot be compared any more: leave out the plans from before.",
            )


def _require_anchors(
    reader: LogReader, rows: Iterable[PartitionPlan], edges: Mapping[TopicPartition, PartitionEdges]
) -> None:
    """Raise Changed unless the last processed record of each plan is where the job saw it."""
    rounds: list[dict[TopicPartition, PartitionPlan]] = []
    for row in rows:
        at = row.source_key
        if at not in edges:  # the job had read nothing of it, or there is no such partition
            continue
        into = next((each for each in rounds if at not in each), None)
        if into is None:
            rounds.append(into := {})
        into[at] = row
    for each in rounds:
        require_anchors(reader, each, edges)


def announce(logs: Sequence[ClusterLog]) -> Iterable[str]:
    """Sentences on what the logs do not show."""
    for log in logs:
        if log.silent:
            yield f"{some([str(at) for at in log.silent])} of cluster {log.cluster_id} " + (
                "is in no plan: not compared."
            )
        cut = [str(each.at) for each in log.reaches if each.log_start > 0]
        if cut:
            yield f"Cluster {log.cluster_id} has deleted the first records of {some(cut)}: they are not known."
        short = [str(each.at) for each in log.reaches if each.is_short]
        if short:
            yield f"On cluster {log.cluster_id} the log of {some(short)} ends before an offset of the plans."
        yield from of_unplaced([reach.at for reach in log.reaches if reach.hides_records])


def gaps(found: Stays, logs: Sequence[ClusterLog]) -> list[TopicPartition]:
    """The partitions of which no log that was read has all records that a stay should have read.

    Their log ends before an offset of the plans; or it has deleted records from a resume offset on, and so has the log
    that the job had left, from the stored offset on.
    """
    named = {each.cluster_id for each in found.clusters}
    reaches = {
        (log.cluster_id if log.cluster_id in named else None, reach.at): reach for log in logs for reach in log.reaches
    }
    gone = {reach.at for reach in reaches.values() if reach.is_short}
    for hop in found.hops:
        for row in hop.rows:
            there, here = reaches.get((hop.destination_id, row.key)), reaches.get((hop.source_id, row.source_key))
            if there is None or row.resume_offset is None or not there.is_cut_off(row.resume_offset):
                continue
            if here is None or here.is_cut_off(row.stored_offset or 0):
                gone.add(row.key)
    return sorted(gone)


def left_out(found: Stays, logs: Sequence[ClusterLog]) -> bool:
    """True if a partition, or records that a stay should have read, cannot be compared."""
    hidden = any(reach.hides_records for log in logs for reach in log.reaches)
    return bool(found.undecided or gaps(found, logs) or hidden or any(log.silent for log in logs))
