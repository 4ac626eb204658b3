"""A job that reads offset ranges batch by batch, with semantics by name.

    from reconciler.spark.batches import Caps, RangeBatches, at_least_once

    def write(frame, ranges):
        frame.selectExpr("CAST(value AS STRING)").write.mode("append").text("/srv/clicks")

    job = RangeBatches(spark, topics=["events"], group="clicks", bootstrap_servers="kafka:9092",
                       store="sqlite:////srv/offsets.db", caps=Caps(per_run=1_000_000))
    job.run(at_least_once(write))           # until there is nothing left to read

Theory of operation. One batch: the stored rows and the log's edges are read; ``planning`` makes ranges of them; the
last record of each range, one point read from the log, becomes the partition's new row; the function has Spark read the
ranges (``reading``). The semantics decide the order:

- *at most once*: save, then the function. A crash between them loses the batch's effects, and never repeats them.
- *at least once*: the function, then save. A crash between them repeats the batch.
- *exactly once*: the function returns the results, and a sink writes them so that a repeated batch changes nothing
  (``PostgresUpsert``), replaces its files (``HashNamedFiles``), or commits in one transaction with the offsets
  (``PostgresTransaction``).

Every save is a compare-and-set on the rows that the batch was planned from: of two runs of one group, one saves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.clock import clock_ms
from reconciler.config.identity import identity_from_spec
from reconciler.core.anchors import Record
from reconciler.core.errors import ConfigError
from reconciler.ports import LogReader, OffsetStore, Row, TopicPartition
from reconciler.spark.batches import reading
from reconciler.spark.batches.offsets import GroupOffsets, RangeBatch, RangeSink, rewrite
from reconciler.spark.batches.planning import (
    BY_DEFAULT,
    NO_CAPS,
    Caps,
    LogEdges,
    OffsetRange,
    Policy,
    RangePlan,
    is_numbered_here,
    lost_sentence,
    name_of,
    plan,
)
from reconciler.spark.batches.reading import ClusterAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reconciler.spark.started import Job

log = logging.getLogger(__name__)

DEADLINE_S = 30.0
"""For the cluster's answer, as ``[search] deadline``: a leader that moves must not end a batch whose work is done."""
Effect = Callable[["DataFrame", tuple[OffsetRange, ...]], None]
"""Does a batch's work, given its records and its ranges."""
Results = Callable[["DataFrame", tuple[OffsetRange, ...]], "DataFrame"]
"""Returns the results of a batch's records; the sink writes them."""


@dataclass(frozen=True, slots=True)
class Semantics:
    """A function and when its offsets are saved: made by ``at_most_once``, ``at_least_once`` and ``exactly_once``."""

    name: str
    function: Callable[..., Any]
    sink: RangeSink | None = None


def at_most_once(function: Effect) -> Semantics:
    """Offsets first, then ``function``: no work is repeated, and a crash loses the rest of the batch's work.

    Spark must not repeat tasks either: speculation, and more than one attempt per task, are refused. It still repeats
    tasks after an executor's preemption or decommissioning, or a failed fetch: it does not count these as failures.
    """
    return Semantics("at-most-once", function)


def at_least_once(function: Effect) -> Semantics:
    """``function`` first, then the offsets: nothing is lost, and a crash repeats the batch."""
    return Semantics("at-least-once", function)


def exactly_once(function: Results, *, into: RangeSink) -> Semantics:
    """``function`` returns the records' results, and ``into`` writes them so that they count once.

    The function must not write anything itself, and must return the same for the same records: a batch may be repeated.
    """
    return Semantics("exactly-once", function, into)


