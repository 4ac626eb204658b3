"""Record, with every micro-batch, where the job is and the identity of the last record it processed.

    from reconciler.spark.recording import recording

    def write(batch, batch_id): ...

    (spark.readStream.format("kafka").options(**options).load()
        .writeStream.foreachBatch(recording(write, store="sqlite:///offsets.db", group="clicks",
                                            bootstrap_servers="localhost:9092", id="header:message-id"))
        .option("checkpointLocation", checkpoint).start())

A batch's range is known before it runs, so each partition's last record is one point read from Kafka, beside the
function (``batch_range``, ``range_ends``). A query whose ranges Spark does not show is refused.

The user's function runs first, then the store is written. A crash between them loses nothing, since Spark runs the
batch again: a stored offset may be behind the work, never ahead of it. ``recording.store`` says what a repeated batch
may change, ``recording.checkpoint`` the same for a job that continues from its checkpoint.

For sinks other than foreachBatch: ``Job.track``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn

from reconciler.clock import clock_ms
from reconciler.identity import identity_from_spec
from reconciler.ports import OffsetStore
from reconciler.spark.recording.batch_range import unseen
from reconciler.spark.recording.checkpoint import CheckpointRecorder, recorder_for
from reconciler.spark.recording.held_back import Holders, refusal
from reconciler.spark.recording.range_ends import RangeEnds
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
    timestamp: str = "record",
    id: str = "none",
    unit: str = "ms",
    frame: str = "none",
    topics: Iterable[str] | None = None,
    now_ms: Callable[[], int] = clock_ms,
) -> Recording:
    """``function`` for ``foreachBatch``, followed by storing each partition's next offset and its last record's anchor.

    ``bootstrap_servers`` names the cluster the query reads; ``kafka_client`` holds further librdkafka properties for it
    (the names differ from Spark's ``kafka.*`` options). They are used for the ids of the cluster and its topics, for
    reading the last record of each partition, and for ``kafka-group:``. ``now_ms`` gives epoch ms.

    ``timestamp``, ``id``, ``unit`` and ``frame`` are the texts of the configuration's ``[jobs.identity]``.

    ``anchors`` is the address of a store that keeps the anchors, as under ``[anchors]`` in the configuration: for a
    ``store`` with no room for them, and for ``kafka-group:``, whose rows at the source are lost with it. For a job that
    continues from its checkpoint, ``store`` is ``checkpoint:`` with the query's checkpointLocation.

    ``topics`` are the topics to record, if not all: see docs/how-to/hand-off.md on jobs that read two clusters' topics.

    Once the function has returned, every record counts as processed that Spark read for the batch, whether or not it
    reached the function: Spark never gives it to the query again.

    A query that holds records back in its state (an aggregation in append mode, a join of two streams, arbitrary state)
    must be recorded with ``checkpoint:``. Any other store is refused in its first batch, before the function: see
    ``recording.held_back``. So is a query whose offsets cannot be learned (``recording.batch_range``): over Spark
    Connect, with a source other than Kafka's, or for a frame other than the one that foreachBatch gave.

    A batch fails, for Spark to run again, with the function's own exception (nothing is stored), ConfigError (query,
    settings), Unreachable, Refused or OutcomeUnknown (store or cluster), or Changed (another job writes this group).
    """
    target = AnchorTarget(
        group=group,
        cluster=ClusterAccess.at(bootstrap_servers, kafka_client),
        identity=identity_from_spec(timestamp, id, unit=unit, frame=frame),
        store=store,
        anchors=anchors,
        now_ms=now_ms,
    )
    return Recording(function, recorder_for(target), topics=topics)


class Recording:
    """The function that ``recording`` returns: ``foreachBatch`` calls it with each batch."""

    def __init__(
        self,
        function: BatchFunction,
        recorder: Recorder | CheckpointRecorder,
        *,
        topics: Iterable[str] | None = None,
    ) -> None:
        self._function = function
        self._recorder = recorder
        self._state_goes_along = isinstance(recorder, CheckpointRecorder)
        self._holders = Holders()
        self._ranges = RangeEnds(
            recorder.target, recorder.cluster, topics=None if topics is None else frozenset(topics)
        )

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        # A wrong set-up must come to light before the function's work is done, not after.
        if not self._state_goes_along:
            held_by = self._holders.of(batch)
            if held_by is not None:
                raise refusal(held_by, self._recorder.target.group)
        self._recorder.open()
        last_records = self._ranges.begin(batch)
        self._function(batch, batch_id)
        found = last_records()
        self._recorder.batch(batch_id, found.ends, gone=found.gone)

    def close(self) -> None:
        """Close the store, if it was opened here, and the connection to Kafka. A process that ends with its query need
        not call it.
        """
        self._ranges.close()
        self._recorder.close()

    def __getstate__(self) -> NoReturn:
        raise unseen("Spark Connect runs the function in its server, and does not show a batch's offsets there")
