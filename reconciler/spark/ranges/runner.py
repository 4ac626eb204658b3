"""A job that reads offset ranges batch by batch, with semantics by name.

    from reconciler.spark.ranges.planning import Caps
    from reconciler.spark.ranges.runner import RangeBatches, at_least_once

    def write(frame, ranges):
        frame.selectExpr("CAST(value AS STRING)").write.mode("append").text("/srv/clicks")

    job = RangeBatches(spark, topics=["events"], group="clicks", bootstrap_servers="kafka:9092",
                       store="sqlite:////srv/offsets.db", caps=Caps(per_run=1_000_000))
    job.run(at_least_once(write))           # until there is nothing left to read

Theory of operation. One batch: the stored rows and the log's edges are read; ``planning`` makes ranges of them; Spark
reads these (``reading``); the last record of each partition becomes its new row. What is done in which order is the
semantics:

- *at most once*: save, then the function. A crash between them loses the batch's effects, and never repeats them.
- *at least once*: the function, then save. A crash between them repeats the batch.
- *exactly once*: the function says what is to be written, and a sink writes it so that a repeated batch changes nothing
  (``idempotent``), or takes the place of what it wrote before (``hashed_files``), or is written in one transaction with
  the offsets (``transactional``).

Every save is a compare-and-set on the rows that the batch was planned from: of two runs of one group, one saves.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.clock import clock_ms
from reconciler.core.anchors import Anchor, Record
from reconciler.core.errors import ConfigError
from reconciler.ports import Change, ClusterInfo, LogReader, OffsetStore, TopicPartition
from reconciler.spark.identity_columns import BatchIdentity, LastRecord
from reconciler.spark.ranges import reading, watermarks
from reconciler.spark.ranges.offsets import GroupOffsets
from reconciler.spark.ranges.planning import (
    BY_DEFAULT,
    NO_CAPS,
    Caps,
    Log,
    OffsetRange,
    Planned,
    Policy,
    name_of,
    plan,
    told_lost,
)
from reconciler.spark.ranges.sinks import Batch, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

Effect = Callable[["DataFrame", tuple[OffsetRange, ...]], None]
"""Does a batch's work: given its records and its ranges."""
Results = Callable[["DataFrame", tuple[OffsetRange, ...]], "DataFrame"]
"""Says what a batch's records become; the sink writes it."""


@dataclass(frozen=True, slots=True)
class Semantics:
    """What ``at_most_once``, ``at_least_once`` and ``exactly_once`` return."""

    name: str
    function: Callable[..., Any]
    sink: Sink | None = None


def at_most_once(function: Effect) -> Semantics:
    """Offsets first, then ``function``: nothing is done twice, and a crash loses the rest of the batch's work.

    Spark must not repeat tasks either: speculation, and more than one attempt a task, are refused.
    """
    return Semantics("at-most-once", function)


def at_least_once(function: Effect) -> Semantics:
    """``function`` first, then the offsets: nothing is lost, and a crash repeats the batch."""
    return Semantics("at-least-once", function)


def exactly_once(function: Results, *, into: Sink) -> Semantics:
    """``function`` makes results of the records, and ``into`` writes them so that they count once.

    It must not write anything itself, and must make the same of the same records: a batch may be run again.
    """
    return Semantics("exactly-once", function, into)


@dataclass(frozen=True, slots=True)
class _Empty:
    """A stretch of a partition that holds no record."""

    topic_id: str | None
    since: int
    until: int


