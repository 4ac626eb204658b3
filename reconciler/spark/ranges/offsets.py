"""A group's stored offsets as range batches keep them: read for a batch, saved by compare-and-set on what was read.

What is stored for a partition is the offset after its last record that was read, with that record's anchor; a batch
without a record of a partition leaves its row as it is. So the anchor is always that of the record right before the
stored offset, and a failover can find the exact place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, ConfigError, Refused
from reconciler.ports import Change, ClusterInfo, OffsetStore, Row, TopicPartition
from reconciler.spark.identity_columns import BatchIdentity, LastRecord
from reconciler.spark.ranges.planning import SHOWN

log = logging.getLogger(__name__)


class GroupOffsets:
    """One group's rows in a store, which is made if it is not there."""

    def __init__(self, store: OffsetStore, group: str, now_ms: Callable[[], int]) -> None:
        self.store = store
        self.group = group
        self._now_ms = now_ms
        self._ready = False

    def read(self) -> dict[TopicPartition, Row]:
        """All rows of the group. Raises ConfigError for a store that cannot hold them, else as the store does."""
        if not self._ready:
            require_able(self.store)
            self.store.create()
            self.store.check_writable(self.group)
            self._ready = True
        return {row.key: row for row in self.store.read(self.group)}

    def save(self, changes: Sequence[Change], reason: str) -> None:
        """Write all changes, or raise Changed where a row is no longer what it was when the batch was planned."""
        if changes:
            refuse_conflicts(
                self.store.write(self.group, changes, reason=reason, now_ms=self._now_ms()).conflicts,
                self.group,
                self.store,
            )

    def changes(
        self,
        rows: Mapping[TopicPartition, Row],
        ends: Sequence[LastRecord],
        identity: BatchIdentity,
        cluster: ClusterInfo,
    ) -> list[Change]:
        """The rows after a batch whose last records are ``ends``."""
        found = []
        for end in ends:
            topic_id = cluster.topics[end.at.topic].topic_id
            anchor = identity.anchor_of(end, cluster_id=cluster.cluster_id, topic_id=topic_id)
            new = StoredOffset(end.offset + 1, anchor, self._now_ms())
            found.append(Change(end.at, rows[end.at].version if end.at in rows else None, new))
        return found

    def beginnings(
        self, begin: Mapping[TopicPartition, int | None], lasts: Mapping[TopicPartition, LastRecord], log: Anchorer
    ) -> list[Change]:
        """Rows for partitions that begin: at an offset with the record before it as anchor, or with nothing read."""
        found = []
        for at, offset in begin.items():
            if offset is None:
                new = StoredOffset(-1, None, self._now_ms())
            elif at in lasts:
                new = StoredOffset(offset, log(at, lasts[at]), self._now_ms())
            else:
                new = StoredOffset(offset, log(at, None), self._now_ms())
            found.append(Change(at, None, new))
        return found


Anchorer = Callable[[TopicPartition, LastRecord | None], Anchor]
"""The anchor of a record; of no record: whose numbering the offset is in."""


def require_able(store: OffsetStore) -> None:
    """Raise ConfigError unless the store can be written and keeps anchors."""
    able = store.capabilities
    if not (able.writable and able.keeps_anchors):
        lack = "hold anchors" if able.writable else "be written"
        raise ConfigError(
            f"The store {store.address} cannot {lack}, so that a batch's offsets would not survive a failover.",
            hint="Keep them in another store, for example sqlite:///offsets.db, or give an anchor store beside it:"
            ' anchors="sqlite:///anchors.db".',
        )


def refuse_conflicts(conflicts: Sequence[TopicPartition], group: str, store: OffsetStore) -> None:
    """Raise Changed where another writer has moved this group's rows since the batch was planned: a lost race."""
    if not conflicts:
        return
    shown = ", ".join(f"{at.topic}:{at.partition}" for at in conflicts[:SHOWN])
    nothing = " Nothing of this batch was saved." if store.capabilities.atomic_batches else ""
    raise Changed(
        f"The offsets of {shown} in group {group} of {store.address} are no longer what this batch began from: "
        f"another run of the job has saved its own.{nothing}",
        hint="Run one job a group. Started again, this one goes on behind the other's batch.",
    )


def refuse_nothing_atomic(store: OffsetStore, why: str) -> None:
    """Raise Refused for a store that may write a batch's rows in part."""
    if not store.capabilities.atomic_batches:
        raise Refused(
            f"The store {store.address} may write some of a batch's offsets and not others, and {why}.",
            hint="Use a store that writes whole batches: sqlite:, postgresql:, files:.",
        )
