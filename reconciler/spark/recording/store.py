"""The store that recording writes to: it may be reopened, and knows the source cluster's ids and a group's rows.

The row that a write finds in the store decides what happens:

- I1  A row in the numbering of this very topic of this cluster only moves forward. A replay's end that is equal or
      lower changes nothing.
- I2  A row in any other numbering (another cluster, the topic before it was recreated, or unknown) says nothing about
      where this job is, and is replaced.
- I3  Every write is a compare-and-set on the row that the decision was made on. A conflict is read and decided once
      more; a second one means that another job writes this group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from threading import Lock
from typing import Any, Protocol, TypeVar

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.ports import Change, ClusterInfo, OffsetStore, Row, TopicPartition
from reconciler.spark.last_records import LastRecord
from reconciler.spark.target import AnchorTarget, ClusterAccess, require_room_for_anchors

log = logging.getLogger(__name__)

T = TypeVar("T")
Describe = Callable[[Iterable[str]], ClusterInfo]
"""Returns the cluster's id and its topics' ids."""


class Decide(Protocol):
    """Returns the changes to make to the store's rows; ``is_first`` is False where an earlier decision conflicted."""

    def __call__(self, store: OffsetStore, *, is_first: bool) -> list[Change]: ...


class StoreKeeper:
    """A store that stays open between batches, and is reopened when its connection was cut."""

    def __init__(
        self, store: str | OffsetStore | None, client: Mapping[str, Any], anchors: str | OffsetStore | None = None
    ) -> None:
        if anchors is not None and not isinstance(store, str):
            raise ConfigError(
                "recording() pairs an anchor store only with a store that it opens itself.",
                hint="Give the store as an address too, or pair them yourself and leave anchors out.",
            )
        self._address = store if isinstance(store, str) else None
        self._store = None if isinstance(store, str) else store
        self._client = dict(client)
        self._anchors = anchors

    def opened(self) -> OffsetStore:
        """The store. Raises ConfigError if it cannot be written or has no room for anchors."""
        if self._store is None:
            from reconciler.stores.registry import open_store

            assert self._address is not None
            anchors: Any = self._anchors
            self._store = open_store(self._address, kafka_client=self._client, anchors=anchors)
        require_room_for_anchors(self._store, "so nothing can be recorded there")
        return self._store

    def insist(self, act: Callable[[OffsetStore], T], subject: str) -> T:
        """``act`` on the store, and once more over a new connection. ``act`` must read and decide again each time."""
        try:
            return act(self.opened())
        except (Unreachable, OutcomeUnknown) as error:
            if not error.retryable or self._address is None:
                raise
            # A connection kept between rare batches may have been cut. Everything is read and decided again, so it
            # does no harm if the first write did arrive.
            log.warning("storing %s again over a new connection: %s", subject, error)
            self.close()
            return act(self.opened())

    def close(self) -> None:
        if self._address is not None and self._store is not None:
            self._store.close()
            self._store = None


class SourceCluster:
    """The ids of the cluster that a query reads, and of its topics; looked up once, and again for a new topic."""

    def __init__(self, cluster: ClusterAccess, describe: Describe | None = None) -> None:
        self._cluster = cluster
        self._describe = describe or self._look_up
        self._info: ClusterInfo | None = None

    def having(self, topics: set[str]) -> ClusterInfo:
        """The cluster with at least these topics. Raises ConfigError for a topic that it does not have."""
        info = self._info
        if info is None or not topics <= set(info.topics):
            known = set(info.topics) if info else set()
            info = self._info = self._describe(topics | known)
        absent = sorted(topics - set(info.topics))
        if absent:
            raise ConfigError(
                f"The batch has records of {', '.join(absent)}, which the cluster at "
                f"{self._cluster.bootstrap_servers} does not have.",
                hint="Give recording() the bootstrap_servers of the cluster that the query reads.",
            )
        return info

    def lacks(self, topics: set[str]) -> set[str]:
        """Those of the topics that the cluster does not have. What is known of the others stays."""
        known = self._info
        unknown = topics - set(known.topics) if known is not None else topics
        if not unknown:
            return set()
        there = self._describe(unknown)
        if there.topics:
            self._info = there if known is None else replace(known, topics={**there.topics, **known.topics})
        return unknown - set(there.topics)

    @property
    def known(self) -> ClusterInfo | None:
        """What was known last; None if it was never looked up."""
        return self._info

    def learn(self, info: ClusterInfo) -> None:
        """Take over a newer description."""
        self._info = info

    def _look_up(self, topics: Iterable[str]) -> ClusterInfo:
        with closing(self._cluster.reader()) as reader:
            try:
                return reader.describe(topics)
            except ReconcilerError as error:
                raise type(error)(
                    error.message, hint="Check the bootstrap_servers and kafka_client that were given to recording()."
                ) from error


