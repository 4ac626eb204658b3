"""How the model's places are read and its plans made: the world's part; the rules are the product's own code."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from reconciler.state.stored import Doubt, Found, Known, PlanRow, Stored, newest, plan_back, read_number
from tests.simulation.moves.world import (
    Cluster,
    Location,
    Log,
    Place,
    Plan,
    Row,
    State,
    Stream,
    World,
    behind,
    end,
    end_key,
    log,
    place_key,
    record_before,
)

T = TypeVar("T")


class Memory:
    """Answers of pure functions in the newest world, by what they depend on: most steps change little of that."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._answers: dict[Hashable, Any] = {}

    def get(self, world: World, key: Hashable, find: Callable[[], T]) -> T:
        if world is not self._world or len(self._answers) > 300_000:
            self._world, self._answers = world, {}
        try:
            found: T = self._answers[key]
        except KeyError:
            found = self._answers[key] = find()
        return found


_memory = Memory()


def plan_of(state: State, number: int) -> Plan | None:
    """The plan of that number; None if there is none, or it is not stored yet."""
    return state.plans[number] if 0 <= number < len(state.plans) else None


def journal_of(state: State, stay: int) -> Log:
    """The journal of a stay, which may have none yet."""
    return state.journals[stay - 1] if stay <= len(state.journals) else Log()


def seen(state: State, location: Location) -> Hashable:
    """What a reading of the job's numbers depends on."""
    journal, plan = journal_of(state, location.stay), plan_of(state, location.plan)
    newest = newest_stay(state, location)
    return location, journal, state.place, plan, state.arrived, state.synced, state.dead, newest


def read_stream(world: World, state: State, location: Location, stream: Stream) -> Stored[int] | None:
    """The stored number; None if a decision is needed (exit code 4)."""
    return _memory.get(world, (stream, seen(state, location)), lambda: read(world, state, location, stream))


def read(world: World, state: State, location: Location, stream: Stream) -> Stored[int] | None:
    """As ``read_stream``, without a memory: the product's function takes its place."""
    journal = [each.known for each in journal_of(state, location.stay) if each.stream == stream]
    row = _row(state, location, stream)
    if row and location.state != "writing":  # where the stay began comes first, whether its journal has it or not
        journal = [row.planned.first(), *journal]
    if world.place is Place.CHECKPOINT:
        journal = [each for each in journal if each.processed]
    if world.fault == "A14":
        journal = [Known(each.number, each.record, each.again, each.older) for each in journal]
    if world.place is Place.JOURNAL:
        return newest(journal, reached=journal[-1].number)
    if world.place is Place.GROUP and state.dead and location.cluster == "a":
        return newest(journal, reached=end(world, state, stream, "a"))
    later = any(each.stay > newest_stay(state, location) for _, each in state.place)
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
    number = read_number(found, journal, row.planned if row else None, location.stay)
    return None if isinstance(number, Doubt) else number


def newest_stay(state: State, location: Location) -> int:
    """The newest stay of which the state store knows: a copy for it may have been made, and not be lived in yet."""
    newest = state.location
    return max(location.stay, newest.plan + 2 if newest.state == "writing" else 0)


def read_end(world: World, state: State, location: Location, stream: Stream, number: int) -> int | None:
    """The record before the end of a batch that has begun, if a journal of a stay on this cluster has it."""
    stays = [each.stay for each in state.locations if each.state == "lives" and each.cluster == location.cluster]
    entries = [each for stay in sorted({*stays}) for each in journal_of(state, stay)]
    known = [each.known for each in entries if each.stream == stream and each.known.number == number]
    return known[-1].record if known else None


def _is_taken_at_face_value(world: World, location: Location, value: int, journal: list[Known[int]]) -> bool:
    """Whether the rule is gone by which the number would not be believed."""
    if world.place is Place.JOB_ONLY and world.fault == "A9":
        return True
    return world.fault in ("A10", "A11") and location.plan >= 0 and all(each.number != value for each in journal)


def _is_of_mirror(world: World, state: State, location: Location, stream: Stream, value: int) -> bool:
    if world.fault == "A54" and world.renamed:  # the mirror's checkpoint has the group's name on a
        return False
    return (location.cluster, world.keys[stream][location.cluster], value) in state.synced


def _is_shared(world: World, state: State, location: Location, stream: Stream) -> bool:
    """True if the number under the stream's key can be one of another cluster, or of an earlier stay on this one."""
    if world.place in (Place.GROUP, Place.CHECKPOINT):
        return False
    plan = plan_of(state, location.plan)
    if plan and plan.leaves == location.cluster:
        return True
    others = [each for each in world.clusters if each != location.cluster]
    return world.keys[stream][location.cluster] in [keys[other] for keys in world.keys.values() for other in others]


