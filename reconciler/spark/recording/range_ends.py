"""Each partition's last record of a batch, read from Kafka by the batch's range: a point read, and no look at the data.

The read runs beside the job's function. That it names the last record that Spark counts as read rests on these rules:

- E1  It reads the cluster that Spark reads: an address in common, or the same cluster id by Spark's own client.
- E2  It leaves out the same records as Spark: those of aborted transactions where the source has ``read_committed``.
- E3  The topics have the same ids after it as when they were last looked up, before the batch. Otherwise the offsets
      are those of the former topic, and would name records of the new one that the query has not read: the batch
      stores nothing of that topic, whose records are ``gone`` (E4).
- E4  It stays within the range, whose end Spark has found in the log. Records can only vanish meanwhile (retention,
      compaction): then it names an earlier one, or none and the row stays. Both are early, never late. Where none is
      left and the log now begins within the range, it says so (``PointRead.gone``): the anchor before the range would
      else be taken for that of its end, as after a range of markers, and the replay shown too small.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from reconciler.config.addresses import shared_brokers
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.ports import LogReader, TopicPartition
from reconciler.spark.last_records import LastRecord, OffsetSpan, last_records
from reconciler.spark.recording.batch_range import SourceRange, cluster_id, source_ranges
from reconciler.spark.recording.store import SourceCluster
from reconciler.spark.target import AnchorTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0


def spans(sources: Iterable[SourceRange], topics: frozenset[str] | None = None) -> dict[TopicPartition, OffsetSpan]:
    """What the sources read in this batch, without partitions that have nothing new.

    Where two sources read one partition, the lower end counts, as in a checkpoint's rows, also if that source has
    nothing new: it has not read further. A partition that is new to the query has no start; Spark begins at the first
    offset there is.
    """
    found: dict[TopicPartition, OffsetSpan] = {}
    for source in sources:
        for (topic, number), end in source.ends.items():
            if topics is not None and topic not in topics:
                continue
            at, start = TopicPartition(topic, number), source.starts.get((topic, number), 0)
            other = found.get(at, OffsetSpan(start, end))
            committed_only = source.committed_only or other.committed_only
            found[at] = OffsetSpan(min(start, other.start), min(end, other.end), committed_only)
    return {at: span for at, span in found.items() if span.start < span.end}


class PointRead(NamedTuple):
    """The last records of a batch. ``gone``: partitions whose records cannot be read any more.

    Retention has removed them since Spark read them, or the topic was recreated.
    """

    ends: list[LastRecord]
    gone: frozenset[TopicPartition] = frozenset()


class RangeEnds:
    """Finds the last records of one recording's batches by their ranges."""

    def __init__(self, target: AnchorTarget, cluster: SourceCluster, *, topics: frozenset[str] | None) -> None:
        self._target, self._cluster, self._topics = target, cluster, topics
        self._readers: dict[bool, LogReader] = {}
        self._here: set[str] = set()
        """The servers of sources that are known to read this cluster."""
        self._worker: ThreadPoolExecutor | None = None  # one thread: batches of two queries take turns

    def begin(self, batch: DataFrame) -> Callable[[], PointRead]:
        """Begin to look up the last records of the batch that runs now; the function that is returned waits for them.

        To be called in the batch's own thread. Raises ConfigError if the batch's range cannot be learned, or is not of
        this cluster, and Unreachable; the function raises ReconcilerError.
        """
        sources = source_ranges(batch)
        for each in sources:
            if spans([each], self._topics):
                self.refuse_elsewhere(batch, each)
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="reconciler-recording")
        return self._worker.submit(self.last_records, sources).result

    def last_records(self, sources: Iterable[SourceRange]) -> PointRead:
        """The last records that all of these sources have read, in any thread. Raises ReconcilerError."""
        return self._read(spans(sources, self._topics))

    def refuse_unreadable(self, at: TopicPartition, *, committed_only: bool) -> None:
        """Raise ReconcilerError if this program may not read the partition."""
        self._found({at: OffsetSpan(0, 1, committed_only)}, committed_only=committed_only)

    def _read(self, wanted: Mapping[TopicPartition, OffsetSpan]) -> PointRead:
        if not wanted:
            return PointRead([])
        topics = {at.topic for at in wanted}
        before = self._cluster.having(topics)
        found = {**self._found(wanted, committed_only=False), **self._found(wanted, committed_only=True)}
        gone = self._gone({at: span for at, span in wanted.items() if at not in found})
        after = self._reader(committed_only=any(span.committed_only for span in wanted.values())).describe(
            before.topics
        )
        self._cluster.learn(after)
        renumbered = {name for name in topics if not after.numbers_as(before, name)}
        gone |= {at for at in wanted if at.topic in renumbered}
        if renumbered:
            log.warning(
                "%s was deleted and recreated: this batch is not stored for group %s, since its offsets may be the "
                "former topic's",
                ", ".join(sorted(renumbered)),
                self._target.group,
            )
        return PointRead([found[at] for at in sorted(found) if at.topic not in renumbered], gone)

    def _gone(self, empty: Mapping[TopicPartition, OffsetSpan]) -> frozenset[TopicPartition]:
        """The ranges in which no record was found, and in which the log begins now."""
        if not empty:
            return frozenset()
        reader = self._reader(committed_only=any(span.committed_only for span in empty.values()))
        starts = reader.log_starts(list(empty))
        return frozenset(at for at, span in empty.items() if starts[at] > span.start)

    def _found(
        self, wanted: Mapping[TopicPartition, OffsetSpan], *, committed_only: bool
    ) -> dict[TopicPartition, LastRecord]:
        here = {at: span for at, span in wanted.items() if span.committed_only is committed_only}
        return last_records(self._reader(committed_only=committed_only), here, timeout_s=TIMEOUT_S) if here else {}

    def _reader(self, *, committed_only: bool) -> LogReader:
        if committed_only not in self._readers:
            access = self._target.cluster
            self._readers[committed_only] = access.reader(timeout_s=TIMEOUT_S, committed_only=committed_only)
        return self._readers[committed_only]

    # ------------------------------------------------------------ the cluster

    def refuse_elsewhere(self, frame: DataFrame, source: SourceRange) -> None:
        """Raise ConfigError if the source does not read this cluster (E1), Unreachable if neither tells its id."""
        servers, here = source.servers, self._target.cluster.bootstrap_servers
        if servers in self._here or shared_brokers(servers, here):
            return
        theirs = cluster_id(frame, source)
        if theirs is None:
            raise Unreachable(f"The cluster at {servers} did not say its id, to compare it with that at {here}.")
        if self._cluster.having({topic for topic, _ in source.ends}).cluster_id != theirs:
            raise ConfigError(
                f"The query reads from {servers}, which is not the cluster at {here}.",
                hint="Give the bootstrap_servers of the cluster that the query reads.",
            )
        self._here.add(servers)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