class RangeBatches:
    """One job: its topics on one cluster, its group's rows in one store.

    ``store`` is a store's address, or an opened store; leave it out where the sink keeps the offsets itself
    (``PostgresTransaction``). ``options`` are further options of Spark's Kafka source (``kafka.*`` for a login,
    ``includeHeaders``), ``kafka_client`` the librdkafka properties for the same cluster, with which the last record of
    each range is read. ``timestamp``, ``id``, ``unit`` and ``frame`` are texts as in ``[jobs.identity]``. Spark
    reads a batch once for each action: a function that runs several should cache the frame.

    ``job`` is what the hook handed over (``reconciler.spark.job()``). With it, no batch begins and none is saved once
    the job was moved since its start.

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
        caps: Caps = NO_CAPS,
        policy: Policy = BY_DEFAULT,
        options: Mapping[str, str] | None = None,
        kafka_client: Mapping[str, str] | None = None,
        timestamp: str = "record",
        id: str = "none",
        unit: str = "ms",
        frame: str = "none",
        job: Job | None = None,
        now_ms: Callable[[], int] = clock_ms,
    ) -> None:
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise ConfigError(
                "Range batches do not work over Spark Connect: their sinks run beside the executors' tasks.",
                hint="Run the job with a classic SparkSession.",
            )
        if isinstance(topics, str):
            raise ConfigError("topics must be a list, and is one text.", hint=f"Write topics=[{topics!r}].")
        identity = identity_from_spec(timestamp, id, unit=unit, frame=frame)
        options = dict(options or {})
        if any(spec.startswith("header:") for spec in (timestamp, id)):
            options.setdefault("includeHeaders", "true")
        reading.check_options(options)
        self._spark = spark
        self._topics = tuple(topics)
        self._cluster = ClusterAccess.at(bootstrap_servers, kafka_client, options)
        self._group, self._identity, self._store, self._now_ms = group, identity, store, now_ms
        self._job = job
        self._committed_only = reading.reads_committed(options)
        self._caps, self._policy = caps, policy
        self._opened: dict[RangeSink | None, GroupOffsets] = {}
        self._reader: LogReader | None = None
        self._has_taken_over = False
        """True if runs of the group at another cluster can no longer save anything."""
        self._empty: dict[tuple[TopicPartition, str | None], tuple[int, int]] = {}
        """``planning.EmptyStretches`` that this process has found."""

    # ------------------------------------------------------------ running

    def run(self, semantics: Semantics, *, batches: int | None = None) -> int:
        """Run batches until nothing is left to read, or ``batches`` of them; returns how many ran.

        Raises as ``run_once`` does.
        """
        done = 0
        while (batches is None or done < batches) and self.run_once(semantics) is not None:
            done += 1
        return done

    def run_once(self, semantics: Semantics) -> RangeBatch | None:
        """Plan, read and finish one batch; None if there was nothing to read.

        Raises NeedsPerson if the policy says stop or offsets are not this cluster's, Changed if another run of the
        group was first, Unreachable, Refused and OutcomeUnknown for cluster and store, ConfigError, and the function's
        own exceptions. With at least once and exactly once it is right to run again after any of them.
        """
        if semantics.name == "at-most-once":
            context = self._spark.sparkContext
            reading.require_single_attempts(context.master, dict(context.getConf().getAll()))
        offsets, sink = self._offsets(semantics.sink), semantics.sink
        while (batch := self._plan(offsets, sink)) is not None:
            ends = reading.last_records(batch.ranges, self._log())
            self._note_empty(batch, ends)
            if ends:
                with reading.data_loss_as_error(batch.ranges, saved=semantics.name == "at-most-once"):
                    self._finish(semantics, offsets, batch, ends)
                return batch
            if sink is not None:
                sink.abandon(batch, offsets)
        return None

    def close(self) -> None:
        """Close the connections to cluster and store. A process that ends with its job need not call it."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if isinstance(self._store, str):
            for offsets in self._opened.values():
                offsets.store.close()
        self._opened.clear()

    # ------------------------------------------------------------ one batch

    def _plan(self, offsets: GroupOffsets, sink: RangeSink | None) -> RangeBatch | None:
        """The next batch, after the rows that it needs have been saved; None if there is nothing to read."""
        if self._job is not None:
            self._job.require_here()
        rows = offsets.read()  # once: a batch that is repeated because of them must be saved over them
        edges = reading.look_up_edges(self._log(), self._topics)
        again = None if sink is None else sink.unfinished(self._spark, offsets, rows, edges)
        if again is not None and not again:
            return self._plan(offsets, sink)
        planned = self._ranges(rows, edges)
        if planned.begin and again is None:
            offsets.save_beginnings(planned.begin, edges, self._log())
            rows = offsets.read() | rows
            planned = self._ranges(rows, edges)
        ranges = again or planned.ranges
        if not ranges:
            return None
        if sink is not None and not self._has_taken_over:
            # A run at another cluster that has read these rows can no longer save anything over them.
            elsewhere = [row for at, row in rows.items() if not is_numbered_here(row.stored, edges, at)]
            offsets.save(rewrite(elsewhere), "went on elsewhere")
            self._has_taken_over = True
        return RangeBatch(ranges, name_of(ranges, edges.cluster), self._group, edges.cluster, rows)

    def _ranges(self, rows: Mapping[TopicPartition, Row], edges: LogEdges) -> RangePlan:
        """The plan; the records and partitions that it leaves out are logged."""
        planned = plan(
            rows,
            edges,
            self._topics,
            group=self._group,
            caps=self._caps,
            policy=self._policy,
            empty=self._empty,
        )
        if planned.lost:
            log.warning("%s; continuing after them, as Policy(overtaken) says.", lost_sentence(planned.lost))
        if planned.left:
            log.warning("%d stored partitions that the cluster does not have are left out.", len(planned.left))
        return planned

    def _finish(
        self, semantics: Semantics, offsets: GroupOffsets, batch: RangeBatch, ends: Mapping[TopicPartition, Record]
    ) -> None:
        cluster, sink = self._cluster, semantics.sink
        frame = reading.read(self._spark, batch.ranges, cluster.bootstrap_servers, cluster.options)
        changes = offsets.changes(batch.rows, ends, batch.cluster)

        def save() -> None:
            offsets.save(changes, f"batch {batch.name}")

        def check() -> None:
            if self._job is not None:
                self._job.require_here()
            reading.check_topics(batch.cluster, self._log())

        if sink is not None:
            sink.begin(batch, changes)
            results = semantics.function(frame, batch.ranges)
            _require_frame(results)
            sink.stage(results, batch)
            check()
            sink.commit(batch, changes, save)
        elif semantics.name == "at-most-once":
            check()
            save()
            semantics.function(frame, batch.ranges)
        else:
            semantics.function(frame, batch.ranges)
            check()
            save()

    def _note_empty(self, batch: RangeBatch, ends: Mapping[TopicPartition, Record]) -> None:
        """Remember the gaps after the ranges' last records: with a cap, the next batch would end in the same one."""
        after_last = {at: end.offset + 1 for at, end in ends.items()}
        for each in batch.ranges:
            place = (each.at, batch.cluster.topic_id(each.topic))
            since = after_last.get(each.at, each.from_offset)
            known = self._empty.get(place)
            if each.at not in after_last and known is not None and known[1] == since:
                since = known[0]
            self._empty[place] = (since, each.until_offset)

    # ------------------------------------------------------------ store and cluster

    def _offsets(self, sink: RangeSink | None) -> GroupOffsets:
        if sink not in self._opened:
            offsets = GroupOffsets(self._open(sink), self._group, self._identity, now_ms=self._now_ms)
            if sink is not None:
                sink.check(offsets.store)  # a second run asks again if it refuses
            self._opened[sink] = offsets
        return self._opened[sink]

    def _open(self, sink: RangeSink | None) -> OffsetStore:
        own, store = sink.store if sink is not None else None, self._store
        if own is not None and store is not None:
            raise ConfigError(
                "The sink keeps the offsets with its results, but the job names another store for them.",
                hint="Leave the job's store out.",
            )
        if own is not None:
            return own
        if store is None:
            raise ConfigError("The job has no store for its offsets.", hint='For example store="sqlite:///o.db".')
        if not isinstance(store, str):
            return store
        from reconciler.places.registry import open_store

        return open_store(store, kafka_client=self._cluster.client)

    def _log(self) -> LogReader:
        if self._reader is None:
            self._reader = self._cluster.reader(committed_only=self._committed_only, deadline_s=DEADLINE_S)
        return self._reader


def _require_frame(results: object) -> None:
    from pyspark.sql import DataFrame

    if not isinstance(results, DataFrame):
        raise ConfigError(
            f"The function returned {type(results).__name__}, and exactly once needs a DataFrame of results.",
            hint="Return the results; the sink writes them.",
        )
