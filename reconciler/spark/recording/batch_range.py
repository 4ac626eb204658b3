"""The offsets that Spark planned for a micro-batch, learned from the query that runs it, without touching its data.

Spark fixes a batch's range before the batch runs. On classic Spark the driver can see it: the batch's thread names the
query, the query has the execution of the running batch, and each Kafka source in that execution's plan carries the
offsets where it starts and ends. These are internals of Spark, the same in 4.0.4, 4.1.4, 4.2.1 and 4.3.0, and but for
the scan's relation in 3.5.7. So each is checked, and whatever is not found as expected is an ``Unseen`` with its
reason: the caller then looks into the batch itself.

- B1  The frame is the batch itself: the very RDD that the execution made. A frame derived from it is not, since it may
      lack records that another query is to process.
- B2  Every streaming source of the plan is Kafka's, so that no record of the batch can come from elsewhere.
- B3  Every operator is known to pass each record on, or to drop it, in the batch that read it; unless the state
      continues with the offsets (a checkpoint). ``held_back`` refuses a store of rows for those that do not.
- B4  Of several sources each one's end is known, also of one without new records: where two read one partition, the
      one that is behind decides. Their ends are in the batch's entry of the offset log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from reconciler.checkpoints.log import Offsets, by_partition, kafka_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

T = TypeVar("T")

QUERY_ID = "sql.streaming.queryId"
"""The property in which Spark gives a batch's thread the id of its query (``StreamExecution.QUERY_ID_KEY``)."""
SCAN, SCAN_OF_3_5 = "StreamingDataSourceV2ScanRelation", "StreamingDataSourceV2Relation"
KAFKA = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"
SERVERS = "kafka.bootstrap.servers"
CLUSTER_ID_S = 5
SILENT = "LocalRelation"
"""What Spark puts in the place of a source without new records."""

PASSES_ON = frozenset(
    {
        "WriteToMicroBatchDataSource",
        "WriteToMicroBatchDataSourceV1",
        "Project",
        "Filter",
        "TypedFilter",
        "Union",
        "SubqueryAlias",
        "View",
        "EventTimeWatermark",
        "UpdateEventTimeWatermarkColumn",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "Generate",
        "Sample",
        "CollectMetrics",
        "ResolvedHint",
        "DeserializeToObject",
        "SerializeFromObject",
        "MapElements",
        "MapPartitions",
        "MapInPandas",
        "MapInArrow",
        "PythonMapInArrow",
        # Their state holds keys, to drop repetitions by; a record passes at once or never.
        "Deduplicate",
        "DeduplicateWithinWatermark",
        SCAN,
        SCAN_OF_3_5,
        SILENT,
    }
)
"""Spark's logical operators that pass a record on in the batch that read it, or drop it."""


@dataclass(frozen=True, slots=True)
class SourceRange:
    """One Kafka source's part of a batch: the next offset to read before it, and after it.

    ``servers``: the addresses that Spark reads from. ``committed_only``: it leaves out records of aborted transactions.
    ``options``: all options of the source, in the JVM.
    """

    starts: Offsets
    ends: Offsets
    servers: str
    committed_only: bool
    options: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Unseen:
    """The range could not be learned; ``why`` ends a sentence after "because"."""

    why: str


class BatchRanges:
    """Learns the range of each batch of one recording. ``state_goes_along``: see B3."""

    def __init__(self, *, state_goes_along: bool) -> None:
        self._state_goes_along = state_goes_along
        self._held_back: OfLastRun[str | None] = OfLastRun()
        """The operator that is not known to pass every record on, by run of a query."""

    def of(self, batch: DataFrame) -> tuple[SourceRange, ...] | Unseen:
        """The Kafka sources' ranges of the batch that is running now. Runs no Spark job."""
        if not hasattr(batch, "_jdf"):
            return Unseen("Spark Connect does not show a batch's offsets")
        try:
            return self._of(batch)
        except Exception as error:  # internals of Spark may differ in any way, and must not fail the job
            log.debug("the range of a batch was not found", exc_info=True)
            return Unseen(f"this version of Spark does not show a batch's offsets ({type(error).__name__})")

    def _of(self, batch: DataFrame) -> tuple[SourceRange, ...] | Unseen:
        running, frame = running_query(batch), batch._jdf
        if running is None:
            return Unseen("the function was not called by a streaming query")
        execution, shown = running.lastExecution(), frame.queryExecution().logical()
        if _kind(shown) != "LogicalRDD" or shown.rdd().id() != execution.toRdd().id():
            return Unseen("the frame is not the query's own batch, but derived from it")
        plan = execution.logical()
        held_back = (
            None
            if self._state_goes_along
            else self._held_back.get(running.runId().toString(), partial(holds_back, plan))
        )
        if held_back is not None:
            return Unseen(f"the query's operator {held_back} is not known to pass every record on")
        found = []
        leaves = _sources(running)
        for leaf in leaves:
            kind = _kind(leaf)
            if kind == SILENT:
                continue
            if kind not in (SCAN, SCAN_OF_3_5) or leaf.stream().getClass().getName() != KAFKA:
                return Unseen("the query has a source that is not Spark's current Kafka source")
            starts, ends = (kafka_offsets(each.get().json()) for each in (leaf.startOffset(), leaf.endOffset()))
            if starts is None or ends is None:
                return Unseen("the source's offsets are not Kafka's")
            options = _options(leaf)
            committed_only = options.get("kafka.isolation.level") == "read_committed"
            found.append(SourceRange(starts, ends, options.get(SERVERS) or "", committed_only, options))
        if len(leaves) > 1:
            found += [SourceRange(ends, ends, "", False) for ends in _planned(running)]
        return tuple(found)


