"""Record, with every micro-batch, where the job is and the identity of the last record it processed.

    from reconciler.spark.recording import recording

    def write(batch, batch_id): ...

    (spark.readStream.format("kafka").options(**options).load()
        .writeStream.foreachBatch(recording(write, store="sqlite:///offsets.db", group="clicks",
                                            bootstrap_servers="localhost:9092", id="header:message-id"))
        .option("checkpointLocation", checkpoint).start())

Theory of operation. The order is: the user's function, then the store. A crash between them loses nothing, since Spark
runs the batch again: a stored offset may be behind the work, never ahead of it. What a replayed batch finds in the
store decides what happens:

- I1  A row in the numbering of this very topic of this cluster only moves forward. A replay's end that is equal or
      lower changes nothing.
- I2  A row in any other numbering (another cluster, the topic before it was recreated, or unknown) says nothing about
      where this job is, and is replaced.
- I3  Every write is a compare-and-set on the row that the decision was made on. A conflict is read and decided once
      more; a second one means that another job writes this group, and fails the batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.ports import Change, ClusterInfo, OffsetStore, Row, TopicPartition
from reconciler.spark.identity_columns import BatchIdentity, LastRecord

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger(__name__)

BatchFunction = Callable[["DataFrame", int], None]
Describe = Callable[[Iterable[str]], ClusterInfo]
"""Cluster id and topic ids of the cluster that the batches are read from."""


def recording(
    function: BatchFunction,
    *,
    store: str | OffsetStore,
    group: str,
    bootstrap_servers: str,
    anchors: str | None = None,
    kafka_client: Mapping[str, str] | None = None,
    timestamp: str | Column = "record",
    id: str | Column = "none",
    unit: str = "ms",
    cache: bool = True,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Recording:
    """``function`` for ``foreachBatch``, followed by storing each partition's next offset and its last record's anchor.

    ``bootstrap_servers`` names the cluster the query reads; ``kafka_client`` holds further librdkafka properties for it
    (the names differ from Spark's ``kafka.*`` options). They are used for the ids of the cluster and its topics, once
    and again when a topic appears, and for a store that lives in Kafka. ``timestamp``, ``id`` and ``unit`` are as in
    the configuration's ``[jobs.identity]`` and must be the same there, or columns: see ``BatchIdentity``. ``now_ms``
    gives epoch ms.

    ``anchors`` is the address of a store that keeps the anchors, as under ``[anchors]`` in the configuration: for a
    ``store`` with no room for them, and for ``kafka-group:``, whose rows at the source are lost with it.

    The batch must still have the Kafka source's columns. Records filtered out before foreachBatch do not count as
    processed: the stored offset is then earlier than it could be, never later.

    ``cache`` keeps the batch (in memory, else on disk) from the function until its last records are found. Without it
    Spark reads the batch's range of Kafka a second time, and counts its rows twice in the query's progress. Turn it off
    where a batch is larger than the executors' memory and disk, or where the function caches the batch itself.

    A batch fails, for Spark to run again, with the function's own exception (nothing is stored), ConfigError (columns,
    settings), Unreachable, Refused or OutcomeUnknown (store or cluster), or Changed (another job writes this group).
    """
    return Recording(
        function,
        BatchIdentity(timestamp=timestamp, id=id, unit=unit),
        Recorder(
            store,
            group,
            {"bootstrap.servers": bootstrap_servers, **(kafka_client or {})},
            anchors=anchors,
            now_ms=now_ms,
        ),
        cache=cache,
    )


class Recording:
    """What ``recording`` returns: call it with a batch, or let ``foreachBatch`` do so."""

    def __init__(
        self, function: BatchFunction, identity: BatchIdentity, recorder: Recorder, *, cache: bool = True
    ) -> None:
        self._function = function
        self._identity = identity
        self._recorder = recorder
        self._cache = cache

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        if type(batch).__module__.startswith("pyspark.sql.connect"):
            raise _not_over_connect()
        # Whatever is wrong with the set-up must come to light before the function's work is done, not after.
        self._identity.check(batch)
        self._recorder.open()
        ends = self._run(batch, batch_id)
        if ends:
            self._recorder.store(ends, self._identity, reason=f"batch {batch_id}")

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

    def __reduce__(self) -> NoReturn:
        # Spark Connect pickles the function to run it in the server, away from this process's store and files.
        raise _not_over_connect()


class Recorder:
    """Keeps one group's rows. Its store and the cluster's ids are fetched when first needed, and kept."""

    def __init__(
        self,
        store: str | OffsetStore,
        group: str,
        client: Mapping[str, str],
        *,
        anchors: str | None = None,
        now_ms: Callable[[], int],
        describe: Describe | None = None,
    ) -> None:
        if anchors is not None and not isinstance(store, str):
            raise ConfigError(
                "recording() pairs an anchor store with a store that it opens itself.",
                hint="Give the store as an address too, or pair them yourself and leave anchors out.",
            )
        self._anchors = anchors
        self._address = store if isinstance(store, str) else None
        self._store = None if isinstance(store, str) else store
        self._group = group
        self._client = dict(client)
        self._now_ms = now_ms
        self._describe = describe or self._ask_cluster
        self._cluster: ClusterInfo | None = None
        self._checked = False
        # foreachBatch calls come from whichever thread Py4J has at hand, and two queries may share a function.
        self._lock = Lock()

    def open(self) -> None:
        """Open the store, once: ConfigError if it cannot hold what is recorded, Refused if it would not take it now."""
        with self._lock:
            if not self._checked:
                self._opened().check_writable(self._group)
                self._checked = True

    def store(self, ends: Sequence[LastRecord], identity: BatchIdentity, *, reason: str) -> None:
        """Store each end's next offset and anchor where that moves the group forward (I1 to I3)."""
        with self._lock:
            cluster = self._cluster_with({end.at.topic for end in ends})
            wanted = {
                end.at: StoredOffset(
                    offset=end.offset + 1,
                    anchor=identity.anchor_of(
                        end, cluster_id=cluster.cluster_id, topic_id=cluster.topics[end.at.topic].topic_id
                    ),
                    written_at_ms=self._now_ms(),
                )
                for end in ends
            }
            try:
                self._compare_and_set(self._opened(), wanted, reason)
            except (Unreachable, OutcomeUnknown) as error:
                if not error.retryable or self._address is None:
                    raise
                # A connection kept between rare batches may have been cut. All is read and decided anew, so
                # that it does no harm if the first write did arrive.
                log.warning("storing %s of group %s again over a new connection: %s", reason, self._group, error)
                self._close()
                self._compare_and_set(self._opened(), wanted, reason)

    def close(self) -> None:
        with self._lock:
            self._close()

    # ------------------------------------------------------------ the store

    def _opened(self) -> OffsetStore:
        if self._store is None:
            from reconciler.stores.registry import open_store

            assert self._address is not None
            self._store = open_store(self._address, kafka_client=self._client, anchors=self._anchors)
        able = self._store.capabilities
        if not (able.writable and able.keeps_anchors):
            lack = "hold anchors" if able.writable else "be written"
            raise ConfigError(
                f"The store {self._store.address} cannot {lack}, so that nothing can be recorded there.",
                hint="Record in another store, for example sqlite:///offsets.db, or give an anchor store beside it:"
                ' anchors="sqlite:///anchors.db".',
            )
        return self._store

    def _close(self) -> None:
        if self._address is not None and self._store is not None:
            self._store.close()
            self._store = None

    def _compare_and_set(self, store: OffsetStore, wanted: Mapping[TopicPartition, StoredOffset], reason: str) -> None:
        conflicts: tuple[TopicPartition, ...] = ()
        for attempt in range(2):
            rows = self._rows(store, {at.topic for at in wanted}, may_be_absent=attempt == 0)
            due = [(at, rows.get(at), new) for at, new in wanted.items() if moves(rows.get(at), new)]
            changes = [Change(at, row.version if row else None, new) for at, row, new in due]
            if not changes:
                return
            conflicts = store.write(self._group, changes, reason=reason, now_ms=self._now_ms()).conflicts
            if not conflicts:
                return
        raise Changed(
            f"The rows of {', '.join(f'{at.topic}:{at.partition}' for at in conflicts)} in group {self._group} of "
            f"{store.address} changed twice while {reason} was being stored: another job writes this group.",
            hint="Stop the other job or give each its own group; then start this one again, which repeats the batch.",
        )

    def _rows(self, store: OffsetStore, topics: set[str], *, may_be_absent: bool) -> dict[TopicPartition, Row]:
        try:
            return {row.key: row for row in store.read(self._group, topics)}
        except Refused:
            # A store that nobody has written to yet may refuse to be read. Expecting no rows is safe: the write
            # makes the store, fails with the true reason, or conflicts and is decided again.
            if not may_be_absent:
                raise
            return {}

    # ------------------------------------------------------------ the cluster

    def _cluster_with(self, topics: set[str]) -> ClusterInfo:
        if self._cluster is None or not topics <= set(self._cluster.topics):
            known = set(self._cluster.topics) if self._cluster else set()
            self._cluster = self._describe(topics | known)
        absent = sorted(topics - set(self._cluster.topics))
        if absent:
            raise ConfigError(
                f"The batch has records of {', '.join(absent)}, which the cluster at "
                f"{self._client['bootstrap.servers']} does not have.",
                hint="Give recording() the bootstrap_servers of the cluster that the query reads.",
            )
        return self._cluster

    def _ask_cluster(self, topics: Iterable[str]) -> ClusterInfo:
        from reconciler.readers.kafka import KafkaLogReader

        reader = KafkaLogReader(self._client, who="job's")
        try:
            return reader.describe(topics)
        except ReconcilerError as error:
            raise type(error)(
                error.message, hint="Check the bootstrap_servers and kafka_client that were given to recording()."
            ) from error
        finally:
            reader.close()


def moves(row: Row | None, new: StoredOffset) -> bool:
    """True if ``new`` takes the place of ``row``: invariants I1 and I2 of this module."""
    if row is None or row.stored.is_sentinel or row.stored.anchor is None or new.anchor is None:
        return True
    if not row.stored.anchor.numbered_by(new.anchor.cluster_id, new.anchor.topic_id):
        return True
    return new.offset > row.stored.offset


def _not_over_connect() -> ConfigError:
    return ConfigError(
        "recording() does not work over Spark Connect, which runs foreachBatch functions in the server's process.",
        hint="Run the job with a classic SparkSession.",
    )
