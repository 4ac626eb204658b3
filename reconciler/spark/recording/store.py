"""Where recording writes to: a store that may be opened again, the cluster's ids, and a group's rows.

What a write finds in the store decides what happens:

- I1  A row in the numbering of this very topic of this cluster only moves forward. A replay's end that is equal or
      lower changes nothing.
- I2  A row in any other numbering (another cluster, the topic before it was recreated, or unknown) says nothing about
      where this job is, and is replaced.
- I3  Every write is a compare-and-set on the row that the decision was made on. A conflict is read and decided once
      more; a second one means that another job writes this group.

These objects travel to another process by their addresses alone (Spark Connect runs functions in its server).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

from reconciler.clock import clock_ms
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.ports import Change, ClusterInfo, OffsetStore, Row, TopicPartition
from reconciler.spark.identity_columns import BatchIdentity, LastRecord

log = logging.getLogger(__name__)

T = TypeVar("T")
Describe = Callable[[Iterable[str]], ClusterInfo]
"""Cluster id and topic ids of the cluster that the batches are read from."""


class StoreKeeper:
    """A store that stays open between batches, and is opened again where a kept connection was cut."""

    def __init__(self, store: str | OffsetStore, client: Mapping[str, str], anchors: str | None = None) -> None:
        if anchors is not None and not isinstance(store, str):
            raise ConfigError(
                "recording() pairs an anchor store with a store that it opens itself.",
                hint="Give the store as an address too, or pair them yourself and leave anchors out.",
            )
        self._address = store if isinstance(store, str) else None
        self._store = None if isinstance(store, str) else store
        self._client = dict(client)
        self._anchors = anchors

    def opened(self) -> OffsetStore:
        """The store. Raises ConfigError if it cannot hold what is recorded."""
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

    def insist(self, act: Callable[[OffsetStore], T], what: str) -> T:
        """``act`` on the store, and once more over a new connection. It must read and decide anew each time."""
        try:
            return act(self.opened())
        except (Unreachable, OutcomeUnknown) as error:
            if not error.retryable or self._address is None:
                raise
            # A connection kept between rare batches may have been cut. All is read and decided anew, so
            # that it does no harm if the first write did arrive.
            log.warning("storing %s again over a new connection: %s", what, error)
            self.close()
            return act(self.opened())

    def close(self) -> None:
        if self._address is not None and self._store is not None:
            self._store.close()
            self._store = None

    def __getstate__(self) -> dict[str, Any]:
        if self._address is None:
            raise ConfigError(
                "Spark Connect runs the function in its server's process, where an opened store cannot go.",
                hint='Give recording() the store as an address, for example "postgresql://HOST/DATABASE".',
            )
        return {**self.__dict__, "_store": None}


class SourceCluster:
    """The ids of the cluster that a query reads, and of its topics; asked for once, and again for a new topic."""

    def __init__(self, client: Mapping[str, str], describe: Describe | None = None) -> None:
        self.client = dict(client)
        self._describe = describe or self._ask
        self._info: ClusterInfo | None = None

    def having(self, topics: set[str]) -> ClusterInfo:
        """Raises ConfigError for a topic that the cluster lacks."""
        if self._info is None or not topics <= set(self._info.topics):
            known = set(self._info.topics) if self._info else set()
            self._info = self._describe(topics | known)
        absent = sorted(topics - set(self._info.topics))
        if absent:
            raise ConfigError(
                f"The batch has records of {', '.join(absent)}, which the cluster at "
                f"{self.client['bootstrap.servers']} does not have.",
                hint="Give recording() the bootstrap_servers of the cluster that the query reads.",
            )
        return self._info

    def _ask(self, topics: Iterable[str]) -> ClusterInfo:
        from reconciler.kafka.reader import KafkaLogReader

        reader = KafkaLogReader(self.client, who="job's")
        try:
            return reader.describe(topics)
        except ReconcilerError as error:
            raise type(error)(
                error.message, hint="Check the bootstrap_servers and kafka_client that were given to recording()."
            ) from error
        finally:
            reader.close()


class Recorder:
    """Keeps one group's rows. Its store and the cluster's ids are fetched when first needed, and kept."""

    def __init__(
        self,
        store: str | OffsetStore,
        group: str,
        client: Mapping[str, str],
        *,
        anchors: str | None = None,
        now_ms: Callable[[], int] = clock_ms,
        describe: Describe | None = None,
    ) -> None:
        self._keeper = StoreKeeper(store, client, anchors)
        self._group = group
        self._now_ms = now_ms
        self._cluster = SourceCluster(client, describe)
        self._checked = False
        # foreachBatch calls come from whichever thread Py4J has at hand, and two queries may share a function.
        self._lock = Lock()

    def open(self) -> None:
        """Open the store, once: ConfigError if it cannot hold what is recorded, Refused if it would not take it now."""
        with self._lock:
            if not self._checked:
                self._keeper.opened().check_writable(self._group)
                self._checked = True

    def batch(self, batch_id: int, ends: Sequence[LastRecord], identity: BatchIdentity) -> None:
        """Store what a batch ended with. A partition that was silent keeps its row."""
        if ends:
            self.store(ends, identity, reason=f"batch {batch_id}")

    def store(self, ends: Sequence[LastRecord], identity: BatchIdentity, *, reason: str) -> None:
        """Store each end's next offset and anchor where that moves the group forward (I1 to I3)."""
        with self._lock:
            cluster = self._cluster.having({end.at.topic for end in ends})
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
            self._keeper.insist(
                lambda store: self._compare_and_set(store, wanted, reason), f"{reason} of group {self._group}"
            )

    def close(self) -> None:
        with self._lock:
            self._keeper.close()

    def _compare_and_set(self, store: OffsetStore, wanted: Mapping[TopicPartition, StoredOffset], reason: str) -> None:
        conflicts: tuple[TopicPartition, ...] = ()
        for attempt in range(2):
            rows = _rows(store, self._group, {at.topic for at in wanted}, may_be_absent=attempt == 0)
            due = [(at, rows.get(at), new) for at, new in wanted.items() if moves(rows.get(at), new)]
            changes = [Change(at, row.version if row else None, new) for at, row, new in due]
            if not changes:
                return
            conflicts = store.write(self._group, changes, reason=reason, now_ms=self._now_ms()).conflicts
            if not conflicts:
                return
        raise another_job(conflicts, self._group, store.address, reason)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())


