"""Record, with every micro-batch, where the job is and the identity of the last record it processed.

    from reconciler.spark.recording import recording

    def write(batch, batch_id): ...

    (spark.readStream.format("kafka").options(**options).load()
        .writeStream.foreachBatch(recording(write, store="sqlite:///offsets.db", group="clicks",
                                            bootstrap_servers="localhost:9092", id="header:message-id"))
        .option("checkpointLocation", checkpoint).start())

The user's function runs first, then the store is written. A crash between them loses nothing, since Spark runs the
batch again: a stored offset may be behind the work, never ahead of it. ``recording.store`` says what a repeated batch
may change, ``recording.checkpoint`` the same for a job that continues from its checkpoint.

For sinks other than foreachBatch: ``reconciler.spark.observing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from reconciler.clock import clock_ms
from reconciler.ports import OffsetStore
from reconciler.spark.identity_columns import BatchIdentity, ColumnSpec, LastRecord
from reconciler.spark.recording.checkpoint import CheckpointRecorder, recorder_for
from reconciler.spark.recording.store import Recorder
from reconciler.spark.target import AnchorTarget, ClusterAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BatchFunction = Callable[["DataFrame", int], None]


def recording(
    function: BatchFunction,
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
    topics: Iterable[str] | None = None,
    cache: bool = True,
    now_ms: Callable[[], int] = clock_ms,
) -> Recording:
    """``function`` for ``foreachBatch``, followed by storing each partition's next offset and its last record's anchor.

    ``bootstrap_servers`` names the cluster the query reads; ``kafka_client`` holds further librdkafka properties for it
    (the names differ from Spark's ``kafka.*`` options). They are used for the ids of the cluster and its topics, once
    and again when a topic appears, and for a store that lives in Kafka. ``now_ms`` gives epoch ms.

    ``timestamp``, ``id`` and ``unit`` are as in the configuration's ``[jobs.identity]`` and must be the same there; or
    columns, or functions from the batch to a column. ``config_id`` and ``config_timestamp`` give the text that the
    configuration has in a column's place: see ``BatchIdentity``.

    ``anchors`` is the address of a store that keeps the anchors, as under ``[anchors]`` in the configuration: for a
    ``store`` with no room for them, and for ``kafka-group:``, whose rows at the source are lost with it. For a job that
    continues from its checkpoint, ``store`` is ``checkpoint:`` with the query's checkpointLocation.

    ``topics`` are the topics to record, if not all: see docs/how-to/hand-off.md on jobs that read two clusters' topics.

    The batch must still have the Kafka source's columns. Records filtered out before foreachBatch do not count as
    processed: the stored offset is then earlier than it could be, never later.

    ``cache`` keeps the batch (in memory, else on disk) from the function until its last records are found. Without it
    Spark reads the batch's range of Kafka a second time, and counts its rows twice in the query's progress. Turn it off
    where a batch is larger than the executors' memory and disk, or where the function caches the batch itself.

    Over Spark Connect the function and the recording run in the server's process: give stores by address, and have this
    package and the stores' clients installed there.

    A batch fails, for Spark to run again, with the function's own exception (nothing is stored), ConfigError (columns,
    settings), Unreachable, Refused or OutcomeUnknown (store or cluster), or Changed (another job writes this group).
    """
    target = AnchorTarget(
        group=group,
        cluster=ClusterAccess.at(bootstrap_servers, kafka_client),
        identity=BatchIdentity(timestamp, id, unit, config_id, config_timestamp),
        store=store,
        anchors=anchors,
        now_ms=now_ms,
    )
    return Recording(function, recorder_for(target), cache=cache, topics=topics)


class Recording:
    """The function that ``recording`` returns: ``foreachBatch`` calls it with each batch."""

    def __init__(
        self,
        function: BatchFunction,
        recorder: Recorder | CheckpointRecorder,
        *,
        cache: bool = True,
        topics: Iterable[str] | None = None,
    ) -> None:
        self._function = function
        self._recorder = recorder
        self._identity = recorder.target.identity
        self._cache = cache
        self._topics = None if topics is None else frozenset(topics)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        # A wrong set-up must come to light before the function's work is done, not after.
        self._identity.check(batch)
        self._recorder.open()
        ends = self._run(batch, batch_id)
        if self._topics is not None:
            ends = [end for end in ends if end.at.topic in self._topics]
        self._recorder.batch(batch_id, ends)

    def _run(self, batch: DataFrame, batch_id: int) -> list[LastRecord]:
        if not self._cache:
            self._function(batch, batch_id)
            return self._identity.last_records(batch)
        from pyspark import StorageLevel

        batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            self._function(batch, batch_id)
            return self._identity.last_records(batch)
        finally:
            batch.unpersist()

    def close(self) -> None:
        """Close the store, if it was opened here. Needed only where the process lives on after the query."""
        self._recorder.close()
