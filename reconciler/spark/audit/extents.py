"""The logs' extents over all stays, looked up before any record is read; and the parts that they cannot show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from reconciler.core.anchors import has_fingerprint
from reconciler.core.errors import Changed, ReconcilerError, Unreachable
from reconciler.core.text import some
from reconciler.plan.document import PartitionPlan
from reconciler.ports import ClusterInfo, LogReader, ReadRequest, TopicPartition
from reconciler.spark.audit.result import StayRange, Uncompared
from reconciler.spark.audit.stays import ClusterStays, Interval, Stays
from reconciler.spark.batches.planning import OffsetRange
from reconciler.spark.batches.reading import ClusterAccess, reads_committed


@dataclass(frozen=True, slots=True)
class Edges:
    """Offsets of one partition: where the log begins, where reading begins, and where both end."""

    log_start: int
    start: int
    end: int

    @property
    def is_left_out(self) -> bool:
        """True if all records of the log, also deleted ones, are older than the audit's begin."""
        return self.end == 0 or self.log_start < self.start == self.end


@dataclass(frozen=True, slots=True)
class Reach:
    """The offsets of one partition that the audit reads: [start, end).

    ``read``: the ranges that the stays read. ``until``: the job is not expected to have read from there on; None:
    it is expected to have read all.
    """

    at: TopicPartition
    edges: Edges
    read: tuple[StayRange, ...]
    until: int | None

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.at.topic, self.at.partition, self.edges.start, self.edges.end)

    @property
    def is_short(self) -> bool:
        """True if the log ends before an offset of the plans: it is not the log that they were made for."""
        return any(self.edges.end < max(each.start, each.end) for each in self.read)

    def is_cut_off(self, cut: int) -> bool:
        """True if records from the cut on were deleted. Records that are older than the audit's begin do not count."""
        return cut < self.edges.log_start == self.edges.start


@dataclass(frozen=True, slots=True)
class ClusterLog:
    """One cluster's side of the audit. ``silent``: partitions of its topics that hold records and are in no plan."""

    cluster: ClusterAccess
    cluster_id: str
    reaches: tuple[Reach, ...]
    silent: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ReachedLogs:
    """The logs that answered; a sentence for each cluster that did not; and the clusters that were not given."""

    logs: tuple[ClusterLog, ...]
    dead: tuple[str, ...]
    absent: tuple[str, ...]

    @property
    def all_read(self) -> bool:
        return not self.dead and not self.absent

    @property
    def are_whole(self) -> bool:
        """True if every log has its first records, so that a row of the output must match a record."""
        return self.all_read and not any(reach.edges.log_start for log in self.logs for reach in log.reaches)


def look_at(
    found: Stays, given: Mapping[str, ClusterAccess], *, since_ms: int | None, has_output: bool = True
) -> ReachedLogs:
    """The logs of the plans' clusters. ``given``: their settings, under a name for messages.

    Without an output, each log is read from where the job first read it: the first cluster may have deleted earlier
    records. Raises Changed if no plan has a cluster, or a log is not the one that the job has read;
    Unreachable if the job's last cluster does not answer; Refused.
    """
    logs: dict[int, ClusterLog] = {}
    dead: dict[str, ReconcilerError] = {}
    for name, cluster in given.items():
        try:
            number, log = _look(found, name, cluster, since_ms, has_output)
        except Unreachable as error:
            if not error.retryable:
                raise
            dead[name] = error
            continue
        if number in logs:
            raise Changed(f"[{name}] is the same cluster as another table's.", hint="Correct its bootstrap_servers.")
        logs[number] = log
    missing = [each for number, each in enumerate(found.clusters) if number not in logs]
    if any(each.is_last for each in missing):
        raise next(iter(dead.values()), None) or Unreachable(
            "The cluster that the last plan leads to was not given.", hint="Add it to the configuration."
        )
    return ReachedLogs(
        tuple(log for _, log in sorted(logs.items())),
        tuple(f"[{name}] did not answer: {error.message}" for name, error in dead.items()),
        tuple(each.cluster_id or "unknown" for each in missing) if not dead else (),
    )


def _look(
    found: Stays, name: str, cluster: ClusterAccess, since_ms: int | None, has_output: bool
) -> tuple[int, ClusterLog]:
    # Ends as Spark sees them: Spark would wait forever for records behind an open transaction.
    committed_only = reads_committed(cluster.options)
    with closing(cluster.reader(name, committed_only=committed_only)) as reader:
        info = reader.describe({at.topic for each in found.clusters for at in each.intervals})
        number = _which(found, name, info)
        stays = found.clusters[number]
        intervals = _present(stays, info)
        edges = read_edges(reader, intervals, since_ms)
        for rows in stays.left:
            _require_anchors(reader, rows, edges)
        own = {at.topic for at in stays.intervals} & set(info.topics)
        others = [at for topic in own for at in info.topics[topic].places]
        unknown = [at for at in others if at not in intervals and at not in stays.undecided]
        silent = [at for at, edge in read_edges(reader, unknown, since_ms).items() if not edge.is_left_out]
    if not has_output:
        edges = {at: replace(edge, start=max(edge.start, intervals[at][0].start)) for at, edge in edges.items()}
    reaches = (_reach(stays, at, intervals[at], edges[at]) for at in intervals)
    return number, ClusterLog(cluster, info.cluster_id, tuple(reaches), tuple(sorted(silent)))


def _which(found: Stays, name: str, info: ClusterInfo) -> int:
    """The number of this cluster among the plans'. Raises Changed if no plan has it."""
    ids = [each.cluster_id for each in found.clusters]
    if info.cluster_id in ids:
        return ids.index(info.cluster_id)
    if None in ids:
        return ids.index(None)
    raise Changed(
        f"The plans are for the clusters {some([str(each) for each in ids])}, and [{name}] is {info.cluster_id}.",
        hint="Audit with the configuration that the plans were made with.",
    )


