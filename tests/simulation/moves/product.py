"""The product's functions in place of the model's own: a place is read by ``recorded``, and written by ``StorePlace``.

Each reading and writing is also compared with the model's: the same numbers, a decision, or a refusal. The rows are
those of a memory store, which is made as the model's place is, before each call.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from reconciler.config.settings import Job
from reconciler.config.streams import Naming
from reconciler.config.streams import Stream as Topic
from reconciler.core.anchors import Anchor, Identity, StoredOffset
from reconciler.core.errors import Changed, Refused, Unreachable
from reconciler.core.question import TopicPolicy
from reconciler.failover.checking.recorded import Gathered, JobPlace, Recorded, ends, judge, names_shared
from reconciler.failover.outside import nothing_recorded
from reconciler.failover.writing.moves import StorePlace
from reconciler.places.memory import MemoryStore
from reconciler.ports import Change, TopicPartition, Traits, WriteResult
from reconciler.ports import Row as StoredRow
from reconciler.state import plans
from reconciler.state.journal import Entry, StreamPartition, closing
from reconciler.state.locations import Location as Recording
from reconciler.state.locations import Phase
from reconciler.state.moving import NewNumber
from reconciler.state.plans import Numbers, Planned
from reconciler.state.stored import Known, PlanRow, Stored
from tests.simulation.moves import reading, steps
from tests.simulation.moves.reading import journal_of, plan_of
from tests.simulation.moves.world import (
    CLOSING,
    Hook,
    Location,
    Log,
    Names,
    Number,
    Place,
    Plan,
    Row,
    State,
    Stream,
    World,
    end,
    place_key,
    put,
)
from tests.simulation.moves.world import Entry as ModelEntry

TOPICS = {"A": Topic("events", "a"), "B": Topic("events", "b")}
TRAITS = {
    Place.GROUP: Traits(holds_commits=True),
    Place.JOB_ONLY: Traits(corrected_by_job=True),
    Place.CHECKPOINT: Traits(corrected_in_copy=True),
}
JOB = Job("clicks", "clicks", (), "memory:", Identity(timestamp_of=lambda record: record.timestamp_ms))
RENAMED = replace(JOB, groups={"a": "clicks", "b": "a.clicks", "c": "a.clicks"})
_names = itertools.count()


def install(patch: pytest.MonkeyPatch) -> None:
    """Let the model run on the product's functions."""
    product = _Product()
    patch.setattr(reading, "_memory", reading.Memory())
    patch.setattr(reading, "read", product.read_stream)
    patch.setattr(reading, "read_end", product.read_end)
    patch.setattr(steps, "give_back", product.give_back)
    patch.setattr(steps, "_write", product.write)
    patch.setattr(steps, "_may_replace", product.may_replace)


