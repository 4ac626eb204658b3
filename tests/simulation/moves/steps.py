"""What can happen next: each actor's steps, one write at a time.

A hook that moves a job writes in the design's order (``world.WRITES``). A kill takes the hook away between any two of
these; a lost reply is the same, since reading back the nonce decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from reconciler.state.stored import Stored
from tests.simulation.moves.driving import disturbances, track, tracker, without_driver, work
from tests.simulation.moves.reading import give_back, journal_of, make_plan, plan_of, read_stream
from tests.simulation.moves.world import (
    BATCHES,
    CLOSING,
    MADE_BY,
    Driver,
    Entry,
    Hook,
    Location,
    Number,
    Place,
    Plan,
    State,
    Step,
    Stream,
    World,
    end_key,
    is_closed,
    log,
    noted,
    place_key,
    put,
    spend,
)

Action = Callable[[], Iterator[Step]]


class Broken(Exception):
    """An invariant does not hold."""


def steps(world: World, state: State) -> Iterator[Step]:
    """Every next state, with the name of what happened."""
    for action in actions(world, state):
        yield from action()


def actions(world: World, state: State, stopped: str = "") -> list[Action]:
    """Who may act next. An action gives its steps, often none. ``stopped``: of this kind the first one does nothing."""
    found = [partial(_operators, world, state), partial(disturbances, world, state)]
    if stopped != "tracker":
        found.append(partial(tracker, world, state))
    if state.left.starts and len(state.hooks) < state.left.at_once:
        found.append(partial(_begin, world, state))
    for index, hook in enumerate(state.hooks):
        if index or stopped != "hook":
            found.append(partial(_advance, world, state, hook, index))
    for index, driver in enumerate(state.drivers):
        if index or stopped != "driver":
            works = partial(work, world, state, driver, index)  # twice: a job works more often than others act
            found += [works, works, partial(track, world, state, driver)]
    if state.left.kills:
        found += [partial(_kill, state, index) for index in range(len(state.hooks) + len(state.drivers))]
    return found


def _kill(state: State, index: int) -> Iterator[Step]:
    if index < len(state.hooks):
        yield f"kill at {state.hooks[index].at}", spend(_without_hook(state, index), "kills")
    else:
        yield "driver dies", spend(without_driver(state, index - len(state.hooks)), "kills")


def _without_hook(state: State, index: int) -> State:
    return state._replace(hooks=state.hooks[:index] + state.hooks[index + 1 :])


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
            begun = next(_advance(world, state, hook, 0), None)
        state = begun[1] if begun else state
        if state.drivers:
            return False
    return True


def _operators(world: World, state: State) -> Iterator[Step]:
    here = state.location
    if here.state == "lives" and state.left.moves:
        for to in world.clusters:
            if to != here.cluster and not (state.dead and to == "a"):
                moving = here._replace(state="moving", to=to)
                yield f"move --to {to}", spend(state, "moves", locations=(*state.locations, moving))
    if here.state == "moving" and state.left.cancels:
        back = here._replace(state="lives", to="")
        yield "move --cancel", spend(state, "cancels", locations=(*state.locations, back))
    plan = plan_of(state, here.plan)
    if here.state == "writing" and state.left.cancels and plan:
        if world.fault == "A5":
            old = next(each for each in reversed(state.locations) if each.state == "lives")
            yield "move --cancel", spend(state, "cancels", locations=(*state.locations, old))
        else:
            yield "move --cancel", _put_back(world, spend(state, "cancels"), plan)
    if here.state == "lives" and plan and not plan.is_back and state.left.rollbacks and _untouched(world, state, plan):
        yield "rollback", _put_back(world, spend(state, "rollbacks"), plan)


def _untouched(world: World, state: State, plan: Plan) -> bool:
    """True if nothing shows that the stay has processed anything."""
    here = state.location
    if state.drivers or len(state.journals[here.stay - 1]) > len(plan.rows):
        return False
    if world.place is Place.CHECKPOINT and world.fault != "A59":
        place = dict(state.place)
        ends = {each.stream: place.get(end_key(here.folder, each.stream)) for each in plan.rows}
        if any(number and number.value != plan.whole(stream).end for stream, number in ends.items()):
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
    folder = here.folder
    if here.state == "lives":
        folder = next(each.folder for each in reversed(state.locations) if each.stay < here.stay)
    writing = Location("writing", plan.leaves, here.stay, folder, plan.leaves, number)
    locations = (*state.locations, writing)
    hook = Hook(_first_after_writing(world), len(locations), number, starts=False)
    return state._replace(plans=(*state.plans, back), locations=locations, hooks=(*state.hooks, hook))


def _first_after_writing(world: World) -> str:
    return next(each for each in world.writes[world.writes.index("writing") + 1 :] if each not in ("plan", "check"))


def _then(world: World, state: State, hook: Hook, **changes: Any) -> State:
    """The state in which the hook is before its next write; without the hook, if it has done all."""
    place = world.writes.index(hook.at) + 1
    following = world.writes[place:] if hook.starts else [each for each in world.writes[place:] if each != "start"]
    if not following:
        return state
    return state._replace(hooks=(*state.hooks, hook._replace(at=following[0], **changes)))


def _begin(world: World, state: State) -> Iterator[Step]:
    here = state.location
    state = spend(state, "starts")
    seen = len(state.locations)
    to = here.to or here.cluster
    if here.state == "lives" and all(_is_in_place(world, state, each) for each in world.keys):
        yield "hook reads", state._replace(hooks=(*state.hooks, Hook("start", seen, here.plan)))
    elif here.state != "writing" or world.fault == "A8" or _is_copied(world, state):
        plan = make_plan(world, state, _lived(world, state), to) if not (state.dead and to == "a") else None
        if plan:
            hook = Hook(world.writes[0], seen, len(state.plans), made=plan)
            yield "hook plans", state._replace(hooks=(*state.hooks, hook))
    elif plan_of(state, here.plan):
        hook = Hook(_first_after_writing(world), seen, here.plan)
        yield "hook resumes", state._replace(hooks=(*state.hooks, hook))


def _lived(world: World, state: State) -> Location:
    """Where the job lives or lived, before the numbers that may be written now."""
    if world.fault == "A8":
        return state.location
    return next(each for each in reversed(state.locations) if each.state != "writing")


def _is_copied(world: World, state: State) -> bool:
    """Whether a copy is being made: any plan makes it again, since the original may have gone on."""
    plan = plan_of(state, state.location.plan)
    return world.place is Place.CHECKPOINT and plan is not None and not plan.is_back


def _is_in_place(world: World, state: State, stream: Stream) -> bool:
    """Whether the job starts where it lives without a plan: else what it may have processed would be recorded nowhere.

    Where only the job writes, the plan's number counts until it has.
    """
    here = state.location
    read = read_stream(world, state, here, stream)
    held = state.held(place_key(world, here.cluster, here.folder, stream))
    if read is None or world.place in (Place.JOURNAL, Place.CHECKPOINT):
        return read is not None
    plan = plan_of(state, here.plan)
    replaced = plan.row(stream).replaced if plan and world.place is Place.JOB_ONLY else ()
    return held == read.number or held in replaced


def _advance(world: World, state: State, hook: Hook, index: int) -> Iterator[Step]:
    """The hook's next write; a hook that is refused, or must stop, is gone."""
    state = _without_hook(state, index)
    if hook.at == "start":
        yield "start", _start(world, state, hook)
        return
    plan = hook.made or state.plans[hook.plan]
    stay = hook.plan + 2  # each plan's own: a cancelled plan's stay is never lived in
    left = state.locations[hook.seen - 1]
    if hook.at == "plan":
        if len(state.plans) == hook.plan:
            yield "plan", _then(world, state._replace(plans=(*state.plans, plan)), hook, made=None)
        else:
            yield "plan refused", state
    elif hook.at == "check":
        here, rows = _lived(world, state), () if hook.made else plan.rows
        is_same = all(read_stream(world, state, here, each.stream) == each.planned.left for each in rows)
        if is_same and _may_replace(world, state, plan):
            yield "nothing has changed", _then(world, state, hook)
    elif hook.at == "writing":
        writing = Location("writing", plan.to, left.stay, left.folder, plan.to, hook.plan)
        yield from _append(world, state, hook, writing)
    elif hook.at == "closing":
        journal = journal_of(state, left.stay)
        closed = state if is_closed(journal) else noted(state, left.stay, CLOSING)
        yield "closing", _then(world, closed, hook)
    elif hook.at == "journal":
        first = [Entry(each.stream, each.planned.first()) for each in plan.rows]
        yield "journal", _then(world, state if journal_of(state, stay) else noted(state, stay, *first), hook)
    elif hook.at == "numbers":
        yield from _write(world, state, hook, plan, stay)
    elif hook.at == "lives":
        yield from _append(world, state, hook, Location("lives", plan.to, stay, hook.folder, plan=hook.plan))


