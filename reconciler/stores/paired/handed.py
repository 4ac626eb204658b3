"""A store that only its job writes to, and the [anchors] store that keeps anchors for its rows.

A correction is not written to such a store: it is handed to the job, which stores the new offsets with its next
transaction, under the destination's topic name. Only their anchors are written, before the job starts.

Theory of operation. The table may hold an older row under that name: of an earlier stay, or of a topic that was
recreated since. Until the job's next transaction that row is as it was. Its number must not be taken for one that the
job has reached from the offset that was handed over. To hand X' over while the row says X, for which A is kept:

    1. what is in place (X, the row's time, and A) is laid aside (``steps.aside_of``)
    2. A' for X' replaces A for X

After a kill before step 2, the row laid aside has the anchor that is kept: nothing was handed over, and the row reads
as before. After step 2 it has another one. Then, as long as the table's row is the one laid aside, the pair reads as X'
with A': every start is given the same offsets, also those that a person chose. Once the job has stored a row, that one
pairs with A' (``rules.by_offset``). The row laid aside stays: it means nothing for other rows.

The table may be set back to the row laid aside (RESTORE) after an anchor that is kept for a later row has replaced A'.
What was handed over is not known any more then, and the pair has no anchor. So, before A' is replaced, the row laid
aside is marked by the anchor ``_OVER``; where nothing was handed over (a kill before step 2), it is removed once the
job has gone on. To hand an offset over in place of a row that the table was set back to, that row is laid aside with
the mark, which is removed after step 2: a kill in between leaves it without an anchor, as it was. An anchor that a
person writes for such a row (``write``) ends the mark, too.

The table's row is the one laid aside if it has the same number and no later time. Without times (Delta's ``txn``,
``columns``) the number decides: a job that comes to that very number reads again from X', and skips nothing.

With one topic name on both sides nothing would tell whose number the job's row holds. That is refused by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import NotCreated
from reconciler.ports import Change, OffsetStore, Row, TopicPartition, WriteResult
from reconciler.stores import common
from reconciler.stores.paired.kept import of_anchors
from reconciler.stores.paired.rules import AnchorRows, by_offset, token
from reconciler.stores.paired.steps import NOTHING, aside_of, dated, same, version_of, with_lag, without_aside
from reconciler.stores.paired.store import PairedState, PairedStore

_OVER = Anchor(cluster_id="-")
"""The anchor of a row laid aside once the anchor that was handed over in its place has been replaced."""


class HandedPair(PairedStore):
    """A store with the anchors that another one keeps for it. Satisfies ``ports.HandsOver``.

    Raises what the two stores raise.
    """

    def __init__(self, bare: OffsetStore, anchors: OffsetStore) -> None:
        super().__init__(bare, anchors, pairing=by_hand_over)

    def unkept(self, group: str, changes: Sequence[Change]) -> list[Change]:
        """The changes whose new offset is not handed over yet, in place of the job's row as it is now."""
        common.check_changes(group, changes)
        return _unkept(changes, self._now(group, changes))

    def hand_over(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Keep new offsets with their anchors. The job's own rows do not change, and are not compared."""
        common.check_changes(group, changes)
        state = self._now(group, changes)
        wanted = _unkept(changes, state)
        return self._keep(group, wanted, wanted, state, reason, now_ms)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Keep the anchors of offsets that are stored already. Raises Refused for any other change."""
        common.check_changes(group, changes)
        state = self._state(group, {change.key.topic for change in changes})
        own = _own(state)
        joined = [self._joined(each.key, own.get(each.key), state.kept_for(each.key)) for each in changes]
        rows = {row.key: row for row in joined if row is not None}
        if not all(_is_stored(change, rows.get(change.key)) for change in changes):
            self._bare.check_writable(group)
        lost = common.conflicts(changes, {key: row.version for key, row in rows.items()})
        if lost:
            return WriteResult(conflicts=lost)
        asked = [change for change in changes if not _is_kept(change, state.kept_for(change.key).main)]
        handed = [each for each in asked if awaits_job(own.get(each.key), state.kept_for(each.key))]
        result = self._keep(group, [_made_for(each, handed) for each in asked], handed, state, reason, now_ms)
        # All of them are left, if one conflicts and the anchor store writes all or none.
        left = {change.key for change in asked} - set(result.written)
        return WriteResult(tuple(change.key for change in changes if change.key not in left), result.conflicts)

    def _finish_found(self, group: str, state: PairedState) -> bool:
        return False  # a row laid aside is not an interrupted write

    def _now(self, group: str, changes: Sequence[Change]) -> PairedState:
        """Both stores' rows; none of a table that the job has yet to create."""
        topics = {change.key.topic for change in changes}
        try:
            return self._state(group, topics)
        except NotCreated:
            return PairedState((), self._kept(group, topics))

    def _keep(
        self,
        group: str,
        changes: Sequence[Change],
        handed: Sequence[Change],
        state: PairedState,
        reason: str,
        now_ms: int,
    ) -> WriteResult:
        """Replace the kept anchors by those of the changes, after the rows of those ``handed`` over are laid aside."""
        own = _own(state)
        laid = [_laid_aside(each, own.get(each.key), state.kept_for(each.key)) for each in handed]
        laid += [outlived(own.get(each.key), state.kept_for(each.key)) for each in changes if each not in handed]
        lost = self._put(group, [row for row in laid if row is not None], reason, now_ms).conflicts
        if lost:
            return WriteResult(conflicts=tuple(map(without_aside, lost)))
        rows = [
            Change(each.key, version_of(state.kept_for(each.key).main), common.stamped(each, now_ms))
            for each in changes
        ]
        result = self._put(group, rows, reason, now_ms)
        back = [each for each in changes if _is_set_back(own.get(each.key), state.kept_for(each.key))]
        if result.conflicts or not back:
            return result
        kept = self._now(group, back).kept
        marked = [(each, row) for each in back if (row := kept.get(each.key, NOTHING).aside) is not None]
        ends = [
            _with_anchor(row, None) if each in handed else Change(row.key, row.version, None) for each, row in marked
        ]
        lost = self._put(group, ends, reason, now_ms).conflicts
        return common.written(changes, set(map(without_aside, lost)))

    def _put(self, group: str, rows: Sequence[Change], reason: str, now_ms: int) -> WriteResult:
        if not rows:
            return WriteResult()
        with of_anchors():
            self._anchors.create()
            return self._anchors.write(group, rows, reason=reason, now_ms=now_ms)


def by_hand_over(key: TopicPartition, own: Row | None, kept: AnchorRows) -> Row | None:
    """The job's row with its anchor; what was handed over, until the job has stored a row since."""
    found = by_offset(key, own, AnchorRows(kept.main))
    if own is None or found is None:
        return found
    found = replace(found, version=token(own, kept))
    if kept.main is not None and awaits_job(own, kept):
        return replace(found, stored=kept.main.stored, anchor_lag=0, note=common.noted(_of_hand_over(own), own.note))
    if _is_set_back(own, kept):
        return replace(found, stored=own.stored, anchor_lag=None, note=common.noted(_of_set_back(own), own.note))
    return found


def _replaced(kept: AnchorRows) -> StoredOffset | None:
    """The row in whose place an offset was handed over; None if there was none."""
    if kept.main is None or kept.aside is None or kept.aside.stored.anchor == kept.main.stored.anchor:
        return None
    return kept.aside.stored


def _is_same(own: Row, laid: StoredOffset) -> bool:
    """True if the job's row is still the one that was laid aside."""
    return own.stored.offset == laid.offset and (_lacks_time(own, laid) or not common.is_later(own.stored, laid))


def _is_older(own: Row, laid: StoredOffset) -> bool:
    """True if another row is in place that the job stored before the one that was laid aside."""
    return not (_lacks_time(own, laid) or common.is_later(own.stored, laid))


def _lacks_time(own: Row, laid: StoredOffset) -> bool:
    return own.stored.written_at_ms is None or laid.written_at_ms is None


def awaits_job(own: Row | None, kept: AnchorRows) -> bool:
    """True if an offset was handed over in place of the job's row, and the job has stored none since."""
    laid = _replaced(kept)
    return own is not None and laid is not None and laid.anchor != _OVER and _is_same(own, laid)


def _is_set_back(own: Row | None, kept: AnchorRows) -> bool:
    """True if the job's row is from before a hand-over that it had gone on from, or that was not in its place."""
    laid = _replaced(kept)
    if own is None or laid is None:
        return False
    return _is_older(own, laid) or (laid.anchor == _OVER and _is_same(own, laid))


def outlived(own: Row | None, kept: AnchorRows) -> Change | None:
    """The change to the row laid aside that comes before the kept anchor is replaced by one for the job's row."""
    there = kept.aside
    if there is None or there.stored.anchor == _OVER or awaits_job(own, kept):
        return None
    if _replaced(kept) is not None:
        return _with_anchor(there, _OVER)
    if own is not None and _is_same(own, there.stored):
        return None  # a hand-over in its place may be under way, and needs it
    return Change(there.key, there.version, None)


def _with_anchor(laid: Row, anchor: Anchor | None) -> Change:
    return dated(laid.key, laid.version, replace(laid.stored, anchor=anchor))


def _of_hand_over(own: Row) -> str:
    held = f"the table still holds {own.stored.offset}"
    if own.stored.written_at_ms is not None:
        return f"it was handed to the job, which has stored nothing since: {held}"
    return f"it was handed to the job, and {held}: if the job has come to that very number since, it repeats its work"


def _of_set_back(own: Row) -> str:
    if own.stored.written_at_ms is not None:
        return "the table was set back: this row is older than the last hand-over"
    return "the table was set back to before the last hand-over, or the job has come to the very number of that time"


def _own(state: PairedState) -> dict[TopicPartition, Row]:
    return {row.key: row for row in state.own}


def _unkept(changes: Sequence[Change], state: PairedState) -> list[Change]:
    own = _own(state)
    return [each for each in changes if not _is_handed_over(each, own.get(each.key), state.kept_for(each.key))]


def _is_handed_over(change: Change, own: Row | None, kept: AnchorRows) -> bool:
    """True if the change's anchor is kept, and the job's row does not read as one that went on from it."""
    if change.new is None or change.new.anchor is None:
        return True
    at_it = own is None or own.stored.offset == change.new.offset or awaits_job(own, kept)
    return at_it and _is_kept(change, kept.main)


def _made_for(change: Change, handed: Sequence[Change]) -> Change:
    """The change with the offset that its anchor was made for; of an offset that was handed over it is that one."""
    if change.new is None or not change.may_lag or change in handed:
        return change
    return replace(change, new=with_lag(change.new))


def _laid_aside(change: Change, own: Row | None, kept: AnchorRows) -> Change | None:
    """The change to the row laid aside, before the anchor of ``change`` is kept; None if it is as it must be.

    Its anchor is the kept one, unless that stays: it has to differ then.
    """
    there, place, new = kept.aside, aside_of(change.key), change.new
    if own is None or new is None:
        return None if there is None else Change(place, there.version, None)
    if there is not None and awaits_job(own, kept):
        laid = there.stored
    else:
        anchor = None if kept.main is None else kept.main.stored.anchor
        if _is_set_back(own, kept):
            anchor = _OVER  # until the new anchor is kept
        laid = StoredOffset(own.stored.offset, anchor, own.stored.written_at_ms)
    if laid.anchor == new.anchor:
        laid = replace(laid, anchor=None)
    return None if there is not None and there.stored == laid else dated(place, version_of(there), laid)


def _is_kept(change: Change, main: Row | None) -> bool:
    new = change.new
    return new is None or new.anchor is None or (main is not None and same(main.stored, new))


def _is_stored(change: Change, row: Row | None) -> bool:
    """True if the change leaves the stored offset as it is."""
    if row is None or row.malformed is not None or change.new is None:
        return False
    return row.stored.offset == change.new.offset
