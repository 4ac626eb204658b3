"""What can happen next: each actor's steps, one write at a time.

A hook that moves a job writes in the design's order: plan, `writing`, journal, numbers, `lives`, start. A kill takes
the hook away between any two of these; a lost reply is the same, since reading back the nonce decides it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.state.stored import Known, Stored
from tests.simulation.moves.reading import give_back, make_plan, read_stream
from tests.simulation.moves.world import (
    MADE_BY,
    Driver,
    Entry,
    Hook,
    Location,
    Number,
    Place,
    Plan,
    State,
    Stream,
    Tracker,
    World,
    beginning,
    end,
    log,
    place_key,
    record_before,
)

Step = tuple[str, State]


class Broken(Exception):
    """An invariant does not hold."""


def steps(world: World, state: State) -> Iterator[Step]:
    """Every next state, with the name of what happened."""
    yield from _operators(world, state)
    yield from _hooks(world, state)
    yield from _drivers(world, state)
    yield from _tracker(world, state)
    yield from _disturbances(world, state)


def is_stuck(world: World, state: State) -> bool:
    """True if a hook that nothing disturbs does not start the job, though nothing that happened explains it."""
    if state.hooks or state.drivers or state.disturbed or state.put_back or state.dead:
        return False
    for _ in range(2):
        state = state._replace(left=state.left._replace(starts=1, kills=0))
        begun = next(_begin(world, state), None)
        while begun and begun[1].hooks:
            state = begun[1]
            hook = state.hooks[0]
            begun = next(_advance(world, state._replace(hooks=()), hook), None)
        state = begun[1] if begun else state
        if state.drivers:
            return False
    return True


def _spend(state: State, kind: str, **changes: Any) -> State:
    counted: dict[str, Any] = {kind: getattr(state.left, kind) - 1}
    left = state.left._replace(**counted)
    return state._replace(left=left, **changes)


def _other(cluster: str) -> str:
    return "b" if cluster == "a" else "a"


def _operators(world: World, state: State) -> Iterator[Step]:
    here = state.location
    if here.state == "lives" and state.left.moves and not (state.dead and here.cluster == "b"):
        moving = here._replace(state="moving", to=_other(here.cluster))
        yield f"move --to {moving.to}", _spend(state, "moves", locations=(*state.locations, moving))
    if here.state == "moving" and state.left.cancels:
        back = here._replace(state="lives", to="")
        yield "move --cancel", _spend(state, "cancels", locations=(*state.locations, back))
    if here.state == "writing" and state.left.cancels:
        if world.fault == "A5":
            old = next(each for each in reversed(state.locations) if each.state == "lives")
            yield "move --cancel", _spend(state, "cancels", locations=(*state.locations, old))
        else:
            yield "move --cancel", _put_back(world, _spend(state, "cancels"), state.plans[here.plan])
    if here.state == "lives" and here.plan >= 0 and state.left.rollbacks and _untouched(world, state):
        yield "rollback", _put_back(world, _spend(state, "rollbacks"), state.plans[here.plan])


def _untouched(world: World, state: State) -> bool:
    """True if nothing shows that the stay has processed anything."""
    here = state.location
    plan = state.plans[here.plan]
    if state.drivers or len(state.journals[here.stay - 1]) > len(plan.rows):
        return False
    stored = [read_stream(world, state, here, each.stream) for each in plan.rows]
    return all(
        one and one.number == row.planned.number and not one.again for one, row in zip(stored, plan.rows, strict=True)
    )


def _put_back(world: World, state: State, plan: Plan) -> State:
    """A cancel of half-written numbers, or a rollback, is a plan of its own; it starts nothing."""
    here = state.location
    number = len(state.plans)
    back = give_back(world, state, plan)
    writing = Location("writing", plan.leaves, here.stay, here.folder, plan.leaves, number)
    locations = (*state.locations, writing)
    hook = Hook("journal", len(locations), number, starts=False)
    return state._replace(plans=(*state.plans, back), locations=locations, hooks=(*state.hooks, hook))


def _hooks(world: World, state: State) -> Iterator[Step]:
    if state.left.starts and len(state.hooks) < state.left.at_once:
        yield from _begin(world, state)
    for index, hook in enumerate(state.hooks):
        without = state.hooks[:index] + state.hooks[index + 1 :]
        if state.left.kills:
            yield f"kill at {hook.at}", _spend(state, "kills", hooks=without)
        yield from _advance(world, state._replace(hooks=without), hook)


def _begin(world: World, state: State) -> Iterator[Step]:
    here = state.location
    state = _spend(state, "starts")
    seen = len(state.locations)
    to = here.to or here.cluster
    if here.state == "lives" and all(_is_in_place(world, state, each) for each in world.keys):
        yield "hook reads", state._replace(hooks=(*state.hooks, Hook("start", seen, here.plan)))
    elif here.state != "writing" or world.fault == "A8":
        plan = make_plan(world, state, to) if not (state.dead and to == "a") else None
        if plan:
            hook = Hook("plan", seen, len(state.plans))
            yield "hook plans", state._replace(plans=(*state.plans, plan), hooks=(*state.hooks, hook))
    else:
        yield "hook resumes", state._replace(hooks=(*state.hooks, Hook("journal", seen, here.plan)))


def _is_in_place(world: World, state: State, stream: Stream) -> bool:
    """Whether the job starts where it lives without a plan: else what it may have processed would be recorded nowhere.

    Where only the job writes, the plan's number counts until it has.
    """
    here = state.location
    read = read_stream(world, state, here, stream)
    held = state.held(place_key(world, here.cluster, here.folder, stream))
    if read is None or world.place in (Place.JOURNAL, Place.CHECKPOINT):
        return read is not None
    replaced = state.plans[here.plan].row(stream).replaced if here.plan >= 0 and world.place is Place.JOB_ONLY else ()
    return held == read.number or held in replaced


def _advance(world: World, state: State, hook: Hook) -> Iterator[Step]:
    """The hook's next write; a hook that is refused, or must stop, is gone."""
    if hook.at == "start":
        yield "start", _start(world, state, hook)
        return
    plan = state.plans[hook.plan]
    stay = hook.plan + 2  # each plan's own: a cancelled plan's stay is never lived in
    if hook.at == "plan":
        stored = [read_stream(world, state, state.location, each.stream) for each in plan.rows]
        if stored == [each.planned.left for each in plan.rows] and _may_replace(world, state, plan):
            yield "nothing has changed", state._replace(hooks=(*state.hooks, hook._replace(at="writing")))
    elif hook.at == "writing":
        writing = Location("writing", plan.to, state.location.stay, state.location.folder, plan.to, hook.plan)
        yield from _append(state, hook, writing, "journal")
    elif hook.at == "journal":
        yield "journal", _open_journal(state, hook, stay, plan)
    elif hook.at == "numbers":
        yield from _write(world, state, hook, plan, stay)
    elif hook.at == "lives":
        lives = Location("lives", plan.to, stay, hook.folder, plan=hook.plan)
        yield from _append(state, hook, lives, "start" if hook.starts else "")


