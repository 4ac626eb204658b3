"""The offsets that Spark planned for a micro-batch, learned from the query that runs it, without touching its data.

Spark fixes a batch's range before the batch runs. On classic Spark the driver can see it: the batch's thread names the
query, the query has the execution of the running batch, and each Kafka source in that execution's plan carries the
offsets where it starts and ends. These are internals of Spark, the same in 4.0.4, 4.1.4, 4.2.1 and 4.3.0, and but for
the scan's relation in 3.5.7. So each is checked, and a batch in which something is not as expected is refused.

- B1  The frame is the batch itself: the very RDD that the execution made. A frame derived from it is not, since it may
      lack records that another query is to process.
- B2  Every streaming source of the plan is Kafka's, so that no record of the batch can come from elsewhere.
- B3  Of several sources each one's end is known, also of one without new records: where two read one partition, the
      one that is behind decides. Their ends are in the batch's entry of the offset log.

That each record was put out by the batch that read it is for ``held_back`` to say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reconciler.checkpoints.log import Offsets, kafka_offsets
from reconciler.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
"""The property in which Spark gives a batch's thread the id of its query (``StreamExecution.QUERY_ID_KEY``)."""
SCAN, SCAN_OF_3_5 = "StreamingDataSourceV2ScanRelation", "StreamingDataSourceV2Relation"
KAFKA = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"
SERVERS = "kafka.bootstrap.servers"
CLUSTER_ID_S = 5
SILENT = "LocalRelation"
"""What Spark puts in the place of a source without new records."""


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


def unseen(why: str) -> ConfigError:
    """The error for a query whose ranges cannot be learned, because of ``why``."""
    return ConfigError(
        f"The offsets of the query's batches cannot be learned: {why}.",
        hint="Record this job from beside, with reconciler track (docs/how-to/track-anchors.md).",
    )


@contextmanager
def looking_inside(what: str) -> Iterator[None]:
    """Turn any fault in here into a ConfigError: internals of Spark may differ in any way."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        log.debug("%s were not found", what, exc_info=True)
        raise unseen(f"this version of Spark does not show {what} ({type(error).__name__})") from error


def source_ranges(batch: DataFrame) -> list[SourceRange]:
    """The Kafka sources' ranges of the batch that is running now. Runs no Spark job. Raises ConfigError."""
    if not hasattr(batch, "_jdf"):
        raise unseen("Spark Connect does not show them")
    with looking_inside("a batch's offsets"):
        return _source_ranges(running_query(batch), batch._jdf.queryExecution().logical())


def _source_ranges(running: Any, shown: Any) -> list[SourceRange]:
    if _kind(shown) != "LogicalRDD" or shown.rdd().id() != running.lastExecution().toRdd().id():
        raise unseen("the frame is not the query's own batch, but derived from it")
    leaves = _sources(running)
    found = [_range_of(leaf) for leaf in leaves if _kind(leaf) != SILENT]
    if len(leaves) > 1:
        found += [SourceRange(ends, ends, "", False) for ends in _planned(running)]
    return found


def _range_of(leaf: Any) -> SourceRange:
    if _kind(leaf) not in (SCAN, SCAN_OF_3_5) or leaf.stream().getClass().getName() != KAFKA:
        raise unseen("the query has a source that is not Spark's current Kafka source")
    starts, ends = (kafka_offsets(each.get().json()) for each in (leaf.startOffset(), leaf.endOffset()))
    if starts is None or ends is None:
        raise unseen("the source's offsets are not Kafka's")
    options = _options(leaf)
    return SourceRange(starts, ends, options.get(SERVERS) or "", is_committed_only(options), options)


def is_committed_only(options: Any) -> bool:
    """Whether a source with these options leaves out records of aborted transactions."""
    return bool(options.get("kafka.isolation.level") == "read_committed")


def running_query(batch: DataFrame) -> Any:
    """The query whose batch runs in this thread, in the JVM. Raises ConfigError if there is none."""
    context = batch.sparkSession.sparkContext
    query = context.getLocalProperty(QUERY_ID)
    queries = batch._jdf.sparkSession().sharedState().activeStreamingQueries()
    running = None if query is None else queries.get(context._jvm.java.util.UUID.fromString(query))
    if running is None:
        raise unseen("the function was not called by a streaming query")
    return running


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
    """Where each Kafka source ends in the running batch. Raises ConfigError if the offset log is behind."""
    entry = running.offsetLog().getLatest()
    if entry.isEmpty() or int(entry.get()._1()) != int(running.lastExecution().currentBatchId()):
        raise unseen("it has several sources, and asynchronous progress tracking shows where each ends too late")
    planned = entry.get()._2()
    # Of format v2 (Spark 4.2), which named sources need: by name, and without a sequence.
    named = _kind(planned) == "OffsetMap"
    offsets = planned.offsetsMap().values().toSeq() if named else planned.offsets()
    texts = [each.get().json() for each in each_of(offsets) if each.isDefined()]
    return [ends for text in texts if (ends := kafka_offsets(text)) is not None]


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
    except Exception:  # internals of Spark may differ in any way
        log.debug("the id of the source's cluster was not found", exc_info=True)
        return None


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def each_of(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(number) for number in range(sequence.size()))