def _may_replace(world: World, state: State, plan: Plan) -> bool:
    """Whether the place still holds what the plan replaces: a driver that is not stopped may have gone on.

    A number of a later stay than the newest location shows that the state store is an old one.
    """
    keys = [place_key(world, plan.to, 0, each.stream) for each in plan.rows]
    place = dict(state.place)
    if world.marked and any(place[key].stay > state.location.stay for key in keys if key in place):
        return False
    if world.place is Place.CHECKPOINT:
        return _is_as_planned(world, state, plan)
    if world.place not in (Place.AT_ONCE, Place.BY_ROW) or world.fault == "A52":
        return True
    rows = zip(keys, plan.rows, strict=True)
    return all(state.held(key) in {each.planned.number, *each.planned.replaced} for key, each in rows)


def _is_as_planned(world: World, state: State, plan: Plan) -> bool:
    """Whether the checkpoint has begun and committed no batch since the plan."""
    place, folder = dict(state.place), state.location.folder
    numbers = [state.held(place_key(world, plan.leaves, folder, each.stream)) for each in plan.rows]
    return all(
        (each.end is None) == (end_key(folder, each.stream) not in place) and each.planned.left.number == number
        for each, number in zip(plan.rows, numbers, strict=True)
    )


def _append(world: World, state: State, hook: Hook, entry: Location) -> Iterator[Step]:
    if len(state.locations) != hook.seen:
        yield f"{entry.state} refused", state
        return
    state = state._replace(locations=(*state.locations, entry))
    yield entry.state, _then(world, state, hook, seen=hook.seen + 1)