def _may_replace(world: World, state: State, plan: Plan) -> bool:
    """Whether the place still holds what the plan replaces: a driver that is not stopped may have gone on.

    A number of a later stay than the newest location shows that the state store is an old one.
    """
    keys = [place_key(world, plan.to, 0, each.stream) for each in plan.rows]
    place = dict(state.place)
    if world.marked and any(place[key].stay > state.location.stay for key in keys if key in place):
        return False
    if world.place not in (Place.AT_ONCE, Place.BY_ROW) or world.fault == "A52":
        return True
    rows = zip(keys, plan.rows, strict=True)
    return all(state.held(key) in {each.planned.number, *each.planned.replaced} for key, each in rows)


def _append(state: State, hook: Hook, entry: Location, then: str) -> Iterator[Step]:
    if len(state.locations) != hook.seen:
        yield f"{entry.state} refused", state
        return
    state = state._replace(locations=(*state.locations, entry))
    after = (hook._replace(at=then, seen=hook.seen + 1),) if then else ()
    yield entry.state, state._replace(hooks=(*state.hooks, *after))


def _open_journal(state: State, hook: Hook, stay: int, plan: Plan) -> State:
    first = tuple(Entry(each.stream, each.planned.first()) for each in plan.rows)
    journals = (*state.journals, *((),) * (stay - len(state.journals)))
    if not journals[stay - 1]:
        journals = (*journals[: stay - 1], first, *journals[stay:])
    return state._replace(journals=journals, hooks=(*state.hooks, hook._replace(at="numbers")))


