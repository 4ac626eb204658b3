"""The steps of writing one row's offset and anchor to two stores. Pure; see ``store``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from reconciler.core.anchors import Names, StoredOffset
from reconciler.ports import Change, Row, TopicPartition
from reconciler.stores.common import is_later, stamped
from reconciler.stores.paired.rules import AnchorRows

ASIDE = ".being-written"
"""Suffix of a topic's name for rows laid aside; no job may have such a topic."""
NOTHING = AnchorRows()


def aside_of(key: TopicPartition) -> TopicPartition:
    """The key under which a row's anchor is laid aside while the row is being written."""
    return TopicPartition(key.topic + ASIDE, key.partition)


def without_aside(key: TopicPartition) -> TopicPartition:
    """The key of the row that an anchor is kept for, laid aside or not."""
    return TopicPartition(key.topic.removesuffix(ASIDE), key.partition)


def gathered(rows: Iterable[Row]) -> dict[TopicPartition, AnchorRows]:
    """An anchor store's rows, by the key of the row that they are kept for."""
    found: dict[TopicPartition, AnchorRows] = {}
    for row in rows:
        key = without_aside(row.key)
        before = found.get(key, NOTHING)
        found[key] = replace(before, main=row) if key == row.key else replace(before, aside=row)
    return found


@dataclass(frozen=True, slots=True)
class Goal:
    """The state after a finished write: the stored offset (None: no row), and the anchor kept for it, if any.

    ``beside``: what stays laid aside where the row is in doubt: its lag counts from there, too (``rules``).
    """

    offset: int | None
    anchored: StoredOffset | None
    beside: StoredOffset | None = None

    @classmethod
    def of(cls, new: StoredOffset | None) -> Goal:
        return cls(None, None) if new is None else cls(new.offset, new if new.anchor is not None else None)

    @classmethod
    def restoring(cls, old: StoredOffset, main: Row | None) -> Goal:
        """The goal of a write that puts back a row with its anchor, in place of one that ``main`` is kept for."""
        anchored = with_lag(old)
        return cls(old.offset, anchored, None if anchored == old else _in_another(main, anchored))


@dataclass(frozen=True, slots=True)
class PairedStep:
    """One change, with the rows that exist now and the row to lay ``aside`` for it (None: none is needed)."""

    change: Change
    own: Row | None
    kept: AnchorRows
    aside: StoredOffset | None
    goal: Goal

    @classmethod
    def of(
        cls, change: Change, own: Row | None, kept: AnchorRows, now_ms: int, *, one_numbering: bool = True
    ) -> PairedStep:
        """``one_numbering``: a restored or imported offset is in the numbering of its anchor."""
        new = stamped(change, now_ms)
        goal = Goal.of(new)
        anchored = goal.anchored if one_numbering else None
        if anchored is not None and change.restores:
            goal = Goal.restoring(anchored, kept.main)
        elif anchored is not None and change.may_lag:
            goal = replace(goal, anchored=with_lag(anchored))
        if new is None:
            return cls(change, own, kept, _exact(own, kept), goal)
        if change.restores and change.text is None and not one_numbering:
            # A commit has a text, be it empty: the group had no row, and this is the copy that is kept for it.
            return cls(replace(change, new=None), own, kept, None, Goal(None, new))
        return cls(change, own, kept, None if new.anchor is None and kept.main is None else new, goal)

    @property
    def key(self) -> TopicPartition:
        return self.change.key

    @property
    def first(self) -> Change | None:
        """The change to the kept anchor before the row, if the row is to be deleted."""
        return None if self.goal.offset is not None else self._keeping(self.kept.main, self.goal.anchored)

    def back(self, now: Row | None) -> Change | None:
        """The change that undoes ``first``. ``now``: the kept anchor, which another writer may have changed."""
        if self.first is None or _all_of(now) != _all_of(self.goal.anchored):
            return None
        return self._keeping(now, self.kept.main.stored if self.kept.main else None)

    def _keeping(self, main: Row | None, stored: StoredOffset | None) -> Change | None:
        if _all_of(main) == _all_of(stored):
            return None
        return Change(self.key, version_of(main), None) if stored is None else dated(self.key, version_of(main), stored)

    def lay_aside(self) -> Change | None:
        """The change to the row laid aside; removes one that another write left."""
        there = self.kept.aside
        if self.aside is not None:
            return dated(aside_of(self.key), version_of(there), self.aside)
        return None if there is None else Change(aside_of(self.key), there.version, None)


