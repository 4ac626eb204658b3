"""Record anchors for sinks other than foreachBatch (files, Kafka, a table, the console).

    from reconciler.spark.observing import observing

    anchors = observing(spark, store="checkpoint:/srv/clicks/checkpoint", anchors="sqlite:////srv/anchors.db",
                        group="clicks", bootstrap_servers="localhost:9092", id="header:message-id")
    events = anchors.watch(spark.readStream.format("kafka").options(**options).load(), ["events"])
    query = (events.writeStream.format("parquet").option("path", "/srv/clicks/out")
             .option("checkpointLocation", "/srv/clicks/checkpoint").start())

Theory of operation. When a batch is done and committed, Spark reports its end offsets; a listener reads each
partition's last record before them from Kafka (``watched``, ``range_ends``) and stores both. ``watch`` only has Spark
count the records, so that the report can be told from those of other queries.

The report comes after the commit, so nothing is stored for a batch that failed. It is asynchronous: the last report of
a killed driver may be lost. The store is then a batch behind the checkpoint: the anchor lags, the verdict is
``bounded``, and the difference counts as replay. The next report after a restart corrects it. In a store of rows it
does so for partitions that it has records of. A silent one keeps its row, and its records are read again uncounted: the
report does not show whether a record between that row and the query's offset was processed, or skipped by a query that
began elsewhere. A report that comes twice, or late, changes nothing. If one could not be stored while the store or the
cluster was away, the next one that can be is read from where that one began: a partition without records in it would
else keep a row that is behind.

For the anchors of a checkpoint, partitions that were silent since the query began, and those of sources that are not
watched, are looked up in the cluster that the query reads: the last record before the reported offset.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from reconciler.clock import clock_ms
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, ReconcilerError, Unreachable, as_sentence
from reconciler.engine import EngineSettings, Inquiry, run
from reconciler.formats.decimal_text import some
from reconciler.identity import identity_from_spec
from reconciler.ports import OffsetStore, TopicPartition
from reconciler.spark.last_records import LastRecord
from reconciler.spark.recording.checkpoint import (
    BatchBounds,
    CheckpointRecorder,
    Sides,
    changes_of_committed,
    ends_without_anchor,
    recorder_for,
    sides_of,
)
from reconciler.spark.recording.held_back import holder, output_mode, refusal
from reconciler.spark.recording.range_ends import RangeEnds
from reconciler.spark.recording.store import Recorder
from reconciler.spark.recording.watched import Matching, Watched, ranges_of, source_of
from reconciler.spark.target import AnchorTarget, ClusterAccess
from reconciler.tracking.lookback import TrackedOffset, look_back

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

LOOK_UP_S = 10.0


def observing(
    spark: SparkSession,
    *,
    store: str | OffsetStore,
    group: str,
    bootstrap_servers: str,
    anchors: str | None = None,
    kafka_client: Mapping[str, str] | None = None,
    timestamp: str = "record",
    id: str = "none",
    unit: str = "ms",
    frame: str = "none",
    now_ms: Callable[[], int] = clock_ms,
) -> Observer:
    """Watch one query's Kafka sources, and store each partition's next offset and its last record's anchor.

    The arguments are those of ``recording``. With ``store="checkpoint:PATH"`` the anchors belong to the query's own
    checkpoint, for a job that continues from it after a failover; any other store has rows for a job that starts from
    stored offsets. Nothing is stored there for a query that holds records back in its state (``recording.held_back``).

    Raises ConfigError for wrong settings, and Unreachable or Refused if the store cannot be written.
    """
    target = AnchorTarget(
        group=group,
        cluster=ClusterAccess.at(bootstrap_servers, kafka_client),
        identity=identity_from_spec(timestamp, id, unit=unit, frame=frame),
        store=store,
        anchors=anchors,
        now_ms=now_ms,
    )
    recorder = recorder_for(target)
    recorder.open()
    return Observer(spark, recorder)


class Observer:
    """Watches the sources of one query, and stores its reports."""

    def __init__(self, spark: SparkSession, recorder: Recorder | CheckpointRecorder) -> None:
        self._spark = spark
        self._recorder = recorder
        self._group = recorder.target.group
        self._metric = f"reconciler:{self._group}:{uuid4().hex[:8]}"
        """Begins the names of this observer's observations: a late report of a closed one's query is not its own."""
        self._watched: dict[str, Watched] = {}
        """The sources, by their observations' names."""
        self._state_goes_along = isinstance(recorder, CheckpointRecorder)
        self._ranges = RangeEnds(recorder.target, recorder.cluster, topics=None)
        self._modes: dict[str, str | None] = {}
        """The output mode of each run of a query: reports do not have it."""
        self._query: str | None = recorder.query_id() if isinstance(recorder, CheckpointRecorder) else None
        self._run: tuple[str, int] | None = None
        self._starts: dict[tuple[str, int], int] = {}
        """Where the first report that is not stored yet began, by topic and partition."""
        self._listener: Any = None
        self._lock = RLock()
        self.trouble: ReconcilerError | None = None
        """The error that keeps a report from being stored; None if all are, or the last one after another error."""

    # ------------------------------------------------------------ the query's side

    def watch(self, frame: DataFrame, topics: Iterable[str] | str) -> DataFrame:
        """``frame`` with its records counted. Give the Kafka source's own frame.

        ``topics`` are the source's topics, as a list or as one regular expression (as for ``subscribePattern``). For a
        query with several sources, watch each.

        Raises ConfigError for a source that is not seen, topics that do not exist, and wrong settings, Unreachable and
        Refused for a cluster that cannot be read.
        """
        from pyspark.sql import functions as f

        from reconciler.spark.recording.cluster import compiled, topics_matching

        if frame.isStreaming is False:
            raise ConfigError("watch() observes streaming sources, and this frame is a batch read.")
        client, cluster = self._recorder.target.cluster.client, self._recorder.cluster
        names = topics_matching(client, topics) if isinstance(topics, str) else sorted(set(topics))
        source = source_of(frame, names)
        self._ranges.refuse_elsewhere(frame, source)
        info = cluster.having(set(names))
        for at in [place for name in names for place in info.topics[name].places][:1]:
            self._ranges.refuse_unreadable(at, committed_only=source.committed_only)
        name = f"{self._metric}:{len(self._watched)}"
        read = Matching(compiled(topics)) if isinstance(topics, str) else frozenset(names)
        self._watched[name] = Watched(read, source.committed_only)
        if self._listener is None:
            self._listener = _listen(self._spark.streams, self._hear, self._started)
        return frame.observe(name, f.count(f.lit(1)).alias("records"))

    def settle(self, query: Any) -> None:
        """Store the query's reports now, before a program ends: its listener may not have received them yet.

        Raises the error that keeps one from being stored.
        """
        for progress in query.recentProgress:  # the last one may be of a trigger without new data
            self._hear(progress)
        if self.trouble is not None:
            raise self.trouble

    def close(self) -> None:
        """Stop listening, and close the store. A report that is being stored is finished first."""
        if self._listener is not None:
            self._spark.streams.removeListener(self._listener)
            self._listener = None
        with self._lock:
            self._watched.clear()  # Spark may have begun to pass on a report before it took the listener away
            self._ranges.close()
            self._recorder.close()

    # ------------------------------------------------------------ the reports' side

    def _started(self, event: Any) -> None:
        self._modes[str(event.runId)] = output_mode(self._spark, event.id)  # a query that has ended shows it no more

    def _hear(self, progress: Any) -> None:
        """Store one report. Never raises: a listener has no caller to raise to."""
        cluster = self._recorder.cluster
        with self._lock:
            before = cluster.known
            try:
                self._take(progress)
            except Exception as error:
                self.trouble = as_sentence(error, "the traceback in the log")
                bug = None if self.trouble is error else error
                about = progress["batchId"], self._group, self.trouble
                log.error("batch %s of group %s is not stored: %s", *about, exc_info=bug)
                if before is not None:
                    cluster.learn(before)  # the next report must find a topic recreated, too

    def _take(self, progress: Any) -> None:
        observed_metrics = progress.get("observedMetrics") or {}  # a report in JSON leaves it out where there are none
        watched = [self._watched[name] for name in observed_metrics if name in self._watched]
        if not watched:
            return
        run, number = str(progress["runId"]), int(progress["batchId"])
        self._require_one_query(str(progress["id"]))
        if self._run is not None and self._run[0] == run and number <= self._run[1]:
            return  # a repeated or late report
        self._refuse_held_back(progress)
        sides = sides_of(progress["sources"])
        bounds = BatchBounds.reported(number, sides)
        elsewhere = self._elsewhere({at.topic for at in bounds.ends}, watched)
        ranges = ranges_of(self._since_unstored(sides), watched, without=elsewhere)
        last, gone = self._ranges.last_records(ranges)
        if isinstance(self._recorder, CheckpointRecorder):
            # Of records that are gone no anchor is made: in a recreated topic, their offsets are of others.
            self._keep(self._recorder, bounds.without(gone, topics=elsewhere), last, watched)
        else:
            self._recorder.batch(number, last)
        self._run = run, number
        self._starts.clear()
        self.trouble = None

    def _since_unstored(self, sides: Sequence[Sides]) -> list[Sides]:
        """The sides of a report, begun where the first one began that is not stored yet."""
        for start, end in sides:
            for place in end or {}:
                began = (start or {}).get(place, 0)
                self._starts[place] = min(self._starts.get(place, began), began)
        return [({place: self._starts[place] for place in end or {}}, end) for _, end in sides]

    def _elsewhere(self, topics: set[str], watched: Sequence[Watched]) -> set[str]:
        """The topics of a report that this cluster does not have: they are of a source elsewhere.

        In a store of rows, only those that fit an expression: no other topic is looked up.
        """
        asked = {each for each in topics if self._state_goes_along or any(each in one.topics for one in watched)}
        return self._recorder.cluster.lacks(asked)

    def _refuse_held_back(self, progress: Any) -> None:
        if self._state_goes_along:
            return
        mode = self._modes.get(str(progress["runId"]))
        held_by = holder((each["operatorName"] for each in progress["stateOperators"]), mode)
        if held_by is not None:
            raise refusal(held_by, self._group)

    def _keep(
        self,
        recorder: CheckpointRecorder,
        batch: BatchBounds,
        ends: Sequence[LastRecord],
        watched: Sequence[Watched],
    ) -> None:
        anchors = recorder.named(ends)
        unnamed = {at for at in batch.moved if not any(each.names(at) for each in watched)}
        missing = {*ends_without_anchor(batch, recorder.kept({at.topic for at in batch.ends}), anchors), *unnamed}
        looked_up = self._last_before({at: batch.ends[at] for at in missing if batch.ends[at] > 0})
        # The batch may have read records that no observation names: then the earlier anchor is not that of its end.
        anchors |= {at: row.anchor for at, row in looked_up.items() if at in unnamed and row.anchor is not None}
        batch = batch.without(unnamed - set(anchors))
        recorder.keep(batch, anchors, partial(changes_of_committed, looked_up=looked_up))

    def _last_before(self, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, StoredOffset]:
        """Rows for these offsets; one whose record cannot be found is left out. Empty if the cluster is away."""
        if not places:
            return {}
        target = self._recorder.target
        try:
            with closing(target.cluster.reader()) as reader:
                info = self._recorder.cluster.having({at.topic for at in places})
                inquiries = {}
                for at, offset in places.items():
                    topic = info.topics[at.topic]
                    place = TrackedOffset(offset, info.cluster_id, topic.topic_id, topic.compacted, None, clock_ms())
                    inquiries[at] = Inquiry(at, partial(look_back, place, target.identity))
                answers = run(reader, inquiries, clock=monotonic, settings=EngineSettings(LOOK_UP_S)).found
        except Unreachable as error:
            log.warning("the last records of %s could not be looked up: %s", some(list(map(str, places))), error)
            return {}
        return {at: kept for at, answer in answers.items() if (kept := answer.finding.kept) is not None}

    def _require_one_query(self, query: str) -> None:
        if self._query is None:
            self._query = query
        if self._query != query:
            raise ConfigError(
                f"Two queries report frames watched for group {self._group}: {self._query} and {query}.",
                hint="Make one observing() for each query, with a group of its own.",
            )


# ---------------------------------------------------------------- reports


def _listen(streams: Any, hear: Callable[[Any], None], started: Callable[[Any], None]) -> Any:
    """Have ``hear`` called with each report of this session's queries, in a thread of Spark's. Returns the listener.

    ``started`` is called with the event of each start, before ``start()`` returns; it must not raise.
    """
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):  # type: ignore[misc]
        def onQueryStarted(self, event: Any) -> None:
            started(event)

        def onQueryProgress(self, event: Any) -> None:
            hear(_as_mapping(event.progress))

        def onQueryIdle(self, event: Any) -> None: ...

        def onQueryTerminated(self, event: Any) -> None: ...

    listener = Listener()
    streams.addListener(listener)
    return listener


def _as_mapping(progress: Any) -> Mapping[str, Any]:
    """A listener's report by field. PySpark 3.5 gives it as an object, and as JSON."""
    report: Mapping[str, Any] = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    return report