def _write(world: World, state: State, hook: Hook, plan: Plan, stay: int) -> Iterator[Step]:
    place = dict(state.place)
    done = hook._replace(at="lives")
    if world.place in (Place.JOB_ONLY, Place.JOURNAL):
        yield "numbers are the job's to write", state._replace(hooks=(*state.hooks, done))
        return
    if world.place is Place.CHECKPOINT:
        yield "copy", _copy(world, state, done, plan, stay)
        return
    rows = plan.rows if world.place is Place.AT_ONCE else plan.rows[hook.row : hook.row + 1]
    for row in rows:
        key = place_key(world, plan.to, 0, row.stream)
        held = state.held(key)
        if len(state.locations) != hook.seen and world.fault != "A51":
            refused = True
        elif world.place is Place.GROUP:
            # Its number there is a mirror's, whatever it is; Kafka refuses to change a group with members.
            refused = any(each.cluster == plan.to for each in state.drivers)
        else:
            refused = held != row.planned.number and held not in row.planned.replaced
        if refused:
            yield "numbers refused", state
            return
        place[key] = Number(row.planned.number, stay)
    last = world.place is Place.AT_ONCE or hook.row + 1 == len(plan.rows)
    after = done if last else hook._replace(row=hook.row + 1)
    yield "numbers", state._replace(place=tuple(sorted(place.items(), key=repr)), hooks=(*state.hooks, after))


def _copy(world: World, state: State, hook: Hook, plan: Plan, stay: int) -> State:
    place = dict(state.place)
    folders = {key[0] for key in place if isinstance(key[0], int)}
    folder = 1 + max(folders)
    if world.fault == "A13" and plan.to == "b" and 1 in folders:
        return state._replace(hooks=(*state.hooks, hook._replace(folder=1)))
    for row in plan.rows:
        place[place_key(world, plan.to, folder, row.stream)] = Number(row.planned.number, stay)
    place[folder, MADE_BY] = Number(hook.plan, stay)
    place_now = tuple(sorted(place.items(), key=repr))
    return state._replace(place=place_now, hooks=(*state.hooks, hook._replace(folder=folder)))


def _start(world: World, state: State, hook: Hook) -> State:
    """Start the job, as the location says now; check what it will read."""
    here = state.location
    same_stay = [each for each in state.drivers if each.stay == here.stay]
    if state.dead and here.cluster == "a":
        return state
    if here.state == "writing" or len(state.locations) != hook.seen or same_stay:
        return state
    stored = {each: read_stream(world, state, here, each) for each in world.keys}
    if None in stored.values():
        return state
    if here.folder and state.held((here.folder, MADE_BY)) != here.plan:
        raise Broken("continues the copy of another plan")
    for stream, one in stored.items():
        assert one is not None
        _check(world, state, stream, here.cluster, one)
    driver = Driver(here.cluster, here.stay, here.folder, tuple((s, one.number) for s, one in stored.items() if one))
    return state._replace(drivers=(*state.drivers, driver))