def another_job(conflicts: Iterable[TopicPartition], group: str, address: str, reason: str) -> Changed:
    """Rows that changed again and again while a batch was being stored."""
    return Changed(
        f"The rows of {', '.join(f'{at.topic}:{at.partition}' for at in conflicts)} in group {group} of "
        f"{address} changed twice while {reason} was being stored: another job writes this group.",
        hint="Stop the other job or give each its own group; then start this one again, which repeats the batch.",
    )


def _rows(store: OffsetStore, group: str, topics: set[str], *, may_be_absent: bool) -> dict[TopicPartition, Row]:
    try:
        return {row.key: row for row in store.read(group, topics)}
    except Refused:
        # A store that nobody has written to yet may refuse to be read. Expecting no rows is safe: the write
        # makes the store, fails with the true reason, or conflicts and is decided again.
        if not may_be_absent:
            raise
        return {}


def moves(row: Row | None, new: StoredOffset) -> bool:
    """True if ``new`` takes the place of ``row``: invariants I1 and I2 of this module."""
    if row is None or row.stored.is_sentinel or row.stored.anchor is None or new.anchor is None:
        return True
    if not row.stored.anchor.numbered_by(new.anchor.cluster_id, new.anchor.topic_id):
        return True
    return new.offset > row.stored.offset
