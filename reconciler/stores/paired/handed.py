"""A store that only its job writes to, and the [anchors] store that keeps anchors for its rows.

A correction is not written to such a store: it is handed to the job, which stores the new offsets with its next
transaction, under the destination's topic name. Only their anchors are written, before the job starts. From its first
transaction on, its rows have anchors in the destination's numbering and are used; until then its old rows are, and the
same offsets are handed over again.

With one topic name on both sides nothing would tell whose number the job's row holds. That is refused by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.core.errors import NotCreated
from reconciler.ports import Change, Row, WriteResult
from reconciler.stores import common
from reconciler.stores.paired.kept import of_anchors, read_kept
from reconciler.stores.paired.steps import NOTHING, same, version_of
from reconciler.stores.paired.store import PairedStore


class HandedPair(PairedStore):
    """A store with the anchors that another one keeps for it. Satisfies ``ports.HandsOver``.

    Raises what the two stores raise.
    """

    def unkept(self, group: str, changes: Sequence[Change]) -> list[Change]:
        """The changes whose new offset is not kept yet with its anchor."""
        common.check_changes(group, changes)
        try:
            kept = read_kept(self._anchors, group, {change.key.topic for change in changes})
        except NotCreated:
            kept = {}
        return [change for change in changes if not _is_kept(change, kept.get(change.key, NOTHING).main)]

    def hand_over(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Keep new offsets with their anchors. The job's own rows do not change, and are not compared."""
        wanted = [change for change in self.unkept(group, changes) if change.new is not None]
        if not wanted:
            return WriteResult()
        with of_anchors():
            self._anchors.create()
        kept = read_kept(self._anchors, group, {change.key.topic for change in wanted})
        rows = [
            Change(change.key, version_of(kept.get(change.key, NOTHING).main), common.stamped(change, now_ms))
            for change in wanted
        ]
        with of_anchors():
            return self._anchors.write(group, rows, reason=reason, now_ms=now_ms)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Keep the anchors of offsets that are stored already. Raises Refused for any other change."""
        common.check_changes(group, changes)
        rows = {row.key: row for row in self.read(group, {change.key.topic for change in changes})}
        if not all(_is_stored(change, rows.get(change.key)) for change in changes):
            self._bare.check_writable(group)
        lost = common.conflicts(changes, {key: row.version for key, row in rows.items()})
        if lost:
            return WriteResult(conflicts=lost)
        asked = {change.key for change in self.unkept(group, changes) if change.new is not None}
        result = self.hand_over(group, changes, reason=reason, now_ms=now_ms)
        left = asked - set(result.written)  # all of them, if one conflicts and the anchor store writes all or none
        return WriteResult(tuple(change.key for change in changes if change.key not in left), result.conflicts)


def _is_kept(change: Change, main: Row | None) -> bool:
    new = change.new
    return new is None or new.anchor is None or (main is not None and same(main.stored, new))


def _is_stored(change: Change, row: Row | None) -> bool:
    """True if the change leaves the stored offset as it is."""
    if row is None or row.malformed is not None or change.new is None:
        return False
    return row.stored.offset == change.new.offset
