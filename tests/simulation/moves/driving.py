"""What drivers, a tracker outside of them, mirrors and accidents do: the steps of all who are no hook or operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.state.stored import Known
from tests.simulation.moves.reading import journal_of, read_stream
from tests.simulation.moves.world import (
    BATCHES,
    Driver,
    Entry,
    Number,
    Place,
    State,
    Step,
    Tracker,
    World,
    beginning,
    end,
    end_key,
    is_closed,
    log,
    noted,
    place_key,
    put,
    record_before,
    spend,
)


def without_driver(state: State, index: int) -> State:
    return state._replace(drivers=state.drivers[:index] + state.drivers[index + 1 :])


def work(world: World, state: State, driver: Driver, index: int) -> Iterator[Step]:
    """The driver processes one record and stores its number, in one transaction."""
    state = without_driver(state, index)
    here = state.location
    planned = any(each.at in ("check", "writing") for each in state.hooks)
    stray = driver.stay < here.stay or planned or (here.state == "writing" and driver.stay == here.stay)
    recorder_stops = not world.marked and world.place is not Place.GROUP
    if is_closed(journal_of(state, driver.stay)) and recorder_stops and world.fault != "A11":
        yield "driver finds its journal closed", state
        return
    if world.place is Place.CHECKPOINT:
        yield from _batch(world, state, driver, stray)
        return
    for stream, number in driver.next:
        if number >= end(world, state, stream, driver.cluster):
            continue
        if world.place is Place.JOURNAL and driver.begun != stream:
            if not driver.begun:
                record = _record_at(world, state, stream, driver.cluster, number)
                begun = noted(state, driver.stay, Entry(stream, Known(number + 1, record, processed=False)))
                yield f"begins {stream} {number}", _back(begun, driver, begun=stream)
            continue
        yield f"processes {stream} {number}", _process(world, state, driver, stream, number, stray)


def _back(state: State, driver: Driver, **changes: Any) -> State:
    return state._replace(drivers=(*state.drivers, driver._replace(**changes)))


def _batch(world: World, state: State, driver: Driver, stray: bool) -> Iterator[Step]:
    """The next step of a query's batch: it is begun, its sink takes it once, and it is committed."""
    place, batches = dict(state.place), (driver.folder, BATCHES)
    ends = {stream: place.get(end_key(driver.folder, stream)) for stream, _ in driver.next}
    if driver.batch != (place[batches].value if batches in place else 0) or (any(ends.values()) and not driver.begun):
        yield "driver finds that another one continues its checkpoint", state
        return
    if not driver.begun:
        for stream, number in driver.next:
            last = end(world, state, stream, driver.cluster)
            for to in sorted({min(number + 1, last), last} - {number}) if number < last else ():
                begun = {end_key(driver.folder, stream): Number(to, driver.stay)}
                state_then = state._replace(place=put(state.place, begun), disturbed=state.disturbed or stray)
                yield f"begins {stream} {number} to {to}", _back(state_then, driver, begun=stream)
        return
    number, stop = dict(driver.next)[driver.begun], ends[driver.begun]
    if stop is None:
        yield "driver finds that another one continues its checkpoint", state
    elif state.taken <= driver.batch:
        for each in range(number, stop.value):
            state = _processed(world, state, driver, driver.begun, each, stray)
        yield f"sink takes {driver.begun} before {stop.value}", _back(state._replace(taken=driver.batch + 1), driver)
    else:
        key = place_key(world, driver.cluster, driver.folder, driver.begun)
        place[key], place[batches] = Number(stop.value, driver.stay), Number(driver.batch + 1, driver.stay)
        del place[end_key(driver.folder, driver.begun)]
        after = tuple((s, stop.value if s == driver.begun else n) for s, n in driver.next)
        state = state._replace(place=put((), place), disturbed=state.disturbed or stray)
        yield "commits", _back(state, driver, next=after, begun="", batch=driver.batch + 1)


def _record_at(world: World, state: State, stream: str, cluster: str, number: int) -> int:
    start, records = log(world, state, stream, cluster)
    return records[number - start]


def _processed(world: World, state: State, driver: Driver, stream: str, number: int, stray: bool) -> State:
    record = _record_at(world, state, stream, driver.cluster, number)
    known = (stream, record) in state.processed
    return state._replace(
        processed=state.processed | {(stream, record)},
        strays=state.strays | {(stream, record)} if stray and not known else state.strays,
        disturbed=state.disturbed or stray,
    )


def _process(world: World, state: State, driver: Driver, stream: str, number: int, stray: bool) -> State:
    state = _processed(world, state, driver, stream, number, stray)
    after = tuple((s, n + (s == stream)) for s, n in driver.next)
    if world.place is Place.JOURNAL:
        record = _record_at(world, state, stream, driver.cluster, number)
        return _back(noted(state, driver.stay, Entry(stream, Known(number + 1, record))), driver, next=after, begun="")
    key = place_key(world, driver.cluster, driver.folder, stream)
    numbers = put(state.place, {key: Number(number + 1, driver.stay)})
    return _back(state._replace(place=numbers), driver, next=after)


