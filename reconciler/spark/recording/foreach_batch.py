"""Record, with every micro-batch, where the job is and the identity of the last record it processed.

    from reconciler.spark.recording import recording

    def write(batch, batch_id): ...

    (spark.readStream.format("kafka").options(**options).load()
        .writeStream.foreachBatch(recording(write, store="sqlite:///offsets.db", group="clicks",
                                            bootstrap_servers="localhost:9092", id="header:message-id"))
        .option("checkpointLocation", checkpoint).start())

The order is: the user's function, then the store. A crash between them loses nothing, since Spark runs the batch again:
a stored offset may be behind the work, never ahead of it. What a repeated batch may change is said in
``recording_store``, and for a job that goes on from its checkpoint in ``recording_checkpoint``.

For sinks other than foreachBatch: ``reconciler.spark.recording.observing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from reconciler.clock import clock_ms
from reconciler.ports import OffsetStore
from reconciler.spark.identity_columns import BatchIdentity, Given, LastRecord
from reconciler.spark.recording.checkpoint import CheckpointRecorder, checkpoint_path, require_anchors
from reconciler.spark.recording.store import Recorder, moves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchFunction", "Recorder", "Recording", "moves", "recording"]

BatchFunction = Callable[["DataFrame", int], None]


def recording(
    function: BatchFunction,
    *,
    store: str | OffsetStore,
    group: str,
    bootstrap_servers: str,
    anchors: str | None = None,
    kafka_client: Mapping[str, str] | None = None,
    timestamp: Given = "record",
    id: Given = "none",
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
    columns, or functions from the batch to a column. What the configuration then says in their place may be given as
    ``config_id`` and ``config_timestamp``: see ``BatchIdentity``.

    ``anchors`` is the address of a store that keeps the anchors, as under ``[anchors]`` in the configuration: for a
    ``store`` with no room for them, and for ``kafka-group:``, whose rows at the source are lost with it. For a job that
    goes on from its checkpoint, ``store`` is ``checkpoint:`` with the query's checkpointLocation.

    ``topics`` are those to record, if not all: see docs/how-to/hand-off.md on jobs that read two clusters' topics.

    The batch must still have the Kafka source's columns. Records filtered out before foreachBatch do not count as
    processed: the stored offset is then earlier than it could be, never later.

    ``cache`` keeps the batch (in memory, else on disk) from the function until its last records are found. Without it
    Spark reads the batch's range of Kafka a second time, and counts its rows twice in the query's progress. Turn it off
    where a batch is larger than the executors' memory and disk, or where the function caches the batch itself.

    Over Spark Connect the function and what is recorded run in the server's process: give stores by address, and have
    this package and the stores' clients installed there.

    A batch fails, for Spark to run again, with the function's own exception (nothing is stored), ConfigError (columns,
    settings), Unreachable, Refused or OutcomeUnknown (store or cluster), or Changed (another job writes this group).
    """
    identity = BatchIdentity(timestamp, id, unit, config_id, config_timestamp)
    client = {"bootstrap.servers": bootstrap_servers, **(kafka_client or {})}
    keeper = recorder_for(store, group, client, anchors=anchors, now_ms=now_ms)
    return Recording(function, identity, keeper, cache=cache, topics=topics)


def recorder_for(
    store: str | OffsetStore,
    group: str,
    client: Mapping[str, str],
    *,
    anchors: str | None,
    now_ms: Callable[[], int],
) -> Recorder | CheckpointRecorder:
    """What keeps a group's rows in ``store``. Raises ConfigError where its anchors have no place."""
    path = checkpoint_path(store)
    if path is not None:
        return CheckpointRecorder(path, require_anchors(anchors, str(store)), group, client, now_ms=now_ms)
    return Recorder(store, group, client, anchors=anchors, now_ms=now_ms)


class Recording:
    """What ``recording`` returns: call it with a batch, or let ``foreachBatch`` do so."""

    def __init__(
        self,
        function: BatchFunction,
        identity: BatchIdentity,
        recorder: Recorder | CheckpointRecorder,
        *,
        cache: bool = True,
        topics: Iterable[str] | None = None,
    ) -> None:
        self._function = function
        self._identity = identity
        self._recorder = recorder
        self._cache = cache
        self._topics = None if topics is None else frozenset(topics)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        # Whatever is wrong with the set-up must come to light before the function's work is done, not after.
        self._identity.check(batch)
        self._recorder.open()
        ends = self._run(batch, batch_id)
        if self._topics is not None:
            ends = [end for end in ends if end.at.topic in self._topics]
        self._recorder.batch(batch_id, ends, self._identity)

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
