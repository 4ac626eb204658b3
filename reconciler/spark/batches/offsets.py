"""A group's stored offsets as range batches keep them: read for a batch, saved by compare-and-set on the rows read.

A partition's row is the offset after the last record read from it, with that record's anchor. A batch without a record
of a partition does not change its row. So the anchor is always of the record right before the stored offset, and a move
finds the exact place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.clock import clock_ms
from reconciler.core.anchors import Anchor, Identity, Record, StoredOffset
from reconciler.core.errors import Changed, ConfigError, Refused
from reconciler.ports import Change, ClusterInfo, LogReader, OffsetStore, Row, TopicPartition
from reconciler.spark.batches.planning import LogEdges, OffsetRange, names_of
from reconciler.spark.batches.reading import last_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)


class GroupOffsets:
    """One group's rows in a store, which is created if it does not exist. ``now_ms`` gives epoch ms."""

    def __init__(
        self, store: OffsetStore, group: str, identity: Identity, *, now_ms: Callable[[], int] = clock_ms
    ) -> None:
        self.store = store
        self.group = group
        self._identity = identity
        self._now_ms = now_ms
        self._ready = False

    def read(self) -> dict[TopicPartition, Row]:
        """All rows of the group. Raises ConfigError for a store that cannot hold them, and the store's own errors."""
        if not self._ready:
            able = self.store.capabilities
            if not (able.writable and able.keeps_anchors):
                raise ConfigError(
                    f"The store {self.store.address} cannot {'hold anchors' if able.writable else 'be written'}, so a "
                    "batch's offsets would not survive a failover.",
                    hint="Use another store, for example sqlite:///offsets.db.",
                )
            self.store.create()
            self.store.check_writable(self.group)
            self._ready = True
        return {row.key: row for row in self.store.read(self.group)}

    def save(self, changes: Sequence[Change], reason: str) -> None:
        """Write all changes, or raise Changed where a row has changed since the batch was planned."""
        if changes:
            refuse_conflicts(
                self.store.write(self.group, changes, reason=reason, now_ms=self._now_ms()).conflicts,
                self.group,
                self.store,
            )

    def changes(
        self, rows: Mapping[TopicPartition, Row], ends: Mapping[TopicPartition, Record], cluster: ClusterInfo
    ) -> list[Change]:
        """The rows after a batch whose last records are ``ends``."""
        found = []
        for at, end in ends.items():
            new = StoredOffset(end.offset + 1, self._anchor(at, end, cluster), self._now_ms())
            found.append(Change(at, rows[at].version if at in rows else None, new))
        return found

    def save_beginnings(self, begin: Mapping[TopicPartition, int], edges: LogEdges, reader: LogReader) -> None:
        """Create the rows of a first start, each anchored at the record before its offset."""
        before = [
            OffsetRange(at.topic, at.partition, edges.starts[at], offset)
            for at, offset in begin.items()
            if offset > edges.starts[at]
        ]
        lasts, now_ms = last_records(before, reader), self._now_ms()
        new = {
            at: StoredOffset(each, self._anchor(at, lasts.get(at), edges.cluster), now_ms) for at, each in begin.items()
        }
        self.save([Change(at, None, stored) for at, stored in new.items()], "first start")

    def _anchor(self, at: TopicPartition, last: Record | None, cluster: ClusterInfo) -> Anchor:
        """The anchor of a record; without a record it names only the cluster and the topic of the offset."""
        topic_id = cluster.topic_id(at.topic)
        if last is None:
            return Anchor(cluster_id=cluster.cluster_id, topic_id=topic_id)
        return self._identity.anchor_of(last, cluster_id=cluster.cluster_id, topic_id=topic_id)


def rewrite(rows: Iterable[Row]) -> list[Change]:
    """Changes that write the same rows again: a run that read them before can no longer save over them."""
    return [Change(row.key, row.version, row.stored, undated=row.stored.written_at_ms is None) for row in rows]


def refuse_conflicts(conflicts: Sequence[TopicPartition], group: str, store: OffsetStore) -> None:
    """Raise Changed if another writer has moved this group's rows since the batch was planned."""
    if not conflicts:
        return
    nothing = " Nothing of this batch was saved." if store.capabilities.atomic_batches else ""
    raise Changed(
        f"The offsets of {names_of(conflicts)} in group {group} of {store.address} changed since this batch began: "
        f"another run of the job has saved its own.{nothing}",
        hint="Run one job per group. Started again, this one continues after the other's batch.",
    )


def require_atomic(store: OffsetStore, consequence: str) -> None:
    """Raise Refused for a store that may write only some of a batch's rows. ``consequence`` ends the sentence."""
    if not store.capabilities.atomic_batches:
        raise Refused(
            f"The store {store.address} may write only some of a batch's offsets, and {consequence}.",
            hint="Use a store that writes whole batches: sqlite:, postgresql:, files:.",
        )


@dataclass(frozen=True, slots=True)
class RangeBatch:
    """One batch: its ranges, their name (``planning.name_of``), and the rows that it was planned from."""

    ranges: tuple[OffsetRange, ...]
    name: str
    group: str
    cluster: ClusterInfo
    rows: Mapping[TopicPartition, Row]


class RangeSink:
    """Writes the results. For each batch: ``unfinished``, then ``begin``, ``stage``, ``commit``.

    By default a sink accepts any store, repeats nothing, and saves the offsets after the results.
    """

    @property
    def store(self) -> OffsetStore | None:
        """The store in which this sink commits offsets together with results; None: the job's own."""
        return None

    def check(self, store: OffsetStore) -> None:
        """Raise ConfigError or Refused if exactly once cannot be kept with offsets in this store."""

    def unfinished(
        self, spark: SparkSession, offsets: GroupOffsets, rows: Mapping[TopicPartition, Row], edges: LogEdges
    ) -> tuple[OffsetRange, ...] | None:
        """The ranges of a batch that was begun and must be run again unchanged, over these very rows.

        None if there is no such batch; empty if it was undone, and the rows must be read again.
        """
        return None

    def begin(self, batch: RangeBatch, changes: Sequence[Change]) -> None:
        """Called before anything is written. ``changes`` are the rows that will be saved with the batch."""

    def abandon(self, batch: RangeBatch, offsets: GroupOffsets) -> None:
        """Undo the batch, which has no more records, if it was begun when it had some."""

    def stage(self, results: DataFrame, batch: RangeBatch) -> None:
        """Write the results where readers do not see them yet, or so that writing them again changes nothing."""
        raise NotImplementedError

    def commit(self, batch: RangeBatch, changes: Sequence[Change], save: Callable[[], None]) -> None:
        """Make the results visible, and save the offsets: by ``save``, or together in the sink's own store."""
        save()