class OfLastRun(Generic[T]):
    """What was found for the last run of a query: its plan and its operators are the same in every batch."""

    def __init__(self) -> None:
        self._found: dict[str, T] = {}

    def get(self, run: str, find: Callable[[], T]) -> T:
        known = self._found  # another query's batch, in another thread, may replace it at any moment
        if run not in known:
            known = self._found = {run: find()}
        return known[run]


def shared_ends(batch: DataFrame) -> Mapping[tuple[str, int], int] | Unseen:
    """The smallest end of each partition that several sources read. Empty for a query of one source.

    For a frame that was derived from the batch, too.
    """
    if not hasattr(batch, "_jdf"):
        return Unseen("Spark Connect does not show a query's sources")
    try:
        running = running_query(batch)
        if running is None:
            return Unseen("the function was not called by a streaming query")
        return lowest_of_several(_planned(running)) if len(_sources(running)) > 1 else {}
    except Exception as error:  # as above
        log.debug("the ends of a batch's sources were not found", exc_info=True)
        return Unseen(f"Spark does not show where each source ends ({type(error).__name__})")


def reads_several(batch: DataFrame) -> bool:
    """True if the query has more than one source; False also if that cannot be seen."""
    try:
        running = running_query(batch) if hasattr(batch, "_jdf") else None
        return running is not None and len(_sources(running)) > 1
    except Exception:  # as above
        log.debug("the sources of a query were not found", exc_info=True)
        return False


def running_query(batch: DataFrame) -> Any:
    """The query whose batch runs in this thread, in the JVM; None if there is none."""
    context = batch.sparkSession.sparkContext
    query = context.getLocalProperty(QUERY_ID)
    if query is None:
        return None
    queries = batch._jdf.sparkSession().sharedState().activeStreamingQueries()
    return queries.get(context._jvm.java.util.UUID.fromString(query))


def _sources(running: Any) -> list[Any]:
    """The leaves of the running batch's plan that are streams; one source may have several."""
    return [leaf for leaf in each_of(running.lastExecution().logical().collectLeaves()) if leaf.isStreaming()]


def _options(leaf: Any) -> Any:
    """All options of a Kafka source, in the JVM: a map that finds names in any case."""
    if _kind(leaf) == SCAN:
        return leaf.relation().options()
    field = leaf.scan().getClass().getDeclaredField("options")
    field.setAccessible(True)
    return field.get(leaf.scan())


def _planned(running: Any) -> list[Offsets]:
    """Where each Kafka source ends in the running batch. Raises LookupError if the offset log is behind."""
    entry = running.offsetLog().getLatest()
    if entry.isEmpty() or int(entry.get()._1()) != int(running.lastExecution().currentBatchId()):
        raise LookupError("the offset log has no entry of this batch yet")
    planned = entry.get()._2()
    # Of format v2 (Spark 4.2), which named sources need: by name, and without a sequence.
    named = _kind(planned) == "OffsetMap"
    offsets = planned.offsetsMap().values().toSeq() if named else planned.offsets()
    texts = [each.get().json() for each in each_of(offsets) if each.isDefined()]
    return [ends for text in texts if (ends := kafka_offsets(text)) is not None]


def lowest_of_several(sources: Iterable[Offsets]) -> dict[tuple[str, int], int]:
    """The lowest of the offsets that several sources have for one partition, where these differ."""
    return {place: min(ends) for place, ends in by_partition(sources).items() if len(set(ends)) > 1}


def holds_back(plan: Any) -> str | None:
    """The first operator in a streaming plan that is not known to pass each record on at once; None if all are."""
    children = list(each_of(plan.children()))
    streams = [child for child in children if child.isStreaming()]
    name = str(plan.nodeName())
    joins_tables = name == "Join" and len(streams) == 1
    if name not in PASSES_ON and not joins_tables:
        return name
    return next((found for child in streams if (found := holds_back(child)) is not None), None)


def cluster_id(batch: DataFrame, source: SourceRange) -> str | None:
    """The id of the cluster that a source reads, asked by Spark's own client with its options; None if unknown."""
    try:
        jvm: Any = batch.sparkSession.sparkContext._jvm
        properties, given = jvm.java.util.HashMap(), source.options.asCaseSensitiveMap()
        for name in given:
            if name.lower().startswith("kafka."):
                properties.put(name.lower().removeprefix("kafka."), given[name])
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        try:
            seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
            return str(admin.describeCluster().clusterId().get(CLUSTER_ID_S, seconds))
        finally:
            admin.close(jvm.java.time.Duration.ZERO)
    except Exception:  # as above
        log.debug("the id of the source's cluster was not found", exc_info=True)
        return None


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def each_of(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(number) for number in range(sequence.size()))