def _at_face_value(world: World, state: State, location: Location, stream: Stream, value: int) -> Stored[int]:
    value = min(value, end(world, state, stream, location.cluster))
    return Stored(value, record_before(world, state, stream, location.cluster, value), 0, 0)


def _row(state: State, location: Location, stream: Stream) -> Row | None:
    """The stream's row of the plan that began this stay."""
    plan = plan_of(state, location.plan)
    return plan.whole(stream) if plan else None


def make_plan(world: World, state: State, here: Location, to: Cluster) -> Plan | None:
    """A plan of the move from ``here``; None if a decision is needed."""
    rows = []
    for stream in world.keys:
        read = read_stream(world, state, here, stream)
        if read is None:
            return None
        proven = behind(world, state, stream, to, read.record)
        missing = _never_delivered(world, state, stream, here.cluster, to, proven)
        new, record = proven, read.record
        if missing and world.fault != "A50":
            new, record = missing[0], record_before(world, state, stream, to, missing[0])
        left = [] if world.fault == "A21" else _left_before(state, stream, to)
        reached = new if world.fault == "A21" else proven
        ahead = read.ahead + _undelivered(world, state, stream, to, read.record)
        again = max([reached, *(each.furthest for each in left)]) - new + ahead
        replaced = frozenset({state.held(place_key(world, to, here.folder, stream))})
        stop, more = _end_there(world, state, here, to, stream, new, read.number)
        if (ahead or more) and left:  # these records may be behind ones that the other cluster lacks
            more += len(_lacked(world, state, stream, here.cluster, to, range(new, end(world, state, stream, to))))
        rows.append(Row(stream, PlanRow(new, record, again + more, 0, replaced, read), stop))
    return Plan(here.cluster, to, Log(rows))


def _end_there(
    world: World, state: State, here: Location, to: Cluster, stream: Stream, start: int, number: int
) -> tuple[int | None, int]:
    """Where the batch ends on ``to`` that a checkpoint has begun, and how many of its records come again behind that.

    It is repeated empty, from ``start`` to ``start``, if its end is not proven. It ends in front of a record that it
    did not have: a sink that has the batch would drop that.
    """
    stop = state.held(end_key(here.folder, stream)) if world.place is Place.CHECKPOINT else None
    if stop is None:
        return None, 0
    record = read_end(world, state, here, stream, stop)
    at = start if record is None else behind(world, state, stream, to, record)
    if world.fault == "A55":  # an end that is not proven is where the log ends
        at = end(world, state, stream, to)
    missing = _never_delivered(world, state, stream, here.cluster, to, at)
    if missing and world.fault != "A57":
        at = missing[0]
    elif at > start:
        return at, _undelivered(world, state, stream, to, record)
    return max(at, start), 0 if world.fault == "A58" else stop - number


def _left_before(state: State, stream: Stream, cluster: Cluster) -> list[Stored[int]]:
    rows = [row for plan in state.plans if plan.leaves == cluster for row in plan.rows]
    return [row.planned.left for row in rows if row.stream == stream]


def _undelivered(world: World, state: State, stream: Stream, to: Cluster, record: int | None) -> int:
    """Processed records that `to` does not have yet: they are read again if the mirror delivers them."""
    _, records = log(world, state, stream, to)
    return max(0, record - records[-1]) if record is not None else 0


def _never_delivered(world: World, state: State, stream: Stream, left: Cluster, to: Cluster, new: int) -> list[int]:
    """The offsets before `new` with records the earlier stays on `to` had not read, and the other cluster lacks."""
    read = max((each.number for each in _left_before(state, stream, to)), default=new)
    return _lacked(world, state, stream, left, to, range(min(read, new), new))


def _lacked(world: World, state: State, stream: Stream, left: Cluster, to: Cluster, offsets: range) -> list[int]:
    """The offsets on ``to`` with records that ``left`` lacks, the cluster which the job leaves."""
    start, records = log(world, state, stream, to)
    _, elsewhere = log(world, state, stream, left)
    return [each for each in offsets if records[each - start] not in elsewhere]


def give_back(world: World, state: State, plan: Plan) -> Plan:
    """The plan that gives back exactly the numbers from which ``plan`` left: a cancel, or a rollback."""
    written = {world.keys[each.stream][plan.to]: each.planned for each in plan.rows}
    rows = []
    for each in plan.rows:
        over = None if world.place is Place.GROUP else written.get(world.keys[each.stream][plan.leaves])
        held = state.held(place_key(world, plan.leaves, state.location.folder, each.stream))
        replaced = {held, *({over.number, *over.replaced} if over else {each.planned.left.number})}
        rows.append(Row(each.stream, plan_back(each.planned, replaced)))
    return Plan(plan.to, plan.leaves, Log(rows), is_back=True)