def _write(world: World, state: State, hook: Hook, plan: Plan, stay: int) -> Iterator[Step]:
    if world.place in (Place.JOB_ONLY, Place.JOURNAL):
        yield "numbers are the job's to write", _then(world, state, hook)
        return
    if len(state.locations) != hook.seen and world.fault != "A51":
        yield "numbers refused", state
        return
    if world.place is Place.CHECKPOINT:
        if plan.is_back or _is_as_planned(world, state, plan):
            yield "copy", _copy(world, state, hook, plan, stay)
        else:
            yield "copy refused: the original has changed", state
        return
    rows = plan.rows if world.place is Place.AT_ONCE else plan.rows[hook.row : hook.row + 1]
    place, numbers = dict(state.place), {}
    for row in rows:
        key = place_key(world, plan.to, 0, row.stream)
        held = place[key].value if key in place else None
        if world.place is Place.GROUP:
            # Its number there is a mirror's, whatever it is; Kafka refuses to change a group with members.
            refused = any(each.cluster == plan.to for each in state.drivers)
        else:
            refused = held != row.planned.number and held not in row.planned.replaced
        if refused:
            yield "numbers refused", state
            return
        numbers[key] = Number(row.planned.number, stay)
    yield "numbers", _wrote(world, state, hook, plan, put(state.place, numbers))