class _Product:
    def __init__(self) -> None:
        self._store = _Rows(f"model-{next(_names)}")
        self._reads, self._writes, self._may_replace = reading.read, steps._write, steps._may_replace
        self._ends, self._memory = reading.read_end, reading.Memory()

    def read_stream(self, world: World, state: State, location: Location, stream: Stream) -> Stored[int] | None:
        expected = self._reads(world, state, location, stream)
        # Gathering refuses numbers of a later stay, and a copy is checked by its folder.
        later = any(each.stay > reading.newest_stay(state, location) for _, each in state.place)
        is_old = expected is None and later and (world.marked or world.place is Place.CHECKPOINT)
        if location.state == "writing" or world.fault in ("A2", "A9", "A10", "A11") or is_old:
            return expected
        group = _job(world).group_on(location.cluster)
        is_dead = world.place is Place.GROUP and state.dead and location.cluster == "a"
        unseen = Unreachable("a does not answer") if is_dead else None
        rows = None
        if world.place is not Place.JOURNAL and unseen is None:
            self._fill(world, state, location.cluster, location.folder)
            rows = {row.key: row for row in self._store.read(group)}
        gathered = self._gathered(world, state, location, rows, unseen)
        judged = judge(gathered, _of_mirror(world, state, location)).get(_at(stream))
        found = _as_the_model_has_it(judged.stored) if isinstance(judged, Recorded) else None
        if is_dead and found is not None:  # what the job has processed since is counted up to the log's end
            furthest = max(end(world, state, stream, "a"), found.furthest)
            again = furthest - found.number
            found = Stored(found.number, found.record, again, again + found.older)
        assert found == expected, (judged, expected, state)
        return found

    def _gathered(
        self, world: World, state: State, location: Location, rows: Any, unseen: Unreachable | None = None
    ) -> Gathered:
        number = plan_of(state, location.plan)
        plan = None if number is None else _numbers(world, number, location.plan)
        here = Recording(Phase.LIVES, location.cluster, location.stay, "model", 0, plan=plan and plan.number)
        place = self._memory.get(world, location.cluster, lambda: _job_place(world, location.cluster, self._store))
        if rows is not None:
            rows = {key: row for key, row in rows.items() if key.topic in place.names}
        return Gathered(here, place, plan, bool(plan), rows, _journal(world, state, location.stay), unseen)

    def read_end(self, world: World, state: State, location: Location, stream: Stream, number: int) -> int | None:
        expected = self._ends(world, state, location, stream, number)
        stays = {each.stay for each in state.locations if each.state == "lives" and each.cluster == location.cluster}
        earlier = [entry for stay in sorted(stays - {location.stay}) for entry in _journal(world, state, stay)]
        key = _key(world, stream, location.cluster)
        found = self._gathered(world, state, location, {key: StoredRow(key, StoredOffset(number), "")})
        judged = ends(found, earlier)[_at(stream)]
        assert isinstance(judged, Recorded)
        assert _record(judged.stored.record) == expected
        return expected

    def give_back(self, world: World, state: State, plan: Plan) -> Plan:
        expected = reading.give_back(world, state, plan)
        if world.place not in (Place.AT_ONCE, Place.BY_ROW, Place.JOB_ONLY):
            return expected
        self._memory.get(world, (plan, state.place), lambda: self._compare_back(world, state, plan, expected))
        return expected

    def _compare_back(self, world: World, state: State, plan: Plan, expected: Plan) -> None:
        self._fill(world, state, plan.leaves, 0)
        keys = {_at(each.stream): _key(world, each.stream, plan.leaves) for each in plan.rows}
        held = {key: found.number for key, found in _store_place(world, self._store).read(keys.values()).items()}
        back = plans.give_back(_numbers(world, plan, 0), 2, keys, held)  # type: ignore[arg-type]
        rows = [Row(each.stream, _row_as_the_model_has_it(back.rows[_at(each.stream)].row)) for each in plan.rows]
        assert Plan(back.leaves, back.to, Log(rows), is_back=True) == expected

    def may_replace(self, world: World, state: State, plan: Plan) -> bool:
        expected = self._may_replace(world, state, plan)
        if world.place in (Place.AT_ONCE, Place.BY_ROW, Place.JOB_ONLY) and world.fault != "A52":
            stay = state.location.stay
            key = (stay, plan, state.place)
            assert self._memory.get(world, key, lambda: self._may(world, state, plan, stay)) == expected
        return expected

    def _may(self, world: World, state: State, plan: Plan, stay: int) -> bool:
        self._fill(world, state, plan.to, 0)
        place, numbers = _store_place(world, self._store), _new_numbers(world, plan, plan.rows, 2)
        try:
            place.check(numbers)
        except Changed:
            return False
        return max((each.of_stay or 0 for each in place.read(numbers).values()), default=0) <= stay

    def write(self, world: World, state: State, hook: Hook, plan: Plan, stay: int) -> Iterator[tuple[str, State]]:
        if world.place in (Place.JOURNAL, Place.CHECKPOINT, Place.JOB_ONLY):
            yield from self._writes(world, state, hook, plan, stay)
            return
        expected = next(self._writes(world, state, hook, plan, stay))
        refuses = world.place is Place.GROUP and any(each.cluster == plan.to for each in state.drivers)
        gone = len(state.locations) != hook.seen and world.fault != "A51"
        key = (plan, stay, hook.row, state.place, refuses, gone)
        place = self._memory.get(world, key, lambda: self._replaced(world, state, hook, plan, stay, refuses, gone))
        if place is None:
            assert expected[0] == "numbers refused"
            yield expected
            return
        # Where the place has the new numbers already, the product writes nothing, so that nothing refuses it.
        assert expected[0] != "numbers refused" or place == state.place
        assert _values(place) == _values(expected[1].place)
        yield "numbers", steps._wrote(world, state, hook, plan, place)

    def _replaced(
        self, world: World, state: State, hook: Hook, plan: Plan, stay: int, refuses: bool, gone: bool
    ) -> tuple[Any, ...] | None:
        """The place after the hook's write; None if it is refused."""
        self._fill(world, state, plan.to, 0)
        self._store.is_refused = refuses
        rows = plan.rows if world.place is Place.AT_ONCE else plan.rows[hook.row : hook.row + 1]

        def still_writing() -> None:
            if gone:
                raise Changed("Another run has finished this.")

        try:
            _store_place(world, self._store, plan.to).replace(_new_numbers(world, plan, rows, stay), still_writing)
        except (Changed, Refused):
            return None
        finally:
            self._store.is_refused = False
        return self._place(world, state, plan.to)

    def _fill(self, world: World, state: State, cluster: str, folder: int) -> None:
        """Make the store's rows those of the model's place."""
        first = place_key(world, cluster, folder, "A")[0]
        wanted = {
            TopicPartition(key, 0): each for (at, key), each in state.place if at == first and key in _keys(world)
        }
        self._store.become(_job(world).group_on(cluster), wanted, marked=world.marked)

    def _place(self, world: World, state: State, cluster: str) -> tuple[Any, ...]:
        """The model's place, as the store has it now."""
        first = place_key(world, cluster, 0, "A")[0]
        stays = dict(state.place)
        place = {at: each for at, each in state.place if at[0] != first}
        for row in self._store.read(_job(world).group_on(cluster)):
            at = (first, row.key.topic)
            was = stays.get(at)
            stay = was.stay if was is not None and was.value == row.stored.offset else self._store.wrote[row.key]
            place[at] = Number(row.stored.offset, stay)
        return put((), place)


