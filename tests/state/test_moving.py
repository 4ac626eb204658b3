"""Moves, cancels and rollbacks over a store and a place in memory: killed at every write, and finished."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from reconciler.core.anchors import Anchor
from reconciler.core.errors import Changed, NeedsPerson
from reconciler.ports import TopicPartition
from reconciler.state import locations, moving
from reconciler.state.jobs import JobState
from reconciler.state.journal import StreamPartition
from reconciler.state.locations import Location, Phase, Stamp
from reconciler.state.moving import NewNumber
from reconciler.state.plans import Numbers, Planned
from reconciler.state.store import StateStore, open_state
from reconciler.state.stored import Found, PlanRow, Stored

HOOK = Stamp("hook", lambda: 1)
ANA = Stamp("ana", lambda: 2)
A, B = StreamPartition("events", "a", 0), StreamPartition("events", "b", 0)
ON_A = {A: TopicPartition("events", 0), B: TopicPartition("b.events", 0)}
ON_B = {A: TopicPartition("a.events", 0), B: TopicPartition("events", 0)}
BEFORE = {ON_A[A]: 40, ON_A[B]: 7}
AFTER = {ON_B[A]: 31, ON_B[B]: 12}


class Killed(BaseException):
    """The process is gone."""


class Deadly:
    """Counts writes, and kills at the one that is given: ``before`` it is made, or after."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.before = False

    def write(self, act: Callable[[], Any]) -> Any:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                if not self.before:
                    act()
                self.left = None
                raise Killed
        return act()


class Rows:
    """A place whose rows are replaced one by one; both clusters' names are keys of it."""

    def __init__(self, deadly: Deadly) -> None:
        self.rows = dict(BEFORE)
        self.of_stay: int | None = None
        self._deadly = deadly

    def read(self, keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, Found]:
        return {key: Found(self.rows[key], self.of_stay) for key in keys if key in self.rows}

    def check(self, numbers: Mapping[TopicPartition, NewNumber]) -> None:
        for key, new in numbers.items():
            held = self.rows.get(key)
            if held != new.number and held not in new.replaced:
                raise Changed(f"{key} holds {held}.")

    def replace(self, numbers: Mapping[TopicPartition, NewNumber], still_writing: Callable[[], None]) -> None:
        still_writing()
        for key, new in numbers.items():
            self.check({key: new})
            self._deadly.write(lambda key=key, new=new: self.rows.__setitem__(key, new.number))


