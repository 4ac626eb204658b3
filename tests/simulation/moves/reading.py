"""How a stored number is read, and how a plan is made of it: the rules that the product must follow.

Theory. In the stay that plan P began, the place holds under a key one of four things: a number that the job itself
stored in this stay; what P replaced (the write has not happened, or only the job may do it, or it was put back); a
number of another stay; nothing. The journal of the stay has the job's numbers, P has what it replaced. A number in
neither may be the job's own, and is proven up to the entry below it. Where the key is used on one cluster only, or its
row names the stay, it is the job's own. Elsewhere a driver that was not stopped, or a table that was put back, may have
left it: the job starts at the entry below, which this stay has processed whoever wrote the number.
"""

from __future__ import annotations

from tests.simulation.moves.world import (
    Cluster,
    Entry,
    Location,
    Place,
    Plan,
    Row,
    State,
    Stored,
    Stream,
    World,
    behind,
    end,
    log,
    place_key,
    record_before,
)


def read_stream(world: World, state: State, location: Location, stream: Stream) -> Stored | None:
    """The stored number; None if a decision is needed (exit code 4)."""
    journal = [each for each in state.journals[location.stay - 1] if each.stream == stream]
    newest = [each for each in journal if each.processed or world.fault == "A14"][-1]
    if world.place is Place.JOURNAL:
        return _from_entry(newest, journal, journal[-1].number)
    if world.place is Place.GROUP and state.dead and location.cluster == "a":
        return _from_entry(newest, journal, end(world, state, stream, "a"))
    later = any(each.stay > location.stay for _, each in state.place)
    if world.place is Place.CHECKPOINT and location.state == "lives" and later and world.fault != "A2":
        return None
    held = dict(state.place).get(place_key(world, location.cluster, location.folder, stream))
    if held and world.marked and held.stay > location.stay and world.fault != "A2":
        return None
    foreign = bool(held and world.marked and held.stay < location.stay and world.fault != "A11")
    value = held.value if held else None
    if world.place is Place.JOB_ONLY and world.fault == "A9" and value is not None:
        return _at_face_value(world, state, location, stream, value)
    return _judge(world, state, location, stream, value, foreign, journal)


def _judge(
    world: World,
    state: State,
    location: Location,
    stream: Stream,
    value: int | None,
    foreign: bool,
    journal: list[Entry],
) -> Stored | None:
    exact = [each for each in journal if each.number == value]
    if exact and not foreign:
        return _from_entry(exact[-1], journal)
    row = _row(state, location, stream)
    if row and (value is None or value in row.replaced):
        return _from_entry(journal[0], journal, 0 if value is None or foreign else value)
    if value is None or foreign:
        return None
    key = world.keys[stream][location.cluster]
    if world.place is Place.GROUP and (location.cluster, key, value) in state.synced and world.fault != "A19":
        return _from_entry(journal[-1], journal, value)
    if world.fault in ("A10", "A11"):
        return _at_face_value(world, state, location, stream, value)
    below = [each for each in journal if each.number < value]
    if not below:
        return None
    proven = _from_entry(below[-1], journal, value)
    if row and not world.marked and _is_shared(world, location, stream):
        return proven
    return Stored(value, proven.record, proven.furthest - value, proven.ahead)


def _from_entry(entry: Entry, journal: list[Entry], reached: int = 0) -> Stored:
    """The number of an entry. The job may have processed up to `reached`, or to any number that the journal has."""
    furthest = max(reached, *(each.number + each.again for each in journal))
    again = furthest - entry.number
    return Stored(entry.number, entry.record, again, again + entry.older)


def _is_shared(world: World, location: Location, stream: Stream) -> bool:
    """True if the number under the stream's key can be one of another cluster."""
    if world.place in (Place.GROUP, Place.CHECKPOINT):
        return False
    other = "b" if location.cluster == "a" else "a"
    return world.keys[stream][location.cluster] in [keys[other] for keys in world.keys.values()]


def _at_face_value(world: World, state: State, location: Location, stream: Stream, value: int) -> Stored:
    value = min(value, end(world, state, stream, location.cluster))
    return Stored(value, record_before(world, state, stream, location.cluster, value), 0, 0)


def _row(state: State, location: Location, stream: Stream) -> Row | None:
    """The stream's row of the plan that began this stay."""
    if location.plan < 0:
        return None
    return next(each for each in state.plans[location.plan].rows if each.stream == stream)


def make_plan(world: World, state: State, to: Cluster) -> Plan | None:
    """A plan of the move; None if a decision is needed."""
    here = state.location
    rows = []
    for stream in world.keys:
        read = read_stream(world, state, here, stream)
        if read is None:
            return None
        proven = behind(world, state, stream, to, read.record)
        missing = _never_delivered(world, state, stream, to, proven)
        new, record = proven, read.record
        if missing and world.fault != "A50":
            new, record = missing[0], record_before(world, state, stream, to, missing[0])
        again = read.ahead + _undelivered(world, state, stream, to, read.record)
        if world.fault != "A21":
            again += max([proven, *_reached_before(state, stream, to)]) - new
        replaced = frozenset({state.held(place_key(world, to, here.folder, stream))})
        rows.append(Row(stream, new, record, replaced, again, 0, read))
    return Plan(here.cluster, to, tuple(rows))


def _reached_before(state: State, stream: Stream, cluster: Cluster) -> list[int]:
    """The numbers up to which earlier stays on `cluster` may have processed the stream."""
    return [each.furthest for each in _left_before(state, stream, cluster)]


def _left_before(state: State, stream: Stream, cluster: Cluster) -> list[Stored]:
    rows = [row for plan in state.plans if plan.leaves == cluster for row in plan.rows]
    return [row.stored for row in rows if row.stream == stream]


def _undelivered(world: World, state: State, stream: Stream, to: Cluster, record: int | None) -> int:
    """Processed records that `to` does not have yet: they are read again if the mirror delivers them."""
    _, records = log(world, state, stream, to)
    return max(0, record - records[-1]) if record is not None else 0


def _never_delivered(world: World, state: State, stream: Stream, to: Cluster, new: int) -> list[int]:
    """The offsets before `new` with records the earlier stays on `to` had not read, and the other cluster lacks."""
    left = [each.number for each in _left_before(state, stream, to)]
    if not left:
        return []
    start, records = log(world, state, stream, to)
    _, elsewhere = log(world, state, stream, state.location.cluster)
    between = range(max(left), new)
    return [each for each in between if records[each - start] not in elsewhere]


def plan_back(world: World, state: State, plan: Plan) -> Plan:
    """The plan that gives back exactly the numbers from which `plan` left: a cancel, or a rollback."""
    written = {world.keys[each.stream][plan.to]: each for each in plan.rows}
    rows = []
    for each in plan.rows:
        over = None if world.place is Place.GROUP else written.get(world.keys[each.stream][plan.leaves])
        held = state.held(place_key(world, plan.leaves, state.location.folder, each.stream))
        replaced = frozenset({held, *({over.new, *over.replaced} if over else {each.stored.number})})
        there = Stored(each.new, each.record, each.again, each.again + each.older)
        stored = each.stored
        older = stored.ahead - stored.again
        rows.append(Row(each.stream, stored.number, stored.record, replaced, stored.again, older, there))
    return Plan(plan.to, plan.leaves, tuple(rows))
