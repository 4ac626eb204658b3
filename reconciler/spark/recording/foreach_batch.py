"""Record, with every micro-batch, where the job is and the identity of the last record it processed.

    from reconciler.spark.recording import recording

    def write(batch, batch_id): ...

    (spark.readStream.format("kafka").options(**options).load()
        .writeStream.foreachBatch(recording(write, store="sqlite:///offsets.db", group="clicks",
                                            bootstrap_servers="localhost:9092", id="header:message-id"))
        .option("checkpointLocation", checkpoint).start())

A batch's range is known before it runs, so each partition's last record is one point read from Kafka
(``batch_range``, ``range_ends``). Where that is impossible the batch itself is searched, after the function: it is
cached, and sorted once more.

The user's function runs first, then the store is written. A crash between them loses nothing, since Spark runs the
batch again: a stored offset may be behind the work, never ahead of it. ``recording.store`` says what a repeated batch
may change, ``recording.checkpoint`` the same for a job that continues from its checkpoint.

For sinks other than foreachBatch: ``reconciler.spark.observing``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

from reconciler.clock import clock_ms
from reconciler.core.errors import ConfigError
from reconciler.ports import OffsetStore
from reconciler.spark.columns import kept
from reconciler.spark.identity_columns import BatchIdentity, ColumnSpec
from reconciler.spark.recording.batch_range import Unseen, reads_several, shared_ends
from reconciler.spark.recording.checkpoint import CheckpointRecorder, recorder_for
from reconciler.spark.recording.held_back import Holders, refusal
from reconciler.spark.recording.range_ends import PointRead, RangeEnds, without_recreated
from reconciler.spark.recording.store import Recorder
from reconciler.spark.target import AnchorTarget, ClusterAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

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
    frame: str = "none",
    topics: Iterable[str] | None = None,
    processed: Literal["read", "received"] = "read",
    cache: bool = True,
    now_ms: Callable[[], int] = clock_ms,
) -> Recording:
    """``function`` for ``foreachBatch``, followed by storing each partition's next offset and its last record's anchor.

    ``bootstrap_servers`` names the cluster the query reads; ``kafka_client`` holds further librdkafka properties for it
    (the names differ from Spark's ``kafka.*`` options). They are used for the ids of the cluster and its topics, for
    reading the last record of each partition, and for ``kafka-group:``. ``now_ms`` gives epoch ms.

    ``timestamp``, ``id``, ``unit`` and ``frame`` are as in the configuration's ``[jobs.identity]`` and must be the same
    there; ``timestamp`` and ``id`` may also be columns, or functions from the batch to a column. ``config_id`` and
    ``config_timestamp`` give the text that the configuration has in a column's place: see ``BatchIdentity``.

    ``anchors`` is the address of a store that keeps the anchors, as under ``[anchors]`` in the configuration: for a
    ``store`` with no room for them, and for ``kafka-group:``, whose rows at the source are lost with it. For a job that
    continues from its checkpoint, ``store`` is ``checkpoint:`` with the query's checkpointLocation.

    ``topics`` are the topics to record, if not all: see docs/how-to/hand-off.md on jobs that read two clusters' topics.

    ``processed`` says which records count as processed once the function has returned. ``read``: those that Spark read
    for the batch, whether or not they reached the function, since Spark never gives them to the query again. Their last
    ones are read from Kafka by their offsets; the batch is neither cached nor searched. ``received``: those that the
    function received. A record that the query filtered out before foreachBatch may then be read again after a failover,
    and the batch is searched for its last records, after the function.

    The batch is also searched where its offsets cannot be learned or read, which the log says once, with the cause:
    over Spark Connect, with columns for ``id`` or ``timestamp``, for a frame other than the one that foreachBatch gave,
    for a query with operators that are not known here (unless it continues from its checkpoint), and where Kafka does
    not let this program read.

    A query that holds records back in its state (an aggregation in append mode, a join of two streams, arbitrary state)
    must be recorded with ``checkpoint:``. Any other store is refused in its first batch, before the function: see
    ``recording.held_back``. So is a query of several sources whose ends Spark does not show. Over Spark Connect this
    cannot be seen, which the log says. With ``checkpoint:``, such a query keeps no anchors for batches that would have
    to be searched: what they show is behind what its state has.

    ``cache`` matters only where the batch is searched: it is kept (in memory, else on disk) from the function until
    then. Without it Spark reads the batch's range of Kafka a second time, and counts its rows twice in the query's
    progress. Turn it off where a batch is larger than the executors' memory and disk, or where the function caches the
    batch itself. The batch must still have the Kafka source's columns.

    Over Spark Connect the function and the recording run in the server's process: give stores by address, and have this
    package and the stores' clients installed there.

    A batch fails, for Spark to run again, with the function's own exception (nothing is stored), ConfigError (columns,
    settings), Unreachable, Refused or OutcomeUnknown (store or cluster), or Changed (another job writes this group).
    """
    target = AnchorTarget(
        group=group,
        cluster=ClusterAccess.at(bootstrap_servers, kafka_client),
        identity=BatchIdentity(timestamp, id, unit, config_id, config_timestamp, frame),
        store=store,
        anchors=anchors,
        now_ms=now_ms,
    )
    if processed not in ("read", "received"):
        raise ConfigError(f'processed = "{processed}" is not known.', hint='Use "read" or "received".')
    return Recording(function, recorder_for(target), processed=processed, cache=cache, topics=topics)


class Recording:
    """The function that ``recording`` returns: ``foreachBatch`` calls it with each batch."""

    def __init__(
        self,
        function: BatchFunction,
        recorder: Recorder | CheckpointRecorder,
        *,
        processed: Literal["read", "received"] = "read",
        cache: bool = True,
        topics: Iterable[str] | None = None,
    ) -> None:
        self._function = function
        self._recorder = recorder
        self._identity = recorder.target.identity
        self._cache = cache
        self._topics = None if topics is None else frozenset(topics)
        self._state_goes_along = isinstance(recorder, CheckpointRecorder)
        self._holders = Holders()
        self._by_range: RangeEnds | None = None
        if processed == "read":
            self._by_range = RangeEnds(
                recorder.target, recorder.cluster, topics=self._topics, state_goes_along=self._state_goes_along
            )
        self._reason_logged: str | None = None
        self._unseen_logged = False

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        # A wrong set-up must come to light before the function's work is done, not after.
        self._refuse_held_back(batch)
        self._identity.check(batch)
        self._recorder.open()
        asked = self._by_range.begin(batch) if self._by_range is not None else Unseen("")
        if isinstance(asked, Unseen) and self._may_search(batch, asked):
            shared = self._shared_ends(batch)
            with kept(batch, "MEMORY_AND_DISK") if self._cache else nullcontext():
                self._function(batch, batch_id)
                self._keep(batch_id, self._searched(batch, shared))
            return
        self._function(batch, batch_id)
        found = asked if isinstance(asked, Unseen) else asked()
        if not isinstance(found, Unseen):
            self._keep(batch_id, found)
        elif self._may_search(batch, found):
            # The work is done: Spark reads Kafka a second time, this once.
            self._keep(batch_id, self._searched(batch, self._shared_ends(batch)))
        elif isinstance(self._recorder, CheckpointRecorder):  # any other may always be searched
            self._recorder.settle(batch_id)

    def _keep(self, batch_id: int, found: PointRead) -> None:
        self._recorder.batch(batch_id, found.ends, gone=found.gone)

    def _refuse_held_back(self, batch: DataFrame) -> None:
        """Raises ConfigError if stored offsets would be ahead of the work; logs once that this cannot be seen."""
        if self._state_goes_along:
            return
        found, group = self._holders.of(batch), self._recorder.target.group
        if isinstance(found, str):
            raise refusal(found, group)
        if found is not None:
            self._warn_unseen(found)

    def _warn_unseen(self, unseen: Unseen) -> None:
        """Log once what would make stored offsets be ahead of the work, and cannot be seen."""
        if self._unseen_logged:
            return
        self._unseen_logged = True
        log.warning(
            "recording for group %s cannot see whether the query holds records back in its state, because %s: if "
            "it does (an aggregation in append mode, a join of two streams, arbitrary state), a job that starts "
            'at a stored offset skips those records. Record such a query with store="checkpoint:PATH"; also one '
            "of several sources that read the same partition, since the one that is ahead would be stored.",
            self._recorder.target.group,
            unseen.why,
        )

    def _shared_ends(self, batch: DataFrame) -> Mapping[tuple[str, int], int]:
        """The smallest end of each partition that several sources read: that of the source that is behind.

        Raises ConfigError if there are several sources and this is unknown: of two in one partition, the one that is
        ahead would be stored. A checkpoint has each source's own offset.
        """
        found, group = shared_ends(batch), self._recorder.target.group
        if not isinstance(found, Unseen):
            return found
        if not self._state_goes_along:
            if reads_several(batch):
                raise ConfigError(
                    f"No offset is stored for group {group}: the query has several sources, and {found.why}. Where two "
                    "read the same partition, a job that starts at a stored offset could skip records.",
                    hint='Record this query with store="checkpoint:PATH", its checkpointLocation; or read all topics '
                    "by one source, or each source in a query of its own. Asynchronous progress tracking shows the "
                    "ends too late: turn it off for this query.",
                )
            self._warn_unseen(found)
        return {}

    def _searched(self, batch: DataFrame, shared: Mapping[tuple[str, int], int]) -> PointRead:
        """The last records of the batch itself. ``shared``: as ``_shared_ends`` returns."""
        ends = self._identity.last_records(up_to(batch, shared))
        if self._topics is not None:
            ends = [end for end in ends if end.at.topic in self._topics]
        recreated = self._recorder.cluster.renumbered({end.at.topic for end in ends})
        gone = frozenset(end.at for end in ends if end.at.topic in recreated)
        return PointRead(without_recreated(ends, recreated, self._recorder.target.group), gone)

    def _may_search(self, batch: DataFrame, unseen: Unseen) -> bool:
        """True if the batch itself shows the last records that were read. Logs once why they have to be sought there.

        It does not where the query holds records back: the state has records that are later than those of the batch.
        """
        held_by = self._holders.of(batch) if self._state_goes_along else None
        group, is_shown = self._recorder.target.group, not isinstance(held_by, str)
        why = unseen.why or 'of processed="received"'
        if self._reason_logged == why or (is_shown and self._by_range is None):
            return is_shown
        self._reason_logged = why
        if is_shown:
            log.warning(
                "recording for group %s searches each batch for its last records, one more pass over it, because %s",
                group,
                why,
            )
        else:
            log.warning(
                "recording for group %s keeps no anchors for its batches, because %s, and since the query has %s, "
                "records that a batch does not have may be in its state. After a failover its anchors are missing, or "
                "lag and more is read again",
                group,
                why,
                held_by,
            )
        return is_shown

    def close(self) -> None:
        """Close the store, if it was opened here, and the connection to Kafka. A process that ends with its query need
        not call it.
        """
        if self._by_range is not None:
            self._by_range.close()
        self._recorder.close()


def up_to(batch: DataFrame, ends: Mapping[tuple[str, int], int]) -> DataFrame:
    """The batch without records at or after these offsets, which not all of its sources have read."""
    from pyspark.sql import functions as f

    for (topic, partition), end in ends.items():
        beyond = (f.col("topic") == topic) & (f.col("partition") == partition) & (f.col("offset") >= end)
        batch = batch.where(~beyond)
    return batch
