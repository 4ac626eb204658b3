"""Moves over an offset store: killed between any two writes, two at once, lost replies, and rows that others change."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from reconciler.core.anchors import Anchor, Malformed, StoredOffset
from reconciler.core.errors import Changed, OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.failover.outside import nothing_recorded
from reconciler.failover.writing.moves import ATTEMPTS, StorePlace
from reconciler.places.hbase.cdap import CdapStore, LogSaver
from reconciler.places.hbase.cloudera import ClouderaStore
from reconciler.places.hbase.flowlet import Flowlet
from reconciler.places.registry import open_store
from reconciler.places.sqlite.store import SqliteStore
from reconciler.ports import Change, OffsetStore, Row, TopicPartition, Traits, WriteResult
from reconciler.state import journal, moving
from reconciler.state.locations import Location, Phase
from reconciler.state.moving import NewNumber
from reconciler.state.stored import Stored
from tests.places.bare_store import BareStore
from tests.places.hbase.fake_table import FakeTable
from tests.state.test_moving import AFTER, ANA, BEFORE, HOOK, ON_A, ON_B, A, B, Deadly, Killed, World, the_plan

NOW = 1_700_000_000_000
PLAIN = Traits()
KEY = TopicPartition("a.events", 0)
NEW = NewNumber(31, frozenset({None, 40}), Anchor(30, NOW), 2, Stored(40, Anchor(39), 0, 0))


class Mortal:
    """A store whose writes can be the last thing that a process does; ``by_row``: one after the other."""

    def __init__(self, store: OffsetStore, deadly: Deadly, *, by_row: bool) -> None:
        self._store, self._deadly, self._by_row = store, deadly, by_row

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        written: list[TopicPartition] = []
        conflicts: list[TopicPartition] = []
        for part in [[change] for change in changes] if self._by_row else [changes]:
            result = self._deadly.write(lambda part=part: self._store.write(group, part, reason=reason, now_ms=now_ms))
            written += result.written
            conflicts += result.conflicts
        return WriteResult(tuple(written), tuple(conflicts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class StoreWorld(World):
    """The world of ``tests.state.test_moving`` with a store as the place."""

    def __init__(self, store: OffsetStore, *, by_row: bool = False) -> None:
        super().__init__()
        put(store, BEFORE)
        self.store = store
        self.place = place_in(cast(OffsetStore, Mortal(store, self.deadly, by_row=by_row)))  # type: ignore[assignment]

    def job_stores(self, key: TopicPartition, number: int) -> None:
        put(self.store, {key: number})


def place_in(store: OffsetStore, traits: Traits = PLAIN) -> StorePlace:
    return StorePlace(store, "clicks", traits, nothing_recorded("clicks"), "move", lambda: NOW)


def put(store: OffsetStore, numbers: Mapping[TopicPartition, int]) -> None:
    store.create()
    now = {row.key: row.version for row in store.read("clicks")}
    changes = [Change(key, now.get(key), StoredOffset(number)) for key, number in numbers.items()]
    assert len(store.write("clicks", changes, reason="job", now_ms=NOW).written) == len(numbers)


def flowlet() -> CdapStore:
    return CdapStore(cast(Any, FakeTable()), Flowlet(lambda asked: dict.fromkeys(asked, 7)), "hbase:flowlet")


STORES: Mapping[str, Callable[[Path], OffsetStore]] = {
    "memory": lambda _: open_store(f"memory:{uuid.uuid4().hex}"),
    "sqlite": lambda folder: open_store(f"sqlite:///{folder}/offsets.db"),
    "bare": lambda folder: BareStore(f"{folder}/offsets.db"),
    "cloudera": lambda _: ClouderaStore(cast(Any, FakeTable()), "hbase:"),
    "logsaver": lambda _: CdapStore(cast(Any, FakeTable()), LogSaver(100), "hbase:"),
    "flowlet": lambda _: flowlet(),
}


def open_kind(kind: str, request: pytest.FixtureRequest, folder: Path) -> OffsetStore:
    if kind == "postgresql":
        return open_store(f"{request.getfixturevalue('database')}&timeout=60")
    return STORES[kind](folder)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> OffsetStore:
    return STORES[request.param](tmp_path)


# ---------------------------------------------------------------- there, and back


@pytest.mark.parametrize("kind", [*STORES, pytest.param("postgresql", marks=pytest.mark.system)])
def test_a_job_goes_there_and_is_rolled_back_in_every_kind_of_store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    world = StoreWorld(open_kind(kind, request, tmp_path))
    assert world.run().cluster == "b"
    assert world.held(AFTER) == AFTER
    rows = {row.key: row.stored.anchor for row in world.store.read("clicks")}
    anchors = {"memory", "sqlite", "postgresql"}
    expected = {key: Anchor(number - 1) if kind in anchors else None for key, number in AFTER.items()}
    if kind in anchors | {"bare", "cloudera"}:
        assert {key: rows[key] for key in AFTER} == expected
    moving.roll_back(world.job, world.here, ON_A, lambda _: world.place, ANA)
    assert (world.here.cluster, world.here.stay) == ("a", 3)
    assert world.held(BEFORE) == BEFORE


@pytest.mark.parametrize(("kind", "anchor"), [("memory", NEW.record), ("bare", None)])
def test_rows_get_the_new_records_anchor_where_they_have_room(
    kind: str, anchor: Anchor | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, seen = STORES[kind](tmp_path), []
    write = store.write
    monkeypatch.setattr(
        store, "write", lambda group, changes, **more: seen.extend(changes) or write(group, changes, **more)
    )
    place_in(store).replace({KEY: NEW}, lambda: None)
    assert [(each.new, each.stay) for each in seen] == [(StoredOffset(31, anchor), 2)]


# ---------------------------------------------------------------- kills


def finish(world: World) -> Location:
    return world.run()


def cancel(world: World) -> Location:
    return world.cancel()


def roll_back(world: World) -> Location:
    return moving.roll_back(world.job, world.here, ON_A, lambda _: world.place, ANA)


@pytest.mark.parametrize("by_row", [False, True], ids=["at once", "by row"])
@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("act", [finish, cancel, roll_back])
def test_what_is_killed_between_any_two_writes_is_finished_by_the_next_run(
    act: Callable[[World], Location], before: bool, by_row: bool, store: OffsetStore
) -> None:
    writes = 0
    while killed_at(writes, act, before, StoreWorld(reset(store), by_row=by_row)):
        writes += 1
    assert writes >= 5  # plan, writing, journal, numbers, lives


def killed_at(writes: int, act: Callable[[World], Location], before: bool, world: StoreWorld) -> bool:
    """Kill the act at that write, and finish it. False if it has no so many writes."""
    if act is roll_back:
        world.run()
    if act is cancel:  # half of the numbers are written
        world.deadly.left, world.deadly.before = 4, True
        with pytest.raises(Killed):
            world.run()
    world.deadly.left, world.deadly.before = writes, before
    try:
        act(world)
        was_killed = False
    except Killed:
        was_killed = True
    world.deadly.left = None
    if not (act is roll_back and world.here.phase is Phase.LIVES and world.here.cluster == "b"):
        if act is cancel and world.here.to == "b":
            world.cancel()
        world.run()
        cluster, numbers = ("b", AFTER) if act is finish else ("a", BEFORE)
        assert (world.here.phase, world.here.cluster) == (Phase.LIVES, cluster)
        assert world.held(numbers) == numbers
        if act is finish:
            assert [each.closed_by for each in world.job.journal(1)] == [3], "the stay that was left is ended once"
            begun = journal.latest(world.job.journal(world.here.stay))
            assert {at: known.number for at, known in begun.items()} == {A: AFTER[ON_B[A]], B: AFTER[ON_B[B]]}
    return was_killed


def reset(store: OffsetStore) -> OffsetStore:
    """The store without rows."""
    if isinstance(store, SqliteStore):
        Path(store._path).unlink(missing_ok=True)
    else:
        store._shared.rows.clear()  # type: ignore[attr-defined]
    store.create()
    return store


# ---------------------------------------------------------------- two at once


class Meeting(Deadly):
    """Another run comes in before one of the writes, and does all that it does."""

    def __init__(self, at: int, other: Callable[[], None]) -> None:
        super().__init__()
        self.at, self.other = at, other

    def write(self, act: Callable[[], Any]) -> Any:
        self.at -= 1
        if self.at == -1:
            self.other()
        return act()


@pytest.mark.parametrize("by_row", [False, True], ids=["at once", "by row"])
@pytest.mark.parametrize("other_act", [finish, cancel])
def test_of_two_runs_at_once_one_is_done_and_the_other_refused(
    other_act: Callable[[World], Location], by_row: bool, store: OffsetStore
) -> None:
    met = at = 0
    while met == at:
        world = StoreWorld(reset(store), by_row=by_row)
        here = moving.begin(world.job, world.here, the_plan(), lambda _, world=world: world.place, HOOK)
        others: list[Location] = []
        deadly = Meeting(at, lambda world=world, others=others: others.append(other_act(world)))
        first = place_in(cast(OffsetStore, Mortal(world.store, deadly, by_row=by_row)))
        try:
            moving.finish(world.job, here, lambda _, first=first: first, HOOK)
            assert not others
        except (Changed, OutcomeUnknown):
            assert others
        is_there = other_act is finish or not others
        assert world.here.cluster == ("b" if is_there else "a")
        if is_there:
            assert world.held(AFTER) == AFTER
        else:  # a number that comes after the cancel is one that its plan knows
            rows = world.job.plan(world.here.plan or 0).rows.values()
            held = world.held(BEFORE)
            assert all(held[each.key] in {each.row.number, *each.row.replaced} for each in rows)
        at += 1
        met += len(others)
    assert met == (2 if by_row else 1)


def test_a_run_that_was_held_up_finds_the_number_of_a_started_job_and_leaves_it(store: OffsetStore) -> None:
    world = StoreWorld(store)
    held_up = moving.begin(world.job, world.here, the_plan(), lambda _: world.place, HOOK)
    world.run()
    world.job_stores(ON_B[B], BEFORE[ON_A[A]])  # the job's own on b, and equal to what the plan replaced there
    with pytest.raises(Changed, match="finished this"):
        moving.finish(world.job, held_up, lambda _: world.place, HOOK)
    assert world.held([ON_B[B]]) == {ON_B[B]: BEFORE[ON_A[A]]}


def test_a_number_that_a_started_job_stores_between_check_and_write_stays(store: OffsetStore) -> None:
    world = StoreWorld(store)
    held_up = moving.begin(world.job, world.here, the_plan(), lambda _: world.place, HOOK)

    def job_starts() -> None:
        world.run()
        world.job_stores(ON_B[B], BEFORE[ON_A[A]])

    late = place_in(cast(OffsetStore, Mortal(store, Meeting(0, job_starts), by_row=False)))
    with pytest.raises(Changed, match="finished this"):
        moving.finish(world.job, held_up, lambda _: late, HOOK)
    assert world.held([ON_B[B]]) == {ON_B[B]: BEFORE[ON_A[A]]}


# ---------------------------------------------------------------- lost replies


class Failing:
    """A store whose first write raises: before it is done, or after."""

    def __init__(self, store: OffsetStore, error: ReconcilerError, *, after: bool, reads: bool = True) -> None:
        self._store, self._error, self._after, self._reads, self._failed = store, error, after, reads, False

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        if self._failed:
            return self._store.write(group, changes, reason=reason, now_ms=now_ms)
        self._failed = True
        if self._after:
            self._store.write(group, changes, reason=reason, now_ms=now_ms)
        raise self._error

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        if self._failed and not self._reads:
            raise Unreachable("The store is down.")
        return self._store.read(group, topics)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def failing(store: OffsetStore, error: ReconcilerError, **how: bool) -> StorePlace:
    return place_in(cast(OffsetStore, Failing(store, error, **how)))  # type: ignore[arg-type]


def test_a_lost_reply_is_decided_by_reading_back(store: OffsetStore) -> None:
    put(store, {KEY: 40})
    failing(store, OutcomeUnknown("no answer"), after=True).replace({KEY: NEW}, lambda: None)
    assert [row.stored.offset for row in store.read("clicks")] == [31]


@pytest.mark.parametrize("reads", [True, False])
def test_a_write_that_may_still_come_is_unknown_and_finished_by_the_same_call(store: OffsetStore, reads: bool) -> None:
    put(store, {KEY: 40})
    place = failing(store, OutcomeUnknown("no answer"), after=not reads, reads=reads)
    with pytest.raises(OutcomeUnknown, match="no answer"):
        place.replace({KEY: NEW}, lambda: None)
    place_in(store).replace({KEY: NEW}, lambda: None)
    assert [row.stored.offset for row in store.read("clicks")] == [31]


def test_a_store_that_refuses_has_written_nothing(store: OffsetStore) -> None:
    put(store, {KEY: 40})
    with pytest.raises(Refused, match="live members"):
        failing(store, Refused("live members"), after=False).replace({KEY: NEW}, lambda: None)


# ---------------------------------------------------------------- rows that others change


def test_a_number_that_the_plan_does_not_know_is_left_and_shown_with_the_plans(store: OffsetStore) -> None:
    put(store, {KEY: 1099})
    with pytest.raises(Changed) as raised:
        place_in(store).replace({KEY: NEW}, lambda: None)
    assert 'a.events-0 of job "clicks" holds offset 1,099' in str(raised.value)
    assert "The plan of stay 2 replaces no offset or offset 40 by offset 31." in str(raised.value)
    assert [row.stored.offset for row in store.read("clicks")] == [1099]


def test_nothing_is_written_of_a_move_with_one_number_that_the_plan_does_not_know(store: OffsetStore) -> None:
    put(store, {KEY: 40, TopicPartition("a.events", 1): 99})
    with pytest.raises(Changed):
        place_in(store).replace({KEY: NEW, TopicPartition("a.events", 1): NEW}, lambda: None)
    assert [row.stored.offset for row in store.read("clicks")] == [40, 99]


def test_a_number_that_changes_after_others_were_written_leaves_the_outcome_unknown() -> None:
    store, second = STORES["memory"](Path()), TopicPartition("a.events", 1)
    put(store, {KEY: 40, second: 40})
    by_row = Mortal(store, Meeting(1, lambda: put(store, {second: 99})), by_row=True)
    with pytest.raises(OutcomeUnknown, match="holds offset 99"):
        place_in(cast(OffsetStore, by_row)).replace({KEY: NEW, second: NEW}, lambda: None)


class Restless(Mortal):
    """Another program writes the same numbers again, right before each write."""

    def __init__(self, store: OffsetStore, times: int) -> None:
        super().__init__(store, Deadly(), by_row=False)
        self._times = times

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        self._times -= 1
        if self._times >= 0:
            put(self._store, {KEY: 40})
        return super().write(group, changes, reason=reason, now_ms=now_ms)


def test_a_row_that_is_written_again_with_the_same_number_is_replaced(store: OffsetStore) -> None:
    put(store, {KEY: 40})
    place_in(cast(OffsetStore, Restless(store, ATTEMPTS - 2))).replace({KEY: NEW}, lambda: None)
    assert [row.stored.offset for row in store.read("clicks")] == [31]


def test_a_row_that_never_rests_is_left(store: OffsetStore) -> None:
    put(store, {KEY: 40})
    with pytest.raises(Changed, match="changed each of 5 times"):
        place_in(cast(OffsetStore, Restless(store, 99))).replace({KEY: NEW}, lambda: None)


def test_a_mirrors_number_in_a_group_is_written_over(store: OffsetStore) -> None:
    put(store, {KEY: 77})
    place_in(store, Traits(holds_commits=True)).replace({KEY: NEW}, lambda: None)
    assert [row.stored.offset for row in store.read("clicks")] == [31]


def test_a_place_that_only_its_job_writes_is_left_as_it_is(store: OffsetStore) -> None:
    put(store, {KEY: 77})
    place_in(store, Traits(corrected_by_job=True)).replace({KEY: NEW}, lambda: None)
    assert [row.stored.offset for row in store.read("clicks")] == [77]


def test_a_number_that_is_there_already_is_not_written_again(store: OffsetStore) -> None:
    place_in(store).replace({KEY: NEW}, lambda: None)
    before = store.read("clicks")
    place_in(store).replace({KEY: NEW}, lambda: pytest.fail("about to write"))
    assert store.read("clicks") == before


def test_a_sentinel_is_no_number(store: OffsetStore) -> None:
    put(store, {KEY: -1})
    assert place_in(store).read([KEY]) == {}
    place_in(store).replace({KEY: NEW}, lambda: None)
    assert [row.stored.offset for row in store.read("clicks")] == [31]


def test_the_first_write_makes_a_store_that_does_not_exist(tmp_path: Path) -> None:
    store = STORES["sqlite"](tmp_path)
    assert place_in(store).read([KEY]) == {}
    place_in(store).replace({KEY: NEW}, lambda: None)
    assert [row.stored.offset for row in store.read("clicks")] == [31]


@pytest.mark.parametrize("partition", [0, -1])
def test_a_row_that_cannot_be_read_is_not_written_over(partition: int) -> None:
    class Damaged:
        address = "table:"

        def read(self, group: str, topics: object = None) -> list[Row]:
            return [Row(TopicPartition("a.events", partition), Malformed("It is damaged.", "Correct it."), "v")]

    place = place_in(cast(OffsetStore, Damaged()))
    with pytest.raises(Changed, match="It is damaged"):
        place.replace({KEY: NEW}, lambda: None)
    with pytest.raises(Refused, match="It is damaged"):
        place.read([KEY])