class _Rows(MemoryStore):
    """A memory store that refuses to write while its group has members, and has room for the stay if it is told so."""

    is_refused = False
    marked = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.wrote: dict[TopicPartition, int] = {}

    def become(self, group: str, wanted: dict[TopicPartition, Number], *, marked: bool) -> None:
        self.marked = True
        changes = []
        now = {row.key: row for row in self.read(group)}
        for key in now.keys() - wanted.keys():
            del self._shared.rows[group][key]
        for key, each in wanted.items():
            row, stay = now.get(key), each.stay if marked else None
            held = None if row is None else (row.stored.offset, row.of_stay, row.stored.anchor)
            if held != (each.value, stay, None):  # an anchor is left from a write in another state
                changes.append(Change(key, row.version if row else None, StoredOffset(each.value), stay=stay))
        super().write(group, changes, reason="model", now_ms=0)
        self.marked = marked

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        if self.is_refused:
            raise Refused("The group has live members.")
        self.wrote |= {change.key: change.stay or 0 for change in changes}
        return super().write(group, changes, reason=reason, now_ms=now_ms)


def _values(place: tuple[Any, ...]) -> dict[Any, int]:
    return {at: number.value for at, number in place}


def _job(world: World) -> Job:
    return RENAMED if world.renamed else JOB


