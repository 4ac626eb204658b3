"""Record anchors for sinks other than foreachBatch (files, Kafka, a table, the console).

    from reconciler.spark.observing import observing

    anchors = observing(spark, store="checkpoint:/srv/clicks/checkpoint", anchors="sqlite:////srv/anchors.db",
                        group="clicks", bootstrap_servers="localhost:9092", id="header:message-id")
    events = anchors.watch(spark.readStream.format("kafka").options(**options).load(), ["events"])
    query = (events.writeStream.format("parquet").option("path", "/srv/clicks/out")
             .option("checkpointLocation", "/srv/clicks/checkpoint").start())

Theory of operation. When a batch is done and committed, Spark reports its end offsets; a listener reads each
partition's last record before them from Kafka (``watched``, ``range_ends``) and stores both. ``watch`` only has Spark
count the records, so that the report can be told from those of other queries. Where the source cannot be seen, or may
not be read, ``watch`` has Spark observe the last record of each partition while the batch runs: one aggregation over
the whole batch, with a ``max_by`` for each partition, since ``observe`` knows no groups.

The report comes after the commit, so nothing is stored for a batch that failed. It is asynchronous: the last report of
a killed driver may be lost. The store is then a batch behind the checkpoint: the anchor lags, the verdict is
``bounded``, and the difference counts as replay. The next report after a restart corrects it. In a store of rows it
does so for partitions that it has records of. A silent one keeps its row, and its records are read again uncounted: the
report does not show whether a record between that row and the query's offset was processed, or skipped by a query that
began elsewhere. A report that comes twice, or late, changes nothing. A report that could not be stored while the store
or the cluster was away is stored after the next one that can be: a partition without records in the next batch would
keep a row that is behind.

A partition whose last record no report names is looked up in the cluster that the query reads: the last record before
the reported offset. Such are those that were added since ``watch``, where Spark observes the last records; and, for the
anchors of a checkpoint, those that were silent since the query began, and those of sources that are not watched.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from reconciler.clock import clock_ms
from reconciler.core.errors import ConfigError, ReconcilerError, as_sentence
from reconciler.ports import ClusterInfo, OffsetStore, TopicPartition
from reconciler.spark.identity_columns import OWN_TIME, BatchIdentity, ColumnSpec, LastRecord
from reconciler.spark.recording.batch_range import Unseen
from reconciler.spark.recording.checkpoint import (
    BatchBounds,
    CheckpointRecorder,
    changes_of_committed,
    ends_without_anchor,
    recorder_for,
    sides_of,
)
from reconciler.spark.recording.held_back import holder, output_mode, refusal
from reconciler.spark.recording.listening import listen, stop_listening
from reconciler.spark.recording.looking_up import LookUp, Observed, added
from reconciler.spark.recording.observed_text import (
    fields_of,
    last_records,
    observed,
    require_id_without_payload,
    text_of,
)
from reconciler.spark.recording.range_ends import RangeEnds, latest, without_recreated
from reconciler.spark.recording.store import Recorder
from reconciler.spark.recording.watched import Matching, Watched, ranges_of, source_of
from reconciler.spark.target import AnchorTarget, ClusterAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

MOST_UNSTORED = 100
"""Reports that are kept for later while they cannot be stored: as many as Spark itself keeps of a query."""


def observing(
    spark: SparkSession,
    *,
    store: str | OffsetStore,
    group: str,
    bootstrap_servers: str,
    anchors: str | None = None,
    kafka_client: Mapping[str, str] | None = None,
    timestamp: ColumnSpec = "record",
    id: ColumnSpec = "none",
    unit: str = "ms",
    config_id: str | None = None,
    config_timestamp: str | None = None,
    frame: str = "none",
    fingerprint: bool = True,
    now_ms: Callable[[], int] = clock_ms,
) -> Observer:
    """Watch one query's Kafka sources, and store each partition's next offset and its last record's anchor.

    The arguments are those of ``recording``. With ``store="checkpoint:PATH"`` the anchors belong to the query's own
    checkpoint, for a job that continues from it after a failover; any other store has rows for a job that starts from
    stored offsets. Nothing is stored there for a query that holds records back in its state (``recording.held_back``).

    The observed values are part of the query's progress, which Spark logs: keys and values too. ``fingerprint=False``
    leaves those out, and needs an ``id`` that is ``key``, a header or a column.

    Raises ConfigError for wrong settings, and Unreachable or Refused if the store cannot be written.
    """
    target = AnchorTarget(
        group=group,
        cluster=ClusterAccess.at(bootstrap_servers, kafka_client),
        identity=BatchIdentity(timestamp, id, unit, config_id, config_timestamp, frame),
        store=store,
        anchors=anchors,
        now_ms=now_ms,
    )
    if not fingerprint:
        require_id_without_payload(target.identity)
    recorder = recorder_for(target)
    recorder.open()
    return Observer(spark, recorder, payload=fingerprint)


class Observer:
    """Watches the sources of one query, and stores its reports."""

    def __init__(self, spark: SparkSession, recorder: Recorder | CheckpointRecorder, *, payload: bool) -> None:
        self._spark = spark
        self._recorder = recorder
        self._identity = recorder.target.identity
        self._group = recorder.target.group
        self._payload = payload
        self._metric = f"reconciler:{self._group}:{uuid4().hex[:8]}"
        """Begins the names of this observer's observations: a late report of a closed one's query is not its own."""
        self._units: dict[str, str] = {}
        self._watched: dict[str, Watched] = {}
        """The observations in ``_units`` that only count records."""
        self._observed: dict[str, Observed] = {}
        """The others."""
        self._look_up = LookUp(recorder.target, recorder.cluster)
        self._state_goes_along = isinstance(recorder, CheckpointRecorder)
        self._ranges = RangeEnds(
            recorder.target, recorder.cluster, topics=None, state_goes_along=self._state_goes_along
        )
        self._modes: dict[str, str | None] = {}
        """The output mode of each run of a query: reports do not have it."""
        self._query: str | None = recorder.query_id() if isinstance(recorder, CheckpointRecorder) else None
        self._run: tuple[str, int] | None = None
        self._unstored: deque[tuple[Any, ClusterInfo | None]] = deque(maxlen=MOST_UNSTORED)
        """Reports, and what was known of the cluster before they came."""
        self._reached: Mapping[TopicPartition, int] = {}
        """Where the newest report says that the query is."""
        self._listener: Any = None
        self._lock = RLock()
        self.trouble: ReconcilerError | None = None
        """The error that keeps a report from being stored; None if all are, or the last one after another error."""

    # ------------------------------------------------------------ the query's side

    def watch(self, frame: DataFrame, topics: Iterable[str] | str) -> DataFrame:
        """``frame`` with its last records observed. Give the Kafka source's own frame, before any filter.

        ``topics`` are the source's topics, as a list or as one regular expression (as for ``subscribePattern``). Their
        partitions are looked up now. For a query with several sources, watch each.

        Raises ConfigError for missing columns, topics that do not exist, and wrong settings.
        """
        from reconciler.spark.handoff.cluster import compiled, topics_matching

        if frame.isStreaming is False:
            raise ConfigError("watch() observes streaming sources, and this frame is a batch read.")
        self._identity.check(frame)
        client, cluster = self._recorder.target.cluster.client, self._recorder.cluster
        names = topics_matching(client, topics) if isinstance(topics, str) else sorted(set(topics))
        info = cluster.having(set(names))
        places = [place for name in names for place in info.topics[name].places]
        own = self._identity.own_columns(frame)
        types = dict(frame.select(*(column.alias(name) for name, column in own.items())).dtypes) if own else {}
        self._identity.require_types(types)
        name = f"{self._metric}:{len(self._units)}"
        self._units[name] = "ms" if types.get(OWN_TIME) == "timestamp" else self._identity.unit
        if self._listener is None:
            self._listener = listen(self._spark.streams, self._hear, self._started)
        read = Matching(compiled(topics)) if isinstance(topics, str) else frozenset(names)
        seen = self._seen(frame, places, read)
        if isinstance(seen, Watched):
            from pyspark.sql import functions as f

            self._watched[name] = seen
            return frame.observe(name, f.count(f.lit(1)).alias("records"))
        log.warning("Spark looks for the last records of group %s in every batch, because %s", self._group, seen.why)
        self._observed[name] = Observed(read, frozenset(places))
        fields = fields_of(frame, self._identity, own, types, payload=self._payload)
        return frame.observe(name, observed(places, fields))

    def _seen(self, frame: DataFrame, places: Sequence[TopicPartition], read: Container[str]) -> Watched | Unseen:
        """The frame's source, if its last records can be read from Kafka."""
        if self._identity.has_columns:
            return Unseen("the id or the timestamp is a column, which only Spark can read")
        if not self._payload or not places:
            return Unseen("their keys and values are to be left out" if places else "the topics have no partitions")
        servers = self._recorder.target.cluster.bootstrap_servers
        seen = source_of(frame, read, servers)
        if isinstance(seen, Unseen):
            return seen
        return self._ranges.refusal(places[0], committed_only=seen.committed_only) or seen

    def settle(self, query: Any) -> None:
        """Store the query's reports now, before a program ends: its listener may not have received them yet.

        Raises the error that keeps one from being stored.
        """
        for progress in query.recentProgress:  # the last one may be of a trigger without new data
            self._hear(progress)
        with self._lock:
            self._catch_up()
        if self.trouble is not None:
            raise self.trouble

    def close(self) -> None:
        """Stop listening, and close the store. A report that is being stored is finished first."""
        if self._listener is not None:
            stop_listening(self._spark.streams, self._listener)
            self._listener = None
        with self._lock:
            self._units.clear()  # Spark may have begun to pass on a report before it took the listener away
            self._ranges.close()
            self._recorder.close()

    # ------------------------------------------------------------ the reports' side

    def _started(self, event: Any) -> None:
        self._modes[str(event.runId)] = output_mode(self._spark, event.id)  # a query that has ended shows it no more

    def _hear(self, progress: Any) -> None:
        """Store one report. Never raises: a listener has no caller to raise to."""
        with self._lock:
            if self._is_stored(progress):
                self._catch_up()

    def _catch_up(self) -> None:
        """Store the reports that could not be stored before."""
        while self._unstored:
            progress, then = self._unstored[0]
            if not self._is_stored(progress, late=then) and self.trouble is not None and self.trouble.retryable:
                return
            self._unstored.popleft()

    def _is_stored(self, progress: Any, *, late: ClusterInfo | None = None) -> bool:
        """Store one report; False if it is not to be stored, or cannot be. Never raises.

        ``late`` is what was known of the cluster before a kept report came.
        """
        cluster = self._recorder.cluster
        before = cluster.known
        try:
            return self._take(progress, late=late)
        except Exception as error:
            self.trouble = as_sentence(error, "the traceback in the log")
            bug = None if self.trouble is error else error
            about = progress["batchId"], self._group, self.trouble
            log.error("batch %s of group %s is not stored: %s", *about, exc_info=bug)
            # In a checkpoint's anchors, the next report makes up for it.
            makes_up = isinstance(self._recorder, CheckpointRecorder) or not self.trouble.retryable
            if late is None and not makes_up:
                self._store_later(progress, _earliest(before, cluster.known))
            if before is not None:
                cluster.learn(before)  # the next report must find a topic recreated, too
            return False

    def _store_later(self, progress: Any, then: ClusterInfo) -> None:
        if len(self._unstored) == MOST_UNSTORED:
            about = self._unstored[0][0]["batchId"], self._group
            log.warning("batch %s of group %s is given up: too many later ones could not be stored", *about)
        self._unstored.append((progress, then))
        self._run = _batch(progress)  # if this report comes again, it is a repeated one

    def _take(self, progress: Any, *, late: ClusterInfo | None) -> bool:
        observed_metrics = progress.get("observedMetrics") or {}  # a report in JSON leaves it out where there are none
        found = {name: row for name, row in observed_metrics.items() if name in self._units}
        if not found:
            return False
        run, number = _batch(progress)
        self._require_one_query(str(progress["id"]))
        sides = sides_of(progress["sources"])
        bounds = BatchBounds.reported(number, sides)
        if late is None:
            if self._run is not None and self._run[0] == run and number <= self._run[1]:
                return False  # a repeated or late report
            self._reached = bounds.ends
            self._refuse_held_back(progress)
        watched = [self._watched[name] for name in found if name in self._watched]
        texts = {name: text_of(row) for name, row in found.items() if name not in self._watched}
        ends = [last for name, text in texts.items() for last in last_records(text, self._units[name])]
        observations = [self._observed[name] for name in texts if name in self._observed]
        elsewhere = self._elsewhere({at.topic for at in bounds.ends}, [*watched, *observations])
        unnamed = {at for at in added(bounds.ends, observations) if at.topic not in elsewhere}
        recreated = self._recorder.cluster.renumbered({at.topic for at in [*(end.at for end in ends), *unnamed]})
        ends = without_recreated(ends, recreated, self._group)
        gone: frozenset[TopicPartition] = frozenset()
        if watched:
            read = self._ranges.last_records(ranges_of(sides, watched, without=elsewhere))
            ends, gone = ends + read.ends, read.gone
        if late is not None:
            ends = self._still_true(ends, late)
        last = latest(ends, bounds.ends)
        if isinstance(self._recorder, CheckpointRecorder):
            # Of records that are gone no anchor is made: in a recreated topic, their offsets are of others.
            kept = bounds.without(gone, topics={*elsewhere, *recreated})
            self._keep(self._recorder, kept, last, [*watched, *observations])
        else:
            reached = {at: bounds.ends[at] for at in unnamed if at.topic not in recreated}
            if late is not None:
                reached = self._still_reached(reached, late)
            looked_up = self._look_up.of_added(reached)
            self._recorder.batch(number, last, looked_up=looked_up)
            self._look_up.stored({at: reached[at] for at in looked_up})
        if late is None:
            self._run = run, number
        self.trouble = None
        return True

    def _elsewhere(self, topics: set[str], watched: Sequence[Watched | Observed]) -> set[str]:
        """The topics of a report that this cluster does not have: they are of a source elsewhere.

        In a store of rows, only those that fit an expression: no other topic is looked up.
        """
        asked = {each for each in topics if self._state_goes_along or any(each in one.topics for one in watched)}
        return self._recorder.cluster.lacks(asked)

    def _refuse_held_back(self, progress: Any) -> None:
        if self._state_goes_along:
            return
        run, _ = _batch(progress)
        held_by = holder((each["operatorName"] for each in progress["stateOperators"]), self._modes.get(run))
        if held_by is not None:
            raise refusal(held_by, self._group)

    def _still_true(self, ends: list[LastRecord], then: ClusterInfo) -> list[LastRecord]:
        """The ends of a kept report that still say where the query is.

        Those of a topic that was recreated since, or from before the query was set back, would name records that it has
        not read.
        """
        if not ends:
            return ends
        topics = {end.at.topic for end in ends}
        now = self._recorder.cluster.having(topics)
        ends = without_recreated(ends, {name for name in topics if not now.numbers_as(then, name)}, self._group)
        ahead = sorted({str(end.at) for end in ends if end.offset >= self._reached.get(end.at, 0)})
        if ahead:
            log.warning("group %s was set back in %s: an earlier report is not stored", self._group, ", ".join(ahead))
        return [end for end in ends if end.offset < self._reached.get(end.at, 0)]

    def _still_reached(self, ends: Mapping[TopicPartition, int], then: ClusterInfo) -> dict[TopicPartition, int]:
        """As ``_still_true``, of ends whose last records are not known yet."""
        now = self._recorder.cluster.having({at.topic for at in ends}) if ends else then
        return {
            at: end for at, end in ends.items() if end <= self._reached.get(at, 0) and now.numbers_as(then, at.topic)
        }

    def _keep(
        self,
        recorder: CheckpointRecorder,
        batch: BatchBounds,
        ends: Sequence[LastRecord],
        watched: Sequence[Watched | Observed],
    ) -> None:
        anchors = recorder.named(ends)
        unnamed = {at for at in batch.moved if not any(each.names(at) for each in watched)}
        missing = {*ends_without_anchor(batch, recorder.kept({at.topic for at in batch.ends}), anchors), *unnamed}
        looked_up = self._look_up.last_before({at: batch.ends[at] for at in missing if batch.ends[at] > 0})
        # The batch may have read records that no observation names: then the earlier anchor is not that of its end.
        anchors |= {at: row.anchor for at, row in looked_up.items() if at in unnamed and row.anchor is not None}
        batch = batch.without(unnamed - set(anchors))
        recorder.keep(batch, anchors, partial(changes_of_committed, looked_up=looked_up))

    def _require_one_query(self, query: str) -> None:
        if self._query is None:
            self._query = query
        if self._query != query:
            raise ConfigError(
                f"Two queries report frames watched for group {self._group}: {self._query} and {query}.",
                hint="Make one observing() for each query, with a group of its own.",
            )


# ---------------------------------------------------------------- reports


def _batch(progress: Any) -> tuple[str, int]:
    """The run and the number of the batch that a report is about."""
    return str(progress["runId"]), int(progress["batchId"])


def _earliest(before: ClusterInfo | None, now: ClusterInfo | None) -> ClusterInfo:
    """The first that is known of each topic."""
    if before is None or now is None or before.cluster_id != now.cluster_id:
        return before or now or ClusterInfo("", {})
    return replace(before, topics={**now.topics, **before.topics})
