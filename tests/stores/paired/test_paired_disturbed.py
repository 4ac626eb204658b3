"""Two stores written as one: kills at every step, refusals, lost answers, and other writers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, OutcomeUnknown, Refused, Unreachable
from reconciler.ports import Change, Row
from reconciler.stores.paired.store import PairedStore
from tests.stores.paired.bare import BareStore, Faults, Killed
from tests.stores.paired.pairs import GROUP, KEY, NOW, OTHER, Pair, made_for, named


@pytest.fixture
def both() -> Pair:
    return Pair()


# ---------------------------------------------------------------- killed between any two writes

CASES: dict[str, tuple[StoredOffset | None, StoredOffset | None, StoredOffset | None]] = {
    # what the job has stored with what is kept for it; and what is to be written
    "to smaller numbers of another cluster": (made_for(50), made_for(50), made_for(30, "b")),
    "to larger numbers of another cluster": (made_for(50), made_for(50), made_for(80, "b")),
    "to the same number of another cluster": (made_for(50), made_for(50), made_for(50, "b")),
    "from a lagging pair": (StoredOffset(60), made_for(50), made_for(30, "b")),
    "from a pair that does not belong together": (StoredOffset(40), made_for(50), made_for(30, "b")),
    "from a row without an anchor": (StoredOffset(50), None, made_for(30, "b")),
    "on in the same numbers": (made_for(50, "b"), made_for(50, "b"), made_for(70, "b")),
    "back in the same numbers": (made_for(50, "b"), made_for(50, "b"), made_for(30, "b")),
    "a row that was not there": (None, None, made_for(30, "b")),
    "back to a row without an anchor": (made_for(30, "b"), made_for(30, "b"), StoredOffset(50)),
    "back to a row with an older anchor": (
        made_for(30, "b"),
        made_for(30, "b"),
        replace(made_for(50), written_at_ms=1),
    ),
    "back to smaller numbers": (made_for(50, "b"), made_for(50, "b"), replace(made_for(30), written_at_ms=1)),
    "deleting": (made_for(30, "b"), made_for(30, "b"), None),
}


def prepared(case: str) -> tuple[Pair, StoredOffset | None]:
    own, kept, new = CASES[case]
    both = Pair()
    both.job_stores(own.offset if own else None)
    both.keep(kept)
    return both, new


def die() -> None:
    raise Killed


def killed_at_every_write(case: str) -> list[tuple[Pair, bool]]:
    """The stores after a write killed before and after each of its steps; True once X' is written."""
    found = []
    for number in range(1, 9):
        for moment in ("before", "after"):
            both, new = prepared(case)
            dying = Faults(at=number, **{moment: die})
            try:
                both.write(new, both.another(dying))
            except Killed:
                done = dying.calls[:-1] if moment == "before" else dying.calls
                found.append((both, "bare" in done))
    assert len(found) >= 4
    assert {written for _, written in found} == {True, False}
    return found


@pytest.mark.parametrize("case", CASES)
def test_after_a_kill_a_row_reads_as_before_or_as_intended(case: str) -> None:
    """An anchor that lagged may lose its numbering: the job may have continued to this offset from the new one."""
    before, new = prepared(case)
    old = before.believed()
    allowed = {old, named(new)}
    if case == "from a lagging pair":
        assert old is not None
        assert old[1] is not None
        allowed.add((old[0], (old[1][0], None)))
    for both, _ in killed_at_every_write(case):
        assert both.believed() in allowed


@pytest.mark.parametrize("case", CASES)
def test_after_a_kill_the_second_run_finishes(case: str) -> None:
    for both, _ in killed_at_every_write(case):
        _, new = prepared(case)
        if both.believed() != named(new):
            assert both.write(new)
        assert both.believed() == named(new)
        assert not both.left_aside
        kept = [row.stored for row in both.anchors.read(GROUP)]
        assert kept == ([new] if new and new.anchor else [])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("step", [-3, 3])