def _check(world: World, state: State, stream: str, cluster: str, stored: Stored[int]) -> None:
    start, records = log(world, state, stream, cluster)
    before = records[: max(stored.number - start, 0)]
    skipped = [each for each in before if (stream, each) not in state.processed]
    if skipped:
        raise Broken(f"starts {stream} on {cluster} at {stored.number}: skips {skipped}")
    counted = state.processed - state.strays
    again = [each for each in records[max(stored.number - start, 0) :] if (stream, each) in counted]
    if not state.put_back and len(again) > stored.again:
        raise Broken(f"starts {stream} on {cluster} at {stored.number}: {again} again, {stored.again} shown")


def _drivers(world: World, state: State) -> Iterator[Step]:
    for index, driver in enumerate(state.drivers):
        without = state._replace(drivers=state.drivers[:index] + state.drivers[index + 1 :])
        if state.left.kills:
            yield "driver dies", _spend(without, "kills")
        yield from _work(world, without, driver)
        yield from _track(world, state, driver)


def _work(world: World, state: State, driver: Driver) -> Iterator[Step]:
    """The driver processes one record and stores its number, in one transaction."""
    here = state.location
    planned = any(each.at == "writing" for each in state.hooks)
    stray = driver.stay != here.stay or here.state == "writing" or planned
    recorder_stops = not world.marked and world.place not in (Place.GROUP, Place.CHECKPOINT)
    if stray and not planned and recorder_stops and world.fault != "A11":
        yield "driver finds its journal closed", state
        return
    for stream, number in driver.next:
        if number >= end(world, state, stream, driver.cluster):
            continue
        if world.place is Place.JOURNAL and driver.begun != stream:
            if not driver.begun:
                record = _record_at(world, state, stream, driver.cluster, number)
                entry = Entry(stream, Known(number + 1, record, processed=False))
                yield f"begins {stream} {number}", _journal(state, driver, entry, driver._replace(begun=stream))
            continue
        yield f"processes {stream} {number}", _process(world, state, driver, stream, number, stray)


def _record_at(world: World, state: State, stream: str, cluster: str, number: int) -> int:
    start, records = log(world, state, stream, cluster)
    return records[number - start]


def _process(world: World, state: State, driver: Driver, stream: str, number: int, stray: bool) -> State:
    record = _record_at(world, state, stream, driver.cluster, number)
    after = driver._replace(next=tuple((s, n + (s == stream)) for s, n in driver.next), begun="")
    known = (stream, record) in state.processed
    state = state._replace(
        processed=state.processed | {(stream, record)},
        strays=state.strays | {(stream, record)} if stray and not known else state.strays,
        disturbed=state.disturbed or stray,
    )
    if world.place is Place.JOURNAL:
        return _journal(state, driver, Entry(stream, Known(number + 1, record)), after)
    key = place_key(world, driver.cluster, driver.folder, stream)
    place = dict(state.place) | {key: Number(number + 1, driver.stay)}
    return state._replace(place=tuple(sorted(place.items(), key=repr)), drivers=(*state.drivers, after))


def _journal(state: State, driver: Driver, entry: Entry, after: Driver) -> State:
    journals = list(state.journals)
    journals[driver.stay - 1] = (*journals[driver.stay - 1], entry)
    return state._replace(journals=tuple(journals), drivers=(*state.drivers, after))


def _track(world: World, state: State, driver: Driver) -> Iterator[Step]:
    """The recorder in the driver appends the record before each offset, unless its journal is closed."""
    if driver.stay != state.location.stay or state.location.state == "writing" or world.place is Place.JOURNAL:
        return
    journal = state.journals[driver.stay - 1]
    entries = tuple(
        Entry(stream, Known(number, behind_record))
        for stream, number in driver.next
        if [each.known.number for each in journal if each.stream == stream][-1] != number
        for behind_record in (record_before(world, state, stream, driver.cluster, number),)
    )
    if entries:
        journals = list(state.journals)
        journals[driver.stay - 1] = (*journal, *entries)
        yield "track", state._replace(journals=tuple(journals))