def track(world: World, state: State, driver: Driver) -> Iterator[Step]:
    """The recorder in the driver appends the record before each offset, unless its journal is closed."""
    journal = journal_of(state, driver.stay)
    if is_closed(journal) or world.place is Place.JOURNAL:
        return
    entries = [
        Entry(stream, Known(number, record_before(world, state, stream, driver.cluster, number)))
        for stream, number in driver.next
        if [each.known.number for each in journal if each.stream == stream and each.known.processed][-1:] != [number]
    ]
    stop = state.held(end_key(driver.folder, driver.begun)) if driver.begun else None
    if stop is not None:
        record = record_before(world, state, driver.begun, driver.cluster, stop)
        begun = Entry(driver.begun, Known(stop, record, processed=False))
        entries += [begun] if begun not in journal else []
    if entries:
        yield "track", noted(state, driver.stay, *entries)


def tracker(world: World, state: State) -> Iterator[Step]:
    """A tracker outside of the job: where the job lives, then a number of the place, then the journal of that stay."""
    tracker, here = state.tracker, state.location
    if tracker is None:
        if state.left.tracks and here.state != "writing" and world.place is not Place.JOURNAL:
            yield "tracker looks where the job lives", spend(state, "tracks", tracker=Tracker(here))
        return
    without, at = state._replace(tracker=None), tracker.location
    if at.stay > len(state.journals):
        yield "tracker finds an old state store", without
        return
    if tracker.known is not None:
        if len(state.journals[at.stay - 1]) == tracker.behind:
            yield "tracker appends", noted(without, at.stay, Entry(tracker.stream, tracker.known))
        else:
            yield "tracker is refused", without
        return
    if is_closed(state.journals[at.stay - 1]):
        yield "tracker finds the journal closed", without
        return
    for stream in world.keys if not (state.dead and at.cluster == "a") else ():
        held = state.held(place_key(world, at.cluster, at.folder, stream))
        read, journal = read_stream(world, state, at, stream), state.journals[at.stay - 1]
        is_own = world.fault == "A53" or (read is not None and read.number == held)
        if held is not None and is_own and held <= end(world, state, stream, at.cluster):
            known = Known(held, record_before(world, state, stream, at.cluster, held))
            yield f"tracker reads {stream}", state._replace(tracker=Tracker(at, stream, known, len(journal)))


def disturbances(world: World, state: State) -> Iterator[Step]:
    for cluster in world.clusters[1:]:
        if cluster not in state.arrived:
            arrived = "".join(sorted((*state.arrived, cluster)))
            yield f"the mirror catches up on {cluster}", state._replace(arrived=arrived)
        if state.left.syncs and world.place is Place.GROUP and not any(e.cluster == cluster for e in state.drivers):
            yield from _sync(world, state, cluster)
    if state.left.outages and not state.dead:
        yield "a dies", spend(state, "outages", dead=True, drivers=tuple(e for e in state.drivers if e.cluster != "a"))
    if state.dead:
        yield "a returns", state._replace(dead=False)
    if state.left.restores:
        yield from _restores(world, state)
    if state.left.restores and world.fault == "A1" and not state.drivers and not state.hooks:
        empty = beginning(world, state.left)
        yield "an empty state store", spend(state, "restores", locations=empty.locations, journals=empty.journals)


def _sync(world: World, state: State, cluster: str) -> Iterator[Step]:
    """MirrorMaker commits a cluster's group further on than the job is."""
    for stream in world.keys:
        key = place_key(world, cluster, 0, stream)
        later = min((state.held(key) or 0) + 1, end(world, state, stream, cluster))
        synced = state.synced | {(cluster, key[1], later)}
        yield "group sync", spend(state, "syncs", place=put(state.place, {key: Number(later, 0)}), synced=synced)


def _restores(world: World, state: State) -> Iterator[Step]:
    if state.saved is None:
        yield "backup of the place", state._replace(saved=state, saves="place")
        yield "backup of the state store", state._replace(saved=state, saves="store")
        return
    if state.hooks or state.drivers:
        return
    if state.saves == "place" and world.place in (Place.AT_ONCE, Place.BY_ROW, Place.JOB_ONLY):
        put_back = state._replace(place=state.saved.place, put_back=True, disturbed=True)
        yield "the place is put back", spend(put_back, "restores")
    # A place that has no room for a stay cannot show that the store is an old one.
    if state.saves == "store" and (world.marked or world.place is Place.CHECKPOINT):
        put_back = state._replace(locations=state.saved.locations, journals=state.saved.journals, disturbed=True)
        yield "the state store is put back", spend(put_back, "restores")
