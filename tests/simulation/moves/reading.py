"""How the model's places are read and its plans made: the world's part; the rules are the product's own code."""

from __future__ import annotations

from reconciler.state.stored import Doubt, Found, Known, PlanRow, Stored, newest, plan_back, read_number
from tests.simulation.moves.world import (
    Cluster,
    Location,
    Place,
    Plan,
    Row,
    State,
    Stream,
    World,
    behind,
    end,
    log,
    place_key,
    record_before,
)


def read_stream(world: World, state: State, location: Location, stream: Stream) -> Stored[int] | None:
    """The stored number; None if a decision is needed (exit code 4)."""
    journal = [each.known for each in state.journals[location.stay - 1] if each.stream == stream]
    if world.fault == "A14":
        journal = [Known(each.number, each.record, each.again, each.older) for each in journal]
    if world.place is Place.JOURNAL:
        return newest(journal, reached=journal[-1].number)
    if world.place is Place.GROUP and state.dead and location.cluster == "a":
        return newest(journal, reached=end(world, state, stream, "a"))
    later = any(each.stay > location.stay for _, each in state.place)
    shows_stays = world.marked or world.place is Place.CHECKPOINT
    if shows_stays and location.state != "writing" and later and world.fault != "A2":
        return None
    held = dict(state.place).get(place_key(world, location.cluster, location.folder, stream))
    if held and _is_taken_at_face_value(world, location, held.value, journal):
        return _at_face_value(world, state, location, stream, held.value)
    of_stay = held.stay if held and world.marked else None
    if world.fault == "A2" and of_stay is not None:
        of_stay = min(of_stay, location.stay)
    found = Found(
        held.value if held else None,
        None if world.fault == "A11" else of_stay,
        _is_shared(world, state, location, stream),
        held is not None and world.fault != "A19" and _is_of_mirror(world, state, location, stream, held.value),
    )
    row = _row(state, location, stream)
    read = read_number(found, journal, row.planned if row else None, location.stay)
    return None if isinstance(read, Doubt) else read


def _is_taken_at_face_value(world: World, location: Location, value: int, journal: list[Known[int]]) -> bool:
    """Whether the rule is gone by which the number would not be believed."""
    if world.place is Place.JOB_ONLY and world.fault == "A9":
        return True
    return world.fault in ("A10", "A11") and location.plan >= 0 and all(each.number != value for each in journal)


def _is_of_mirror(world: World, state: State, location: Location, stream: Stream, value: int) -> bool:
    return (location.cluster, world.keys[stream][location.cluster], value) in state.synced


def _is_shared(world: World, state: State, location: Location, stream: Stream) -> bool:
    """True if the number under the stream's key can be one of another cluster, or of an earlier stay on this one."""
    if world.place in (Place.GROUP, Place.CHECKPOINT):
        return False
    if location.plan >= 0 and state.plans[location.plan].leaves == location.cluster:
        return True
    other = "b" if location.cluster == "a" else "a"
    return world.keys[stream][location.cluster] in [keys[other] for keys in world.keys.values()]


def _at_face_value(world: World, state: State, location: Location, stream: Stream, value: int) -> Stored[int]:
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
        left = [] if world.fault == "A21" else _left_before(state, stream, to)
        reached = new if world.fault == "A21" else proven
        ahead = read.ahead + _undelivered(world, state, stream, to, read.record)
        again = max([reached, *(each.furthest for each in left)]) - new + ahead
        replaced = frozenset({state.held(place_key(world, to, here.folder, stream))})
        rows.append(Row(stream, PlanRow(new, record, again, 0, replaced, read)))
    return Plan(here.cluster, to, tuple(rows))


def _left_before(state: State, stream: Stream, cluster: Cluster) -> list[Stored[int]]:
    rows = [row for plan in state.plans if plan.leaves == cluster for row in plan.rows]
    return [row.planned.left for row in rows if row.stream == stream]


def _undelivered(world: World, state: State, stream: Stream, to: Cluster, record: int | None) -> int:
    """Processed records that `to` does not have yet: they are read again if the mirror delivers them."""
    _, records = log(world, state, stream, to)
    return max(0, record - records[-1]) if record is not None else 0


def _never_delivered(world: World, state: State, stream: Stream, to: Cluster, new: int) -> list[int]:
    """The offsets before `new` with records the earlier stays on `to` had not read, and the other cluster lacks."""
    start, records = log(world, state, stream, to)
    _, elsewhere = log(world, state, stream, state.location.cluster)
    left = max((each.number for each in _left_before(state, stream, to)), default=new)
    return [each for each in range(min(left, new), new) if records[each - start] not in elsewhere]


def give_back(world: World, state: State, plan: Plan) -> Plan:
    """The plan that gives back exactly the numbers from which ``plan`` left: a cancel, or a rollback."""
    written = {world.keys[each.stream][plan.to]: each.planned for each in plan.rows}
    rows = []
    for each in plan.rows:
        over = None if world.place is Place.GROUP else written.get(world.keys[each.stream][plan.leaves])
        held = state.held(place_key(world, plan.leaves, state.location.folder, each.stream))
        replaced = {held, *({over.number, *over.replaced} if over else {each.planned.left.number})}
        rows.append(Row(each.stream, plan_back(each.planned, replaced)))
    return Plan(plan.to, plan.leaves, tuple(rows))