def _tracker(world: World, state: State) -> Iterator[Step]:
    """A tracker outside of the job: where the job lives, then a number of the place, then the journal of that stay."""
    tracker, here = state.tracker, state.location
    if tracker is None:
        if state.left.tracks and here.state != "writing" and world.place is not Place.JOURNAL:
            yield "tracker looks where the job lives", _spend(state, "tracks", tracker=Tracker(here))
        return
    without, at = state._replace(tracker=None), tracker.location
    if at.stay > len(state.journals):
        yield "tracker finds an old state store", without
        return
    if tracker.known is not None:
        journal = state.journals[at.stay - 1]
        if len(journal) == tracker.behind:
            noted = (*journal, Entry(tracker.stream, tracker.known))
            journals = (*state.journals[: at.stay - 1], noted, *state.journals[at.stay :])
            yield "tracker appends", without._replace(journals=journals)
        else:
            yield "tracker is refused", without
        return
    for stream in world.keys if not (state.dead and at.cluster == "a") else ():
        held = state.held(place_key(world, at.cluster, at.folder, stream))
        read, journal = read_stream(world, state, at, stream), state.journals[at.stay - 1]
        is_own = world.fault == "A53" or (read is not None and read.number == held)
        if held is not None and is_own and held <= end(world, state, stream, at.cluster):
            known = Known(held, record_before(world, state, stream, at.cluster, held))
            yield f"tracker reads {stream}", state._replace(tracker=Tracker(at, stream, known, len(journal)))


def _disturbances(world: World, state: State) -> Iterator[Step]:
    if not state.arrived:
        yield "the mirror catches up", state._replace(arrived=True)
    if state.left.syncs and world.place is Place.GROUP and not any(each.cluster == "b" for each in state.drivers):
        yield from _sync(world, state)
    if state.left.outages and not state.dead:
        yield "a dies", _spend(state, "outages", dead=True, drivers=tuple(e for e in state.drivers if e.cluster == "b"))
    if state.dead:
        yield "a returns", state._replace(dead=False)
    if state.left.restores:
        yield from _restores(world, state)
    if state.left.restores and world.fault == "A1" and not state.drivers and not state.hooks:
        empty = beginning(world, state.left)
        yield "an empty state store", _spend(state, "restores", locations=empty.locations, journals=empty.journals)


def _sync(world: World, state: State) -> Iterator[Step]:
    """MirrorMaker commits b's group further on than the job is."""
    for stream in world.keys:
        key = place_key(world, "b", 0, stream)
        later = min((state.held(key) or 0) + 1, end(world, state, stream, "b"))
        place = dict(state.place) | {key: Number(later, 0)}
        yield (
            "group sync",
            _spend(
                state,
                "syncs",
                place=tuple(sorted(place.items(), key=repr)),
                synced=state.synced | {("b", key[1], later)},
            ),
        )


def _restores(world: World, state: State) -> Iterator[Step]:
    if state.saved is None:
        yield "backup of the place", state._replace(saved=state, saves="place")
        yield "backup of the state store", state._replace(saved=state, saves="store")
        return
    if state.hooks or state.drivers:
        return
    if state.saves == "place" and world.place in (Place.AT_ONCE, Place.BY_ROW, Place.JOB_ONLY):
        put_back = state._replace(place=state.saved.place, put_back=True, disturbed=True)
        yield "the place is put back", _spend(put_back, "restores")
    # A place that has no room for a stay cannot show that the store is an old one.
    if state.saves == "store" and (world.marked or world.place is Place.CHECKPOINT):
        put_back = state._replace(locations=state.saved.locations, journals=state.saved.journals, disturbed=True)
        yield "the state store is put back", _spend(put_back, "restores")