class RangeBatches:
    """One job: its topics on one cluster, its group's rows in one store.

    ``store`` is a store's address, or an opened store; leave it out where the sink keeps the offsets itself
    (``PostgresTransaction``). ``options`` are further options of Spark's Kafka source (``kafka.*`` for a login,
    ``includeHeaders``), ``kafka_client`` the librdkafka properties for the same cluster. ``anchors``, ``timestamp``,
    ``id`` and ``unit`` are as for ``recording()``. ``min_partitions`` has Spark split ranges over more tasks.
    ``cache`` keeps a batch while it is worked on (in memory, else on disk); without it Spark reads Kafka twice.

    Raises ConfigError for settings that contradict each other.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        topics: Sequence[str],
        group: str,
        bootstrap_servers: str,
        store: str | OffsetStore | None = None,
        anchors: str | None = None,
        caps: Caps = NO_CAPS,
        policy: Policy = BY_DEFAULT,
        options: Mapping[str, str] | None = None,
        kafka_client: Mapping[str, str] | None = None,
        timestamp: str | Any = "record",
        id: str | Any = "none",
        unit: str = "ms",
        min_partitions: int | None = None,
        cache: bool = True,
        now_ms: Callable[[], int] = clock_ms,
    ) -> None:
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise ConfigError(
                "Range batches do not work over Spark Connect: their sinks run beside the executors' tasks.",
                hint="Run the job with a classic SparkSession.",
            )
        if isinstance(topics, str):
            raise ConfigError("topics is one text, not a list.", hint=f"Write topics=[{topics!r}].")
        self._spark = spark
        self._topics = tuple(topics)
        self._group = group
        self._bootstrap = bootstrap_servers
        self._client = {"bootstrap.servers": bootstrap_servers, **(kafka_client or {})}
        self._store, self._anchors = store, anchors
        self._caps, self._policy = caps, policy
        self._identity = BatchIdentity(timestamp=timestamp, id=id, unit=unit)
        self._options = dict(options or {})
        if min_partitions is not None:
            self._options["minPartitions"] = str(min_partitions)
        if self._identity.needs_headers:
            self._options.setdefault("includeHeaders", "true")
        reading.check_options(self._options)
        self._committed_only = reading.reads_committed(self._options)
        self._cache = cache
        self._now_ms = now_ms
        self._opened: dict[int, GroupOffsets] = {}
        self._reader: LogReader | None = None
        self._empty: dict[TopicPartition, _Empty] = {}

    # ------------------------------------------------------------ running

    def run(self, semantics: Semantics, *, batches: int | None = None) -> int:
        """Run batches until nothing is left to read, or ``batches`` of them; how many there were.

        Raises as ``run_once`` does.
        """
        done = 0
        while (batches is None or done < batches) and self.run_once(semantics) is not None:
            done += 1
        return done

    def run_once(self, semantics: Semantics) -> Batch | None:
        """Plan, read and finish one batch; None if there was nothing to read.

        Raises NeedsPerson where the policy says stop or offsets are not this cluster's, Changed where another run of
        the group was first, Unreachable, Refused and OutcomeUnknown for cluster and store, ConfigError, and what the
        function raises. At least once and exactly once: whatever was raised, running again is right.
        """
        self._check(semantics)
        offsets = self._offsets(semantics.sink)
        while True:
            batch = self._plan(offsets, semantics.sink)
            if batch is None:
                return None
            with self._read(batch) as (frame, ends):
                if ends:
                    self._finish(semantics, offsets, batch, frame, ends)
            self._note_empty(batch, ends)
            if ends:
                return batch

    def close(self) -> None:
        """Give back the connections to cluster and store. A process that ends with its job need not."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if isinstance(self._store, str):
            for each in self._opened.values():
                each.store.close()
        self._opened.clear()

    # ------------------------------------------------------------ one batch

    def _plan(self, offsets: GroupOffsets, sink: Sink | None) -> Batch | None:
        if sink is not None:
            sink.settle(self._spark, self._group, offsets.read())
        rows = offsets.read()
        looked = watermarks.look(self._log(), self._topics, self._client if self._committed_only else None)

        def planned_now() -> Planned:
            return plan(
                rows,
                looked,
                self._topics,
                group=self._group,
                caps=self._caps,
                policy=self._policy,
                empty=self._known_empty(looked.cluster),
            )

        planned = planned_now()
        if planned.begin:
            lasts = watermarks.last_records(
                self._log(), looked, {at: offset for at, offset in planned.begin.items() if offset is not None}
            )
            offsets.save(self._beginnings(offsets, planned, lasts, looked), "first start")
            rows = offsets.read()
            planned = planned_now()
        if planned.lost:
            log.warning("%s; going on behind them, as Policy(overtaken) says.", told_lost(planned.lost))
        if planned.left:
            log.warning("%d stored partitions that the cluster does not have are left out.", len(planned.left))
        ranges = planned.ranges
        if sink is not None:
            ranges = sink.unfinished(self._group, looked) or ranges
        if not ranges:
            return None
        return Batch(ranges, name_of(ranges, looked.cluster), self._group, looked.cluster, rows, planned.lost)

    @contextmanager
    def _read(self, batch: Batch) -> Iterator[tuple[DataFrame, list[LastRecord]]]:
        """The batch's records, kept while they are worked on, and the last ones of each partition."""
        from pyspark import StorageLevel

        frame = reading.read(self._spark, batch.ranges, self._bootstrap, self._options)
        if self._cache:
            frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            with reading.data_loss_told(batch.ranges):
                ends = self._identity.last_records(frame)
                reading.check_read(batch.ranges, ends, self._log(), committed_only=self._committed_only)
                yield frame, ends
        finally:
            if self._cache:
                frame.unpersist()

    def _finish(
        self, semantics: Semantics, offsets: GroupOffsets, batch: Batch, frame: DataFrame, ends: list[LastRecord]
    ) -> None:
        changes = offsets.changes(batch.rows, ends, self._identity, batch.cluster)

        def save() -> None:
            offsets.save(changes, f"batch {batch.name}")

        if semantics.sink is not None:
            semantics.sink.begin(batch, changes)
            results = semantics.function(frame, batch.ranges)
            _require_frame(results)
            semantics.sink.stage(results, batch)
            semantics.sink.commit(batch, changes, save)
        elif semantics.name == "at-most-once":
            save()
            semantics.function(frame, batch.ranges)
        else:
            semantics.function(frame, batch.ranges)
            save()

    # ------------------------------------------------------------ gaps, beginnings

    def _known_empty(self, cluster: ClusterInfo) -> dict[TopicPartition, tuple[int, int]]:
        return {
            at: (each.since, each.until)
            for at, each in self._empty.items()
            if at.topic in cluster.topics and each.topic_id == cluster.topics[at.topic].topic_id
        }

    def _note_empty(self, batch: Batch, ends: Iterable[LastRecord]) -> None:
        """Behind its last record a range is empty: remembered, so that a cap does not end in the same gap again."""
        behind_last = {end.at: end.offset + 1 for end in ends}
        for each in batch.ranges:
            topic_id = batch.cluster.topics[each.topic].topic_id
            known = self._empty.get(each.at)
            since = behind_last.get(each.at, each.from_offset)
            if each.at not in behind_last and known and (known.topic_id, known.until) == (topic_id, since):
                since = known.since
            self._empty[each.at] = _Empty(topic_id, since, each.until_offset)

    def _beginnings(
        self, offsets: GroupOffsets, planned: Planned, lasts: Mapping[TopicPartition, Record], looked: Log
    ) -> list[Change]:
        def anchor(at: TopicPartition, last: LastRecord | None) -> Anchor:
            cluster_id, topic_id = looked.cluster.cluster_id, looked.topic_id(at)
            if last is None:
                return Anchor(cluster_id=cluster_id, topic_id=topic_id)
            return self._identity.anchor_of(last, cluster_id=cluster_id, topic_id=topic_id)

        return offsets.beginnings(planned.begin, {at: _as_last(at, record) for at, record in lasts.items()}, anchor)

    # ------------------------------------------------------------ what a job has

    def _check(self, semantics: Semantics) -> None:
        if semantics.name == "at-most-once":
            context = self._spark.sparkContext
            require_single_attempts(context.master, dict(context.getConf().getAll()))

    def _offsets(self, sink: Sink | None) -> GroupOffsets:
        key = id(sink)
        if key not in self._opened:
            self._opened[key] = GroupOffsets(self._open(sink), self._group, self._now_ms)
            if sink is not None:
                sink.check(self._opened[key].store)
        return self._opened[key]

    def _open(self, sink: Sink | None) -> OffsetStore:
        own = sink.store if sink is not None else None
        if own is not None and self._store is not None:
            raise ConfigError(
                "The sink keeps the offsets with its results, and the job names another store for them.",
                hint="Leave the job's store out.",
            )
        if own is not None:
            return own
        if self._store is None:
            raise ConfigError("The job names no store for its offsets.", hint='For example store="sqlite:///o.db".')
        if not isinstance(self._store, str):
            return self._store
        from reconciler.stores.registry import open_store

        return open_store(self._store, kafka_client=self._client, anchors=self._anchors)

    def _log(self) -> LogReader:
        if self._reader is None:
            from reconciler.kafka.reader import KafkaLogReader

            self._reader = KafkaLogReader(self._client, who="job's")
        return self._reader


def require_single_attempts(master: str, settings: Mapping[str, str]) -> None:
    """Raise ConfigError where Spark may run a task twice: its effects would be done twice."""
    local = re.fullmatch(r"local(\[[^,\]]+(?:,\s*(\d+))?\])?", master.strip())
    attempts = (local[2] or "1") if local else settings.get("spark.task.maxFailures", "4")
    if attempts != "1" or settings.get("spark.speculation", "false").lower() == "true":
        raise ConfigError(
            "At most once cannot hold while Spark repeats tasks.",
            hint="Start Spark with spark.task.maxFailures=1 and spark.speculation=false.",
        )


def _require_frame(results: object) -> None:
    from pyspark.sql import DataFrame

    if not isinstance(results, DataFrame):
        raise ConfigError(
            f"The function returned {type(results).__name__}, and exactly once needs a DataFrame of results.",
            hint="Return what is to be written; the sink writes it.",
        )


def _as_last(at: TopicPartition, record: Record) -> LastRecord:
    return LastRecord(
        at=at,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        append_time=record.append_time,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )
