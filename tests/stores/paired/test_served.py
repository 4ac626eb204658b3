"""A store that keeps anchors, with the [anchors] store for those of its rows that have none."""

from __future__ import annotations

import uuid

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Unreachable
from reconciler.ports import Change, OffsetStore, WriteResult
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired import ServedStore
from reconciler.stores.registry import open_store
from tests.stores.paired.bare import Killed
from tests.stores.paired.pairs import GROUP, KEY, NOW, OTHER, anchor, made_for


class Served:
    """The two stores, and whether the second was needed."""

    def __init__(self) -> None:
        name = uuid.uuid4().hex
        self.own, self.anchors = MemoryStore(f"{name}-own"), MemoryStore(f"{name}-anchors")
        self.opened = 0
        self.store = ServedStore(self.own, self.open_anchors)

    def open_anchors(self) -> OffsetStore:
        self.opened += 1
        return self.anchors

    def put(self, store: MemoryStore, rows: dict[object, StoredOffset]) -> None:
        there = {row.key: row.version for row in store.read(GROUP)}
        changes = [Change(key, there.get(key), stored) for key, stored in rows.items()]  # type: ignore[arg-type]
        assert store.write(GROUP, changes, reason="test", now_ms=NOW).written

    def rows(self) -> dict[object, tuple[int, object]]:
        return {row.key: (row.stored.offset, row.stored.anchor) for row in self.store.read(GROUP)}

    def write(self, new: StoredOffset | None, *, restores: bool = False) -> None:
        versions = {row.key: row.version for row in self.store.read(GROUP)}
        change = Change(KEY, versions.get(KEY), new, restores=restores)
        assert self.store.write(GROUP, [change], reason="apply", now_ms=NOW).written == (KEY,)

    @property
    def kept(self) -> list[StoredOffset]:
        return [row.stored for row in self.anchors.read(GROUP)]


@pytest.fixture
def both() -> Served:
    return Served()


def test_a_row_without_an_anchor_has_the_one_that_was_kept_for_it(both: Served) -> None:
    both.put(both.own, {KEY: StoredOffset(50), OTHER: made_for(30)})
    both.put(both.anchors, {KEY: made_for(50, record=41), OTHER: made_for(20)})
    assert both.rows() == {KEY: (50, anchor(41)), OTHER: (30, anchor(29))}


def test_rows_with_anchors_of_their_own_do_not_need_the_other_store(both: Served) -> None:
    both.put(both.own, {KEY: made_for(50), OTHER: StoredOffset(-1)})
    assert both.rows()[KEY] == (50, anchor(49))
    both.write(made_for(60))
    assert both.opened == 0


def test_a_bare_row_is_changed_together_with_what_is_kept_for_it(both: Served) -> None:
    both.put(both.own, {KEY: StoredOffset(50)})
    both.put(both.anchors, {KEY: made_for(50)})
    both.write(made_for(7, "b"))
    assert both.rows() == {KEY: (7, anchor(6, "b"))}
    (kept,) = both.anchors.read(GROUP)
    assert (kept.stored.offset, kept.stored.anchor) == (7, anchor(6, "b"))
    both.put(both.own, {KEY: StoredOffset(9)})  # the job goes on, and writes bare offsets
    assert both.rows() == {KEY: (9, anchor(6, "b"))}


def test_a_rollback_puts_back_what_was_kept(both: Served) -> None:
    both.put(both.own, {KEY: StoredOffset(50)})
    both.put(both.anchors, {KEY: made_for(50)})
    (before,) = both.store.read(GROUP)
    both.write(made_for(7, "b"))
    both.write(before.stored, restores=True)
    assert (both.rows(), both.kept) == ({KEY: (50, anchor(49))}, [made_for(50)])
    both.put(both.own, {KEY: StoredOffset(53)})  # the job goes on at the source
    assert both.rows() == {KEY: (53, anchor(49))}


def test_a_failback_changes_what_is_kept_though_the_row_has_an_anchor_of_its_own(both: Served) -> None:
    both.put(both.own, {KEY: StoredOffset(50)})
    both.put(both.anchors, {KEY: made_for(50)})
    both.write(made_for(7, "b"))
    both.write(made_for(50))  # back, without a start of the job
    assert both.kept == [made_for(50)]
    both.put(both.own, {KEY: StoredOffset(53)})
    assert both.rows() == {KEY: (53, anchor(49))}


def test_the_job_goes_on_after_a_rollback_that_was_killed_between_the_two_stores(both: Served) -> None:
    both.put(both.own, {KEY: StoredOffset(50)})
    both.put(both.anchors, {KEY: made_for(50)})
    both.write(made_for(7, "b"))

    class Dying(MemoryStore):
        def write(self, *given: object, **more: object) -> WriteResult:
            both.own.write(*given, **more)  # type: ignore[arg-type]
            raise Killed

    (row,) = both.store.read(GROUP)
    change = Change(KEY, row.version, made_for(50), restores=True)
    dying = Dying(both.own.address.removeprefix("memory:"))
    with pytest.raises(Killed):
        ServedStore(dying, both.open_anchors).write(GROUP, [change], reason="rollback", now_ms=NOW)
    assert both.rows() == {KEY: (50, anchor(49))}
    both.put(both.own, {KEY: StoredOffset(53)})
    ((offset, found),) = both.rows().values()
    assert (offset, found.cluster_id) == (53, None)  # type: ignore[attr-defined]


def test_a_correction_does_not_wait_for_a_store_of_anchors_that_is_away_but_a_rollback_does(
    both: Served, caplog: pytest.LogCaptureFixture
) -> None:
    def away() -> OffsetStore:
        raise Unreachable("It is away.")

    store = ServedStore(both.own, away)
    both.put(both.own, {KEY: made_for(50)})
    (row,) = store.read(GROUP)
    assert store.write(GROUP, [Change(KEY, row.version, made_for(7, "b"))], reason="apply", now_ms=NOW).written
    assert "It is away. Anchors that it keeps for group 'readers' are not corrected." in caplog.text
    (row,) = store.read(GROUP)
    with pytest.raises(Unreachable):
        store.write(GROUP, [Change(KEY, row.version, made_for(50), restores=True)], reason="rollback", now_ms=NOW)
    assert store.read(GROUP) == [row]


def test_a_store_that_is_opened_with_anchors_serves_its_bare_rows() -> None:
    name = uuid.uuid4().hex
    own, kept = MemoryStore(f"{name}-own"), MemoryStore(f"{name}-kept")
    own.write(GROUP, [Change(KEY, None, StoredOffset(50))], reason="job", now_ms=NOW)
    kept.write(GROUP, [Change(KEY, None, made_for(50))], reason="track", now_ms=NOW)
    (row,) = open_store(own.address, anchors=kept.address).read(GROUP)
    assert row.stored.anchor == anchor(49)
    assert isinstance(open_store(own.address, anchors=own.address), MemoryStore)