class World:
    def __init__(self) -> None:
        self.deadly = Deadly()
        store = open_state(f"memory:{uuid.uuid4().hex}")
        store.create()
        self.job = JobState(_Mortal(store, self.deadly), "clicks")  # type: ignore[arg-type]
        self.place = Rows(self.deadly)
        home = self.job.move_on(None, locations.first("a", ANA))
        self.job.move_on(home, locations.moving(home, "b", ANA))

    def run(self) -> Location:
        """A hook: it begins the move, or finishes what another run began."""
        here = self.here
        if here.phase is Phase.MOVING:
            here = moving.begin(self.job, here, the_plan(), lambda _: self.place, HOOK)
        if here.phase is Phase.WRITING:
            here = moving.finish(self.job, here, lambda _: self.place, HOOK)
        return here

    def cancel(self) -> Location:
        return moving.cancel(self.job, self.here, ON_A, lambda _: self.place, ANA)

    @property
    def here(self) -> Location:
        found = self.job.location()
        assert found is not None
        return found

    def held(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return {key: found.number for key, found in self.place.read(keys).items()}


class _Mortal:
    """A state store whose appends can be the last thing that a process does."""

    def __init__(self, store: StateStore, deadly: Deadly) -> None:
        self._store, self._deadly = store, deadly

    def append(self, log: str, number: int, fields: Mapping[str, Any]) -> bool:
        return bool(self._deadly.write(lambda: self._store.append(log, number, fields)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def the_plan() -> Numbers:
    def row(at: StreamPartition) -> Planned:
        left = Stored(BEFORE[ON_A[at]], Anchor(BEFORE[ON_A[at]] - 1), 0, 0)
        number = AFTER[ON_B[at]]
        return Planned(ON_B[at], PlanRow(number, Anchor(number - 1), 0, 0, frozenset({BEFORE.get(ON_B[at])}), left))

    return Numbers("a", 1, "b", {A: row(A), B: row(B)})


WRITES = [(count, before) for count in range(8) for before in (True, False)]
"""Plan, writing, the journal's end, the next one's start (twice), two rows, lives."""


@pytest.mark.parametrize(("count", "before"), WRITES)
def test_a_move_that_was_killed_at_any_write_can_be_cancelled(count: int, before: bool) -> None:
    world = World()
    world.deadly.left, world.deadly.before = count, before
    with pytest.raises(Killed):
        world.run()
    if world.here.phase is Phase.LIVES:
        here = moving.roll_back(world.job, world.here, ON_A, lambda _: world.place, ANA)
    else:
        here = world.cancel()
    assert (here.phase, here.cluster) == (Phase.LIVES, "a")
    assert world.held(BEFORE) == BEFORE


def test_a_hook_that_writes_late_does_not_start_the_job() -> None:
    world = World()
    begun = moving.begin(world.job, world.here, the_plan(), lambda _: world.place, HOOK)
    world.cancel()
    replace = world.place.replace
    world.place.replace = lambda numbers, _: replace(numbers, lambda: None)  # type: ignore[method-assign]
    with pytest.raises(Changed, match="moved the job"):  # held up right after the check
        moving.finish(world.job, begun, lambda _: world.place, HOOK)
    assert world.here.cluster == "a"
    last = world.job.plan(world.here.plan or 0)
    late = world.held(BEFORE)[ON_A[A]]
    assert late in {last.rows[A].row.number, *last.rows[A].row.replaced}


def test_each_entry_has_the_time_at_which_it_is_written() -> None:
    """A hook may wait for hours between its begin and the move."""
    world, clock = World(), iter(range(100, 200))
    world.place.replace = lambda *_: next(clock) and None  # type: ignore[method-assign]
    hook = Stamp("hook", lambda: next(clock))
    writing = moving.begin(world.job, world.here, the_plan(), lambda _: world.place, hook)
    lives = moving.finish(world.job, writing, lambda _: world.place, hook)
    assert (writing.at_ms, lives.at_ms) == (100, 104)


def test_two_hooks_at_once_begin_one_move() -> None:
    world = World()
    here = world.here
    moving.begin(world.job, here, the_plan(), lambda _: world.place, HOOK)
    with pytest.raises(Changed):
        moving.begin(world.job, here, the_plan(), lambda _: world.place, HOOK)
    assert world.run().cluster == "b"


def test_a_row_that_changed_since_the_plan_stops_the_move_until_it_is_cancelled() -> None:
    world = World()
    moving.begin(world.job, world.here, the_plan(), lambda _: world.place, HOOK)
    world.place.rows[ON_B[A]] = 99
    with pytest.raises(Changed):
        world.run()
    assert world.here.phase is Phase.WRITING
    assert world.cancel().cluster == "a"
    assert world.held(BEFORE) == BEFORE


def test_a_move_does_not_begin_with_a_plan_that_the_place_has_passed() -> None:
    world = World()
    world.place.rows[ON_B[B]] = 41  # a's driver still runs, and stores under the name that b's topic has, too
    with pytest.raises(Changed, match="holds 41"):
        world.run()
    assert world.here.phase is Phase.MOVING


def test_a_number_of_a_later_stay_shows_an_old_state_store() -> None:
    world = World()
    world.place.of_stay = 2
    with pytest.raises(NeedsPerson, match="was stored in stay 2, and the newest location"):
        world.run()
    assert world.here.phase is Phase.MOVING


def test_what_is_not_under_way_is_neither_finished_cancelled_nor_rolled_back() -> None:
    world = World()
    moving_there = world.here
    with pytest.raises(Changed, match="are not being written"):
        moving.finish(world.job, moving_there, lambda _: world.place, HOOK)
    with pytest.raises(Changed, match="nothing to roll back"):
        moving.roll_back(world.job, moving_there, ON_A, lambda _: world.place, ANA)
    world.run()
    with pytest.raises(Changed, match="is not moving"):
        world.cancel()
    with pytest.raises(Changed, match="was moved just now"):
        moving.refuse_later(world.job, moving_there, {ON_A[A]: 9})