def with_lag(restored: StoredOffset) -> StoredOffset:
    """The anchor of a restored or imported row, kept for the offset that its record has, or right after it.

    Such a row no longer says whether its anchor lagged. So all between the two counts as lag.
    """
    anchor = restored.anchor
    if anchor is None or anchor.offset is None or anchor.names is Names.MAX_TIME:
        return restored
    if anchor.names is Names.NEXT and anchor.cluster_id is None:
        return restored  # a flowlet's, which is written with the offset: its own is only where a search may begin
    made_for = anchor.offset + (anchor.names is Names.LAST)
    return replace(restored, offset=made_for) if made_for < restored.offset else restored


def _in_another(main: Row | None, restored: StoredOffset) -> StoredOffset | None:
    """The kept row that a row in doubt replaces, where it is in one cluster's numbering."""
    if main is None or main.stored.cluster_id is None or restored.cluster_id is not None:
        return None
    return main.stored


def _exact(own: Row | None, kept: AnchorRows) -> StoredOffset | None:
    main = kept.main
    return main.stored if own and main and main.stored.offset == own.stored.offset else None


def dated(key: TopicPartition, expected: str | None, stored: StoredOffset) -> Change:
    """A change that keeps the row's time of writing, also if it has none."""
    return Change(key, expected, stored, restores=stored.written_at_ms is None)


def version_of(row: Row | None) -> str | None:
    """The version that a compare-and-set on the row expects."""
    return None if row is None else row.version


def same(one: StoredOffset, other: StoredOffset) -> bool:
    return (one.offset, one.anchor) == (other.offset, other.anchor)


def unfinished(own: Row, kept: AnchorRows, *, one_numbering: bool = True) -> Goal | None:
    """The goal of a write that was interrupted after it had changed the offset; None if there is none.

    What a rollback puts back is older than what it replaces. ``one_numbering`` as in ``PairedStep.of``.
    """
    if kept.aside is None or kept.aside.stored.offset != own.stored.offset:
        return None
    new, main = kept.aside.stored, kept.main
    if main is None:
        return Goal.of(new)
    old = main.stored
    if old.offset == new.offset and not same(old, new) and not same(own.stored, new):
        # One number in two clusters' numberings: the row may be the old one or the new one. It tells only where it has
        # an anchor of its own, such as a commit's.
        return None
    if same(old, restored := with_lag(new)):
        return Goal(new.offset, restored if is_later(restored, old) else old)
    if one_numbering and is_later(old, new):
        return Goal.restoring(new, main)
    return Goal.of(new)


def followers(goals: Mapping[TopicPartition, Goal], kept: Mapping[TopicPartition, AnchorRows]) -> list[Change]:
    """The changes after which the kept anchors match the goals.

    Also in the time of writing, which is the row's where the job's store keeps none: it shows which row is the later.
    """
    changes = []
    for key, goal in goals.items():
        main = kept.get(key, NOTHING).main
        if goal.anchored is None and main is not None:
            changes.append(Change(key, main.version, None))
        elif goal.anchored is not None and _all_of(main) != _all_of(goal.anchored):
            changes.append(dated(key, version_of(main), goal.anchored))
    return changes


def cleared(
    asides: Mapping[TopicPartition, StoredOffset],
    kept: Mapping[TopicPartition, AnchorRows],
    goals: Mapping[TopicPartition, Goal] = MappingProxyType({}),
) -> list[Change]:
    """The removal of rows laid aside, or what stays there, unless another write has replaced them."""
    changes = []
    for key, mine in asides.items():
        there, goal = kept.get(key, NOTHING).aside, goals.get(key)
        if there is None or not same(there.stored, mine):
            continue
        beside = None if goal is None else goal.beside
        place = aside_of(key)
        changes.append(Change(place, there.version, None) if beside is None else dated(place, there.version, beside))
    return changes


def put_back(steps: Iterable[PairedStep], kept: Mapping[TopicPartition, AnchorRows]) -> list[Change]:
    """The changes after which the rows laid aside are as they were before these steps laid theirs aside.

    A row that was there before is not lost: another writer may rely on it, or the offset of one that was killed. Nor is
    one that came later: it has another time of writing, even if it is the same otherwise.
    """
    changes = []
    for step in steps:
        now, before = kept.get(step.key, NOTHING).aside, step.kept.aside
        if _all_of(now) != _all_of(before) and _all_of(now) == _all_of(step.aside):
            key = aside_of(step.key)
            changes.append(
                Change(key, version_of(now), None) if before is None else dated(key, version_of(now), before.stored)
            )
    return changes


def _all_of(there: Row | StoredOffset | None) -> object:
    stored = there.stored if isinstance(there, Row) else there
    return stored and (stored.offset, stored.anchor, stored.written_at_ms)
