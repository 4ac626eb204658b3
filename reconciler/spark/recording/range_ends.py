"""Each partition's last record of a batch, read from Kafka by the batch's range: a point read, and no look at the data.

The read runs beside the job's function, and is used only where it surely names the last record that Spark counts as
read:

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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.config.addresses import shared_brokers
from reconciler.core.errors import ReconcilerError
from reconciler.ports import LogReader, TopicPartition
from reconciler.spark.identity_columns import LastRecord
from reconciler.spark.last_records import OffsetSpan, last_records
from reconciler.spark.recording.batch_range import BatchRanges, SourceRange, Unseen, cluster_id
from reconciler.spark.recording.store import SourceCluster
from reconciler.spark.target import AnchorTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
PAUSE_S = 300.0
"""Seconds without point reads after one has failed, or a cluster did not say which one it is: a batch must not wait
each time for a cluster that refuses."""


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

    def __init__(
        self, target: AnchorTarget, cluster: SourceCluster, *, topics: frozenset[str] | None, state_goes_along: bool
    ) -> None:
        self._target, self._cluster, self._topics = target, cluster, topics
        self._ranges = BatchRanges(state_goes_along=state_goes_along)
        self._begin()

    def _begin(self) -> None:
        self._readers: dict[bool, LogReader] = {}
        self._here: dict[str, bool] = {}
        self._pause: tuple[float, Unseen] | None = None
        self._worker: ThreadPoolExecutor | None = None  # one thread: batches of two queries take turns

    def begin(self, batch: DataFrame) -> Callable[[], PointRead | Unseen] | Unseen:
        """Begin to look up the last records of the batch that runs now; the function that is returned waits for them.

        Neither raises. To be called in the batch's own thread.
        """
        if self._target.identity.has_columns:
            return Unseen("the id or the timestamp is a column, which only Spark can read")
        if self._pause is not None and monotonic() < self._pause[0]:
            return self._pause[1]
        sources = self._ranges.of(batch)
        if isinstance(sources, Unseen):
            return sources
        wanted = [each for each in sources if spans([each], self._topics)]
        here = {each.servers: self._reads_here(batch, each) for each in wanted}
        elsewhere = [servers for servers, known in here.items() if not known]
        if elsewhere:
            why = Unseen(f"the query reads from {elsewhere[0]}, which is not known to be the cluster at {self._at}")
            if None in here.values():
                self._pause = monotonic() + PAUSE_S, why
            return why
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="reconciler-recording")
        return self._worker.submit(self._look_up, spans(sources, self._topics)).result

    def last_records(self, sources: Iterable[SourceRange]) -> PointRead:
        """The last records that all of these sources have read, in any thread. Raises ReconcilerError."""
        return self._read(spans(sources, self._topics))

    def refusal(self, at: TopicPartition, *, committed_only: bool) -> Unseen | None:
        """Why records cannot be read from Kafka; None if they can."""
        try:
            self._found({at: OffsetSpan(0, 1, committed_only)}, committed_only=committed_only)
        except ReconcilerError as error:
            return Unseen(f"records could not be read from Kafka: {error}")
        return None

    def _look_up(self, wanted: Mapping[TopicPartition, OffsetSpan]) -> PointRead | Unseen:
        try:
            return self._read(wanted)
        except Exception as error:  # the job can do without, whatever it is
            log.debug("the last records of a batch could not be read", exc_info=True)
            self._pause = monotonic() + PAUSE_S, Unseen(f"its range could not be read from Kafka: {error}")
            return self._pause[1]

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
        return PointRead(without_recreated([found[at] for at in sorted(found)], renumbered, self._target.group), gone)

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

    @property
    def _at(self) -> str:
        return self._target.cluster.bootstrap_servers

    def _reads_here(self, batch: DataFrame, source: SourceRange) -> bool | None:
        """Whether the source reads the cluster that this recording was given (E1); None if a cluster did not say."""
        if source.servers not in self._here:
            here = bool(shared_brokers(source.servers, self._at)) or self._has_id(cluster_id(batch, source), source)
            if here is None:
                return None
            self._here[source.servers] = here
        return self._here[source.servers]

    def _has_id(self, cluster: str | None, source: SourceRange) -> bool | None:
        if cluster is None:
            return None
        try:
            return self._cluster.having({topic for topic, _ in source.ends}).cluster_id == cluster
        except ReconcilerError as error:
            log.debug("the cluster could not be described: %s", error)
            return None

    def close(self) -> None:
        if self._worker is not None:
            self._worker.shutdown()
        for reader in self._readers.values():
            reader.close()
        self._begin()

    def __getstate__(self) -> dict[str, Any]:
        left_here = ("_readers", "_here", "_pause", "_worker")
        return {name: value for name, value in self.__dict__.items() if name not in left_here}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()


def without_recreated(ends: Sequence[LastRecord], recreated: Collection[str], group: str) -> list[LastRecord]:
    """The last records without those of topics that were deleted and recreated; says which these are."""
    if recreated:
        log.warning(
            "%s was deleted and recreated: this batch is not stored for group %s, since its offsets may be the "
            "former topic's",
            ", ".join(sorted(recreated)),
            group,
        )
    return [end for end in ends if end.at.topic not in recreated]


def latest(ends: Iterable[LastRecord], bounds: Mapping[TopicPartition, int]) -> list[LastRecord]:
    """The last record of each partition that all of its sources have read: of two, one may be ahead."""
    found: dict[TopicPartition, LastRecord] = {}
    for end in ends:
        if end.offset < bounds.get(end.at, end.offset + 1) and (
            end.at not in found or end.offset > found[end.at].offset
        ):
            found[end.at] = end
    return [found[at] for at in sorted(found)]