def _present(stays: ClusterStays, info: ClusterInfo) -> dict[TopicPartition, tuple[Interval, ...]]:
    """The stays' partitions that the cluster has. Raises Changed for a partition that was deleted or recreated."""
    recreated = {topic for topic, id in stays.topic_ids if info.topic_id(topic) not in (None, id)}
    found = {}
    for at, intervals in stays.intervals.items():
        is_there = at.topic in info.topics and info.topics[at.topic].has(at.partition)
        if is_there and at.topic not in recreated:
            found[at] = intervals
        elif is_there or any(each.end != 0 for each in intervals):
            raise Changed(
                f"{at} was deleted or recreated since the plans were made.",
                hint="Leave out the earlier plans, or that cluster.",
            )
    return found


def _reach(stays: ClusterStays, at: TopicPartition, intervals: tuple[Interval, ...], edge: Edges) -> Reach:
    stop = edge.end if stays.is_last and intervals[-1].end is None else stays.undecided.get(at)
    last = edge.end if stop is None else stop
    read = (StayRange(each.stay, *at, each.start, last if each.end is None else each.end) for each in intervals)
    return Reach(at, edge, tuple(read), stop)


def read_edges(
    reader: LogReader, places: Iterable[TopicPartition], since_ms: int | None
) -> dict[TopicPartition, Edges]:
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
        found[at] = Edges(starts[at], begin, max(ends[at], begin))
    return found


def _require_anchors(reader: LogReader, rows: Iterable[PartitionPlan], edges: Mapping[TopicPartition, Edges]) -> None:
    """Raise Changed unless each last processed record is where the plan has it: else this is another log."""
    anchors = {}
    for row in rows:
        at, anchor = row.source_key, row.anchor
        if at not in edges:
            continue
        if (row.stored_offset or 0) > edges[at].end:
            raise _another_log(at)
        if anchor is None or anchor.fingerprint is None or anchor.offset is None:
            continue
        if anchor.offset >= edges[at].log_start:
            anchors[ReadRequest(at, anchor.offset, 1)] = anchor.fingerprint
    for request, chunk in zip(anchors, reader.read([*anchors]) if anchors else (), strict=True):
        for record in chunk.records[:1]:
            if record.offset == request.offset and not has_fingerprint(record, anchors[request]):
                raise _another_log(request.partition)


def _another_log(at: TopicPartition) -> Changed:
    return Changed(
        f"{at} is not the log that the job has read: the last processed record is not at the plan's offset.",
        hint="It was recreated, or the plan was made after the failover. Audit without that cluster.",
    )


# ---------------------------------------------------------------- parts that the logs cannot show


def find_uncompared(found: Stays, looked: ReachedLogs, *, has_output: bool) -> Iterator[Uncompared]:
    """The parts that no log shows: without findings there, the job may still have lost or doubled records."""
    for sentence in looked.dead:
        yield Uncompared("cluster_unanswered", (), f"{sentence} Not compared. If it is gone for good: --no-source.")
    if found.undecided:
        yield _of("no_offset", found.undecided, "A plan gives no offset for {}: not compared from there on.")
    for log in looked.logs:
        of = f"cluster {log.cluster_id}"
        if log.silent:
            yield _of("not_in_plan", log.silent, f"{{}} of {of} is in no plan: not compared.")
        if short := [reach.at for reach in log.reaches if reach.is_short]:
            text = f"On {of} the log of {{}} ends before an offset of the plans: was it recreated, or its end cut off?"
            yield _of("log_short", short, text)
    if gone := _deleted(found, looked.logs, has_output=has_output):
        text = (
            "No log has all records of {} that the job should have read after a failover. Audit the later plans alone, "
            "or use --since."
            if has_output
            else "Records of {} were deleted after a failover: only the job's output can show whether it read them."
        )
        yield _of("records_deleted", gone, text)


def _of(reason: str, places: Sequence[TopicPartition], text: str) -> Uncompared:
    names = tuple(map(str, places))
    return Uncompared(reason, names, text.format(some(names)))


def _deleted(found: Stays, logs: Sequence[ClusterLog], *, has_output: bool) -> list[TopicPartition]:
    """The partitions for which no log has all records that a stay should have read.

    Records from a resume offset on were deleted there, and records from the stored offset on in the log that the job
    had left. Without the output, one of both is enough. A partition without a stored offset may begin anywhere.
    """
    named = {each.cluster_id for each in found.clusters}
    reaches = {
        (log.cluster_id if log.cluster_id in named else None, reach.at): reach for log in logs for reach in log.reaches
    }
    cut_left, cut_there, cut_topics = set(), set(), set()
    for number, hop in enumerate(found.hops):
        for row in hop.rows:
            there, here = reaches.get((hop.destination_id, row.key)), reaches.get((hop.source_id, row.source_key))
            if here is None or here.is_cut_off(max(0, row.stored_offset or 0)):
                cut_left.add((number, row.key))
                # Where partitions do not correspond, a partition's records may have come from any.
                if found.unit(row.key).partition is None and here is not None:
                    cut_topics.add((number, row.topic))
                if not has_output and here is not None and row.stored_offset is not None:
                    cut_there.add((number, row.key))
            if there is not None and row.resume_offset is not None and there.is_cut_off(row.resume_offset):
                cut_there.add((number, row.key))
    is_left_cut = {each for each in cut_there if each in cut_left or (each[0], each[1].topic) in cut_topics}
    return sorted({at for _, at in (is_left_cut if has_output else cut_there)})