def _wrote(world: World, state: State, hook: Hook, plan: Plan, place: tuple[Any, ...]) -> State:
    """The state after the hook's rows, and before the next one's if they are written one by one."""
    state = state._replace(place=place)
    if world.place is not Place.AT_ONCE and hook.row + 1 < len(plan.rows):
        return state._replace(hooks=(*state.hooks, hook._replace(row=hook.row + 1)))
    return _then(world, state, hook, row=0)


def _copy(world: World, state: State, hook: Hook, plan: Plan, stay: int) -> State:
    """The checkpoint's copy in a folder of its own; a plan that gives back continues the original."""
    left, place = state.locations[hook.seen - 1], dict(state.place)
    if plan.is_back:
        return _then(world, state, hook, folder=left.folder)
    folders = {key[0] for key in place if isinstance(key[0], int)}
    folder = 1 + max(folders)
    if world.fault == "A13" and plan.to == "b" and 1 in folders:
        return _then(world, state, hook, folder=1)
    numbers = {place_key(world, plan.to, folder, row.stream): Number(row.planned.number, stay) for row in plan.rows}
    numbers |= {end_key(folder, row.stream): Number(row.end, stay) for row in plan.rows if row.end is not None}
    numbers[folder, MADE_BY] = Number(hook.plan, stay)
    if batches := place.get((left.folder, BATCHES)):
        numbers[folder, BATCHES] = Number(batches.value, stay)
    return _then(world, state._replace(place=put(state.place, numbers)), hook, folder=folder)


def _start(world: World, state: State, hook: Hook) -> State:
    """Start the job, as the location says now; check what it will read."""
    here = state.location
    after = state
    if world.writes[-1] != "start" and here.state == "writing":  # the job is started before it is said to live there
        here = here._replace(state="lives", cluster=here.to, stay=hook.plan + 2, folder=hook.folder)
        after = _then(world, state, hook)
    if (state.dead and here.cluster == "a") or is_closed(journal_of(state, here.stay)):
        return state
    if here.state == "writing" or len(state.locations) != hook.seen or any(e.stay == here.stay for e in state.drivers):
        return state
    stored = {each: read_stream(world, state, here, each) for each in world.keys}
    if None in stored.values():
        return state
    plan, place = plan_of(state, here.plan), dict(state.place)
    if here.folder and plan and not plan.is_back and place[here.folder, MADE_BY].value != here.plan:
        raise Broken("continues the copy of another plan")
    batch = place[here.folder, BATCHES].value if (here.folder, BATCHES) in place else 0
    begun = [each for each in world.keys if end_key(here.folder, each) in place and world.place is Place.CHECKPOINT]
    for stream, one in stored.items():
        assert one is not None
        number = one.number
        if stream in begun and state.taken > batch:
            number = place[end_key(here.folder, stream)].value
            if not state.disturbed:
                _check_skips(world, state, stream, here.cluster, number)
        _check(world, state, stream, here.cluster, one, number)
    numbers = tuple((stream, one.number) for stream, one in stored.items() if one)
    driver = Driver(here.cluster, here.stay, here.folder, numbers, begun[0] if begun else "", batch)
    return after._replace(drivers=(*after.drivers, driver))


def _check(world: World, state: State, stream: str, cluster: str, stored: Stored[int], reads: int) -> None:
    """``reads``: the offset of the first record that the sink does not drop."""
    _check_skips(world, state, stream, cluster, stored.number)
    start, records = log(world, state, stream, cluster)
    counted = state.processed - state.strays
    again = [each for each in records[max(reads - start, 0) :] if (stream, each) in counted]
    if not state.put_back and len(again) > stored.again:
        raise Broken(f"starts {stream} on {cluster} at {stored.number}: {again} again, {stored.again} shown")


def _check_skips(world: World, state: State, stream: str, cluster: str, number: int) -> None:
    start, records = log(world, state, stream, cluster)
    skipped = [each for each in records[: max(number - start, 0)] if (stream, each) not in state.processed]
    if skipped:
        raise Broken(f"starts {stream} on {cluster} at {number}: skips {skipped}")