class GroupRecorder:
    """The common part of both recorders: opens the target's store once, names records for it, and writes (I3)."""

    attempts = 2
    """How often rows are decided on that others change at the same time."""

    def __init__(self, target: AnchorTarget, keeper: StoreKeeper, describe: Describe | None) -> None:
        self.target = target
        self.cluster = SourceCluster(target.cluster, describe)
        self._keeper = keeper
        self._checked = False
        # Py4J calls foreachBatch functions on any of its threads, and two queries may share a function.
        self._lock = Lock()

    def open(self) -> None:
        """Open the store, once: ConfigError if it cannot hold anchors, Refused if it would not take a write now."""
        with self._lock:
            if not self._checked:
                self._prepare(self._keeper.opened())
                self._checked = True

    def _prepare(self, store: OffsetStore) -> None:
        store.check_writable(self.target.group)

    def named(self, ends: Sequence[LastRecord]) -> dict[TopicPartition, Anchor]:
        """The anchors of a batch's last records."""
        if not ends:
            return {}
        cluster = self.cluster.having({end.at.topic for end in ends})
        return {
            end.at: self.target.identity.anchor_of(
                end, cluster_id=cluster.cluster_id, topic_id=cluster.topic_id(end.at.topic)
            )
            for end in ends
        }

    def _compare_and_set(self, decide: Decide, reason: str) -> None:
        """Write the changes that ``decide`` returns; it decides again after a conflict. The caller holds the lock."""
        group, now_ms = self.target.group, self.target.now_ms

        def act(store: OffsetStore) -> None:
            conflicts: tuple[TopicPartition, ...] = ()
            for attempt in range(self.attempts):
                changes = decide(store, is_first=attempt == 0)
                if not changes:
                    return
                conflicts = store.write(group, changes, reason=reason, now_ms=now_ms()).conflicts
                if not conflicts:
                    return
            raise Changed(
                f"The rows of {', '.join(str(at) for at in conflicts)} in group {group} of "
                f"{store.address} changed twice while {reason} was being stored: another job writes this group.",
                hint="Stop the other job or give each its own group; then start this one again, which repeats the "
                "batch.",
            )

        self._keeper.insist(act, f"{reason} of group {group}")

    def close(self) -> None:
        with self._lock:
            self._keeper.close()


class Recorder(GroupRecorder):
    """Keeps one group's rows in a store of offsets."""

    def __init__(self, target: AnchorTarget, *, describe: Describe | None = None) -> None:
        super().__init__(target, StoreKeeper(target.store, target.cluster.client, target.anchors), describe)

    def batch(
        self,
        batch_id: int,
        ends: Sequence[LastRecord],
        *,
        gone: Collection[TopicPartition] = (),
    ) -> None:
        """Store each end's next offset and anchor where that moves the group forward (I1 to I3).

        A partition without records in the batch keeps its row, also one whose records are ``gone``.
        """
        if not ends:
            return
        with self._lock:
            anchors = self.named(ends)
            wanted = {end.at: StoredOffset(end.offset + 1, anchors[end.at], self.target.now_ms()) for end in ends}

            def decide(store: OffsetStore, *, is_first: bool) -> list[Change]:
                rows = _rows(store, self.target.group, {at.topic for at in wanted}, may_be_absent=is_first)
                due = [(at, rows.get(at), new) for at, new in wanted.items() if moves(rows.get(at), new)]
                return [Change(at, row.version if row else None, new) for at, row, new in due]

            self._compare_and_set(decide, f"batch {batch_id}")


def _rows(store: OffsetStore, group: str, topics: set[str], *, may_be_absent: bool) -> dict[TopicPartition, Row]:
    try:
        return {row.key: row for row in store.read(group, topics)}
    except Refused:
        # A store that was never written to may refuse to be read. Expecting no rows is safe: the write creates the
        # store, fails with the true reason, or conflicts and is decided again.
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
