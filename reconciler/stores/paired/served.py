"""A store that keeps anchors, and the [anchors] store for those of its rows that have none.

An unmodified job may write bare offsets into a store that has room for anchors. ``track`` keeps anchors for them, as
for a store without room. A row with an anchor of its own never needs the [anchors] store, so a job whose rows all have
one does not depend on it: it is opened for the first row without.

A correction gives such a row an anchor of its own, and keeps the same anchor: the job's next row is bare again. That
is so as well where the correction makes a row under the destination's name, and the bare row that it was found from
stays under the source's. A write that changes the numbering, or restores, also changes what is kept. If it did not, a
kept anchor of one cluster would lag behind bare offsets of the other, and the next check would take those for the first
cluster's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Refused
from reconciler.ports import (
    Change,
    HistoryEntry,
    KeepsHistory,
    NamesGroups,
    OffsetStore,
    Row,
    TopicPartition,
    WriteResult,
    groups_of,
    topic_counts,
)
from reconciler.stores.paired.rules import AnchorRows, lacks_anchor
from reconciler.stores.paired.steps import same
from reconciler.stores.paired.store import PairedState, PairedStore, notes


class _Pair(PairedStore):
    """The rows of both. A row of the [anchors] store alone is no row.

    A row that an interrupted write left has an anchor of its own. So a read finishes the write where the row has the
    offset and the anchor of the one laid aside; if no row is bare, there is no such read.
    """

    def kept(self, group: str, topics: Iterable[str]) -> dict[TopicPartition, AnchorRows]:
        """The anchors kept for the rows of these topics; none if their store does not exist yet."""
        return self._kept(group, topics)

    def _joined(self, key: TopicPartition, own: Row | None, kept: AnchorRows) -> Row | None:
        return super()._joined(key, own, kept) if own is not None and lacks_anchor(own) and kept.rows else own

    def _finish_found(self, group: str, state: PairedState) -> bool:
        own = tuple(row for row in state.own if _is_laid_aside(row, state.kept_for(row.key)))
        return super()._finish_found(group, PairedState(own, {row.key: state.kept[row.key] for row in own}))

    def _half_done(self, why: str) -> OutcomeUnknown:
        error = super()._half_done(why)
        error.hint = (
            "Run this again. If every row of the job has an anchor of its own, that does not finish it: undo it "
            "(rollback, or apply), and do it again, before the job starts."
        )
        return error


class ServedStore:
    """``store`` with the anchors that the opened store keeps for rows without one of their own.

    Raises what ``store`` raises; and what the [anchors] store does, where a row has no anchor of its own.
    """

    def __init__(self, store: OffsetStore, open_anchors: Callable[[], OffsetStore]) -> None:
        self.capabilities = store.capabilities
        self.address = store.address
        self._store = store
        self._open_anchors = open_anchors

    @cached_property
    def _pair(self) -> _Pair:
        return _Pair(self._store, self._open_anchors())

    def groups(self) -> list[str] | None:
        return groups_of(self._store)

    def group_names(self) -> list[str]:
        return self._store.group_names() if isinstance(self._store, NamesGroups) else []

    def topic_counts(self, group: str) -> Mapping[str, int]:
        return topic_counts(self._store, group)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        wanted = None if topics is None else list(topics)
        rows = self._store.read(group, wanted)
        return self._pair.read(group, wanted) if any(map(lacks_anchor, rows)) else rows

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set. Rows are changed together with what is kept for them, except within one numbering.

        Anchors are kept for all of them if one is bare, or was found from a bare row: also from one that a correction
        gave an anchor of its own, and the job has not stored since.
        """
        writer: OffsetStore = self._store
        try:
            rows = {row.key: row for row in self._store.read(group, {change.key.topic for change in changes})}
        except Refused:
            rows = {}  # its first write creates it
        bare = any(change.key in rows and lacks_anchor(rows[change.key]) for change in changes)
        origins = self._origins(group, changes, rows)
        if (
            bare
            or any(map(lacks_anchor, origins))
            or self._keeps(group, [each for each in changes if _changes_numbering(rows.get(each.key), each)], origins)
        ):
            writer = self._pair
        return writer.write(group, changes, reason=reason, now_ms=now_ms)

    def _origins(self, group: str, changes: Sequence[Change], rows: Mapping[TopicPartition, Row]) -> list[Row]:
        """The rows that these offsets were found from, under other topics' names."""
        found = {
            (change.key.partition, change.found_from.offset)
            for change in changes
            if change.found_from is not None and not _is_row(change.found_from, rows.get(change.key))
        }
        held = [row for row in self._store.read(group) if row.malformed is None] if found else []
        return [row for row in held if (row.key.partition, row.stored.offset) in found]

    def _keeps(self, group: str, changes: Sequence[Change], origins: Sequence[Row]) -> bool:
        """True if anchors are kept for one of these rows, or of those that they were found from.

        A correction of rows with anchors of their own does not wait for an [anchors] store that is away.
        """
        if not changes:
            return False
        try:
            keys = {change.key for change in changes} | {row.key for row in origins}
            kept = self._pair.kept(group, {key.topic for key in keys})
        except ReconcilerError as error:
            if any(change.restores for change in changes):
                raise
            notes.warning(
                "%s Anchors that it keeps for group %r are not corrected. If the job has ever stored an offset without "
                "an anchor, roll back before it starts, and apply again once that store answers.",
                error.message,
                group,
            )
            return False
        return not keys.isdisjoint(kept)

    def history(self, group: str) -> list[HistoryEntry]:
        """The store's history; empty where it keeps none."""
        return self._store.history(group) if isinstance(self._store, KeepsHistory) else []

    def create(self) -> None:
        self._store.create()

    def check_writable(self, group: str) -> None:
        self._store.check_writable(group)

    def close(self) -> None:
        if "_pair" in self.__dict__:
            self._pair.close()
        else:
            self._store.close()


def _is_row(stored: StoredOffset, row: Row | None) -> bool:
    return row is not None and row.malformed is None and same(row.stored, stored)


def _is_laid_aside(row: Row, kept: AnchorRows) -> bool:
    return (
        row.malformed is None
        and kept.aside is not None
        and not kept.aside.malformed
        and same(row.stored, kept.aside.stored)
    )


def _changes_numbering(row: Row | None, change: Change) -> bool:
    if row is not None and row.malformed is not None:
        return False
    before, after = (each and each.cluster_id for each in (row and row.stored, change.new))
    return change.restores or before != after