def _job_place(world: World, cluster: str, store: MemoryStore) -> JobPlace:
    naming = Naming(TopicPolicy.IDENTITY if world.names is Names.ONE else TopicPolicy.DEFAULT)
    streams, traits = [TOPICS[each] for each in world.keys], TRAITS.get(world.place, Traits())
    names = naming.by_name(streams, cluster)
    assert set(names) == {keys[cluster] for keys in world.keys.values()}
    shared = names_shared(naming, streams, cluster, world.clusters, traits)
    reader = None if world.place is Place.JOURNAL else store
    return JobPlace(reader, _job(world).group_on(cluster), traits, names, shared, partial(naming.by_name, streams))


def _store_place(world: World, store: MemoryStore, cluster: str = "a") -> StorePlace:
    group = _job(world).group_on(cluster)
    return StorePlace(store, group, TRAITS.get(world.place, Traits()), nothing_recorded("clicks"), "move", lambda: 0)


def _journal(world: World, state: State, stay: int) -> list[Entry]:
    return [_entry(each, world.fault == "A14") for each in journal_of(state, stay)]


def _entry(entry: ModelEntry, all_processed: bool) -> Entry:
    if entry is CLOSING:
        return closing(1, "model", 0)
    known, at = entry.known, _at(entry.stream)
    found = Known(known.number, _anchor(known.record), known.again, known.older, known.processed)
    if known.processed or all_processed:
        return Entry("model", 0, {at: replace(found, processed=True)})
    return Entry("model", 0, {}, begun={at: found})


def _of_mirror(world: World, state: State, location: Location) -> set[tuple[TopicPartition, int]]:
    """The numbers of the place that a mirror's checkpoints have, under the group's name on a."""
    job = _job(world)
    names = {job.group_on(location.cluster)} if world.fault == "A54" else job.group_names
    if world.fault == "A19" or job.group_on("a") not in names:
        return set()
    return {(TopicPartition(key, 0), value) for cluster, key, value in state.synced if cluster == location.cluster}


def _numbers(world: World, plan: Plan, index: int) -> Numbers:
    rows = {
        _at(each.stream): Planned(
            _key(world, each.stream, plan.to),
            PlanRow(
                each.planned.number,
                _anchor(each.planned.record),
                each.planned.again,
                each.planned.older,
                each.planned.replaced,
                _left(each.planned.left),
            ),
        )
        for each in plan.rows
    }
    return Numbers(plan.leaves, 1, plan.to, rows, number=index + 1)


def _at(stream: Stream) -> StreamPartition:
    return StreamPartition(*TOPICS[stream], 0)


def _key(world: World, stream: Stream, cluster: str) -> TopicPartition:
    return TopicPartition(world.keys[stream][cluster], 0)


def _keys(world: World) -> set[str]:
    return {key for keys in world.keys.values() for key in keys.values()}


def _anchor(record: int | None) -> Anchor | None:
    return None if record is None else Anchor(record)


def _new_numbers(world: World, plan: Plan, rows: Sequence[Row], stay: int) -> dict[TopicPartition, NewNumber]:
    return {
        _key(world, each.stream, plan.to): NewNumber(
            each.planned.number, each.planned.replaced, _anchor(each.planned.record), stay, _left(each.planned.left)
        )
        for each in rows
    }


def _left(left: Stored[int]) -> Stored[Anchor]:
    return Stored(left.number, _anchor(left.record), left.again, left.ahead)


def _record(anchor: Anchor | None) -> int | None:
    return None if anchor is None else anchor.offset


def _as_the_model_has_it(stored: Stored[Anchor]) -> Stored[int]:
    return Stored(stored.number, _record(stored.record), stored.again, stored.ahead)


def _row_as_the_model_has_it(row: PlanRow[Anchor]) -> PlanRow[int]:
    left = _as_the_model_has_it(row.left)
    return PlanRow(row.number, _record(row.record), row.again, row.older, row.replaced, left)