def test_a_job_that_continues_after_a_kill_never_gets_an_anchor_of_another_numbering(case: str, step: int) -> None:
    """An anchor with a numbering says that the offset is in it: it must be the one that the job counts in."""
    own, kept, new = CASES[case]
    for both, written in killed_at_every_write(case):
        last = new if written else own
        if last is None:
            continue
        both.job_stores(last.offset + step)
        counts_in = (_cluster(new) if written else _cluster(own) or _cluster(kept)) or "a"
        believed = both.believed()
        assert believed is not None
        if believed[1] is not None:
            assert believed[1][1] in (None, counts_in)


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("back to")])
def test_a_job_that_continues_after_a_killed_rollback_is_not_proven_by_what_the_rollback_replaces(
    case: str, written: bool
) -> None:
    own, _, new = CASES[case]
    assert own is not None
    assert new is not None
    both, _ = prepared(case)
    with pytest.raises(Killed):
        both.write(new, both.another(Faults(at=2, **{"after" if written else "before": die})))
    both.job_stores(max(own.offset, new.offset) + 7)
    row = both.row()
    assert row is not None
    assert row.stored.anchor is not None
    assert row.stored.anchor == replace(new.anchor or Anchor(), cluster_id=None, topic_id=None)
    assert row.anchor_lag == max(own.offset, new.offset) + 7 - min(own.offset, new.offset)


def _cluster(stored: StoredOffset | None) -> str | None:
    return stored.anchor.cluster_id if stored and stored.anchor else None


# ---------------------------------------------------------------- errors


def raising(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize("error", [Unreachable("It is away."), Refused("It said no.")])
def test_if_the_bare_store_refuses_nothing_is_written(both: Pair, error: Exception) -> None:
    both.write(made_for(50))
    before = both.row()
    with pytest.raises(type(error), match=str(error)):
        both.write(made_for(30, "b"), both.another(Faults(at=2, before=raising(error))))
    assert both.row() == before
    assert not both.left_aside


@pytest.mark.parametrize("error", [Unreachable("It is away."), OutcomeUnknown("The answer got lost.")])
def test_if_the_anchor_store_fails_first_the_offsets_stay(both: Pair, error: Exception) -> None:
    both.write(made_for(50))
    with pytest.raises(Unreachable, match=r"The \[anchors\] store: "):
        both.write(made_for(30, "b"), both.another(Faults(at=1, before=raising(error))))
    assert both.believed() == (50, (49, "a"))
    assert [row.stored.offset for row in both.bare.read(GROUP)] == [50]


@pytest.mark.parametrize("error", [Unreachable("It is away."), Changed("Its topic is gone.")])
def test_if_the_anchor_store_fails_last_the_outcome_is_unknown_and_the_next_read_finishes(
    both: Pair, error: Exception
) -> None:
    both.write(made_for(50))
    away = raising(error)
    with pytest.raises(OutcomeUnknown, match="but not all of their anchors"):
        both.write(made_for(30, "b"), both.another(Faults(at=3, before=away)))
    assert both.believed() == (30, (29, "b"))
    assert not both.left_aside


@pytest.mark.parametrize("atomic", [True, False])
def test_a_job_that_stores_during_a_write_wins(atomic: bool) -> None:
    both = Pair(atomic=atomic)
    both.write(made_for(50))
    both.job_stores(7, OTHER)
    rows = {row.key: row for row in both.store.read(GROUP)}
    changes = [Change(KEY, rows[KEY].version, made_for(30, "b")), Change(OTHER, rows[OTHER].version, made_for(3, "b"))]
    midst = both.another(Faults(at=2, before=lambda: both.job_stores(60)))
    result = midst.write(GROUP, changes, reason="test", now_ms=NOW)
    assert result.conflicts == (KEY,), "the other row is as it was expected"
    assert result.written == (() if atomic else (OTHER,))
    assert both.believed() == (60, (49, "a"))
    other = both.row(OTHER)
    assert other is not None
    assert named(other.stored) == ((7, None) if atomic else (3, (2, "b")))
    assert not both.left_aside


def test_a_third_writers_row_does_not_get_this_writes_anchor(both: Pair) -> None:
    both.write(made_for(50))
    midst = both.another(Faults(at=2, after=lambda: both.write(made_for(90))))
    both.write(made_for(30, "b"), midst)
    assert both.believed() == (90, (89, "a"))
    assert not both.left_aside


@pytest.mark.parametrize("new", [made_for(30, "b"), made_for(80, "b")])
def test_a_write_between_the_two_reads_is_not_read_in_part(both: Pair, new: StoredOffset) -> None:
    both.write(made_for(50))

    class Interrupted(BareStore):
        times = 0

        def read(self, group: str, topics: object = None) -> list[Row]:
            found = both.bare.read(group)
            self.times += 1
            if self.times == 1:
                both.write(new)
            return found

    (row,) = PairedStore(Interrupted("unused"), both.anchors).read(GROUP)
    assert named(row.stored) == named(new)
