"""The world of the hand-over model: logs, a place of bare numbers, the state store, and who acts in it.

One job reads one or two streams on one of two or three clusters. Records of a stream are numbered 0, 1, 2, … where they
are made; each copy has other offsets, so that one cluster's number skips or repeats records on another. The copies of A
never get its first record, and its last ones only when the mirror catches up. Everything is a value: a step makes a new
state.

Outside the model: production on both sides under one topic name, and a driver on another stay that writes bare numbers
without reading its location (a place whose rows have no room for the stay cannot show it).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from reconciler.state.stored import Known, PlanRow

Cluster = str
Stream = str


class Log(tuple[Any, ...]):
    """A tuple that calculates its hash once: most steps leave the journals and the plans as they are."""

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash: int = super().__hash__()
            return self._hash


class Place(Enum):
    """How the numbers of a job are kept, and who writes them."""

    AT_ONCE = "all rows in one compare-and-set"
    BY_ROW = "a compare-and-set a row"
    JOB_ONLY = "only the job's own transaction"
    GROUP = "a consumer group on each cluster"
    JOURNAL = "the journal itself"
    CHECKPOINT = "a folder a stay"


class Names(Enum):
    """Under which keys the streams are stored: a stream's key on each cluster."""

    ONE = "one name on both sides"
    TWO = "two names"
    EXCHANGED = "two origins, whose names change sides"


KEYS: dict[Names, dict[Stream, dict[Cluster, str]]] = {
    Names.ONE: {"A": {"a": "events", "b": "events", "c": "events"}},
    Names.TWO: {"A": {"a": "events", "b": "a.events", "c": "a.events"}},
    Names.EXCHANGED: {
        "A": {"a": "events", "b": "a.events", "c": "a.events"},
        "B": {"a": "b.events", "b": "events", "c": "b.events"},
    },
}
WRITES = ("plan", "check", "writing", "closing", "journal", "numbers", "lives", "start")
"""What a hook that moves a job does, in this order; ``check`` compares the place with the plan."""
MADE = {"A": 4, "B": 3}
"""The records of each stream on the cluster that makes them."""


class World(NamedTuple):
    """What does not change within a history, and the rule that is taken out."""

    place: Place
    names: Names
    marked: bool = False
    """True if a row has room for the stay of the job that wrote it."""
    base: int = 2
    """The offset of a stream's first record where it is made."""
    copied: int = 0
    """The offset of its first record on b; on c it is one more."""
    fault: str = ""
    """The attack whose rule is taken out (attacks of the design), e.g. "A5"."""
    clusters: str = "ab"
    renamed: bool = False
    """True if mirrors rename groups: the job's group has another name on a than elsewhere."""
    writes: tuple[str, ...] = WRITES

    @property
    def keys(self) -> dict[Stream, dict[Cluster, str]]:
        return KEYS[self.names]

    def exchanged(self, one: str, other: str) -> World:
        """The world in which a hook does ``other`` when it should do ``one``, and the reverse."""
        swap = {one: other, other: one}
        return self._replace(writes=tuple(swap.get(each, each) for each in self.writes))


class Location(NamedTuple):
    """The state store's entry that says where the job lives."""

    state: str
    """"lives", "moving" or "writing"."""
    cluster: Cluster
    stay: int
    folder: int = 0
    to: Cluster = ""
    plan: int = -1
    """The plan being written, or by which this stay began."""


class Row(NamedTuple):
    """One stream of a plan."""

    stream: Stream
    planned: PlanRow[int]
    end: int | None = None
    """Where the batch ends that a checkpoint repeats; None if it has begun none."""
    end_again: int = 0
    """Records of that batch that may be put out again: it is repeated empty, and they come in the next one."""


class Plan(NamedTuple):
    leaves: Cluster
    to: Cluster
    rows: Log
    """``Row`` by stream."""
    is_back: bool = False
    """It gives back what another plan replaced."""

    def whole(self, stream: Stream) -> Row:
        return next(each for each in self.rows if each.stream == stream)

    def row(self, stream: Stream) -> PlanRow[int]:
        return self.whole(stream).planned


class Entry(NamedTuple):
    """One stream's part of a journal entry."""

    stream: Stream
    """"" for the closing entry."""
    known: Known[int]


CLOSING = Entry("", Known(0, None))


class Number(NamedTuple):
    value: int
    stay: int
    """The stay of the driver that wrote it; read only where rows have room for it."""


class Driver(NamedTuple):
    """A running job: where it reads, and the next offset of each stream."""

    cluster: Cluster
    stay: int
    folder: int
    next: tuple[tuple[Stream, int], ...]
    begun: Stream = ""
    """The stream of which it has begun a batch (where the place is the journal or a checkpoint)."""
    batch: int = 0
    """Its next batch's number, in a checkpoint."""


class Hook(NamedTuple):
    """A hook, an `apply` or a cancel between two of its writes."""

    at: str
    seen: int
    """How many locations there were when it last read or wrote them."""
    plan: int = -1
    row: int = 0
    folder: int = 0
    starts: bool = True
    """False for a cancel or a rollback, which starts no job."""
    made: Plan | None = None
    """Its plan, until it is stored."""


class Tracker(NamedTuple):
    """A tracker outside of the job, between where the job lives, the place, and its append."""

    location: Location
    stream: Stream = ""
    known: Known[int] | None = None
    behind: int = 0
    """How many entries the journal had when it was read: an append has the next number, or is refused."""


class Left(NamedTuple):
    """How often each kind of event may still happen."""

    moves: int = 2
    cancels: int = 0
    rollbacks: int = 0
    starts: int = 3
    kills: int = 1
    syncs: int = 0
    restores: int = 0
    outages: int = 0
    tracks: int = 0
    at_once: int = 2
    """Not an event: so many hooks may work at the same time."""


class State(NamedTuple):
    locations: tuple[Location, ...]
    plans: tuple[Plan, ...]
    journals: tuple[Log, ...]
    """``Entry`` by stay."""
    place: tuple[tuple[tuple[object, str], Number], ...]
    """(folder or cluster or None, key) -> number, sorted."""
    processed: frozenset[tuple[Stream, int]]
    strays: frozenset[tuple[Stream, int]]
    """Processed by a driver whose job had been moved: no plan can have counted them."""
    drivers: tuple[Driver, ...]
    hooks: tuple[Hook, ...]
    arrived: str
    """The clusters that the last records of A have reached."""
    synced: frozenset[tuple[Cluster, str, int]]
    """What MirrorMaker's group sync has committed: (cluster, key, number)."""
    dead: bool
    """Cluster a does not answer."""
    tracker: Tracker | None
    taken: int = 0
    """How many batches of a checkpoint's query its sink has; it drops one that it has already."""
    saves: str = ""
    """What the backup is of: the "place" or the "store"."""
    put_back: bool = False
    """The place was put back: what it had processed since cannot be counted."""
    disturbed: bool = False
    """A restore or a stray driver took part: stopping is an answer, too."""
    saved: State | None = None
    """The state of which a backup was made."""
    left: Left = Left()

    def held(self, key: tuple[object, str]) -> int | None:
        """The number in the place."""
        return next((number.value for at, number in self.place if at == key), None)

    @property
    def location(self) -> Location:
        return self.locations[-1]


Step = tuple[str, State]
"""What happened, and the state after it."""


def put(place: tuple[Any, ...], changes: Mapping[tuple[object, str], Number]) -> tuple[Any, ...]:
    """The place with other numbers under some keys."""
    return tuple(sorted((dict(place) | changes).items()))


def is_closed(journal: Log) -> bool:
    return bool(journal) and journal[-1] is CLOSING


def log(world: World, state: State, stream: Stream, cluster: Cluster) -> tuple[int, range]:
    """The offset of the first record on `cluster`, and the record numbers held there."""
    made = MADE[stream]
    if cluster == ("a" if stream == "A" else "b"):
        return world.base, range(made)
    first = world.copied + (cluster == "c")
    if stream == "B":
        return first, range(made)
    late = 0 if cluster in state.arrived else 2 if cluster == "c" else 1
    return first, range(1, made - late)


def end(world: World, state: State, stream: Stream, cluster: Cluster) -> int:
    start, records = log(world, state, stream, cluster)
    return start + len(records)


def behind(world: World, state: State, stream: Stream, cluster: Cluster, record: int | None) -> int:
    """The offset of the first record after `record`: what the proven search answers."""
    start, records = log(world, state, stream, cluster)
    return start if record is None else start + min(max(record + 1 - records.start, 0), len(records))


def record_before(world: World, state: State, stream: Stream, cluster: Cluster, number: int) -> int | None:
    start, records = log(world, state, stream, cluster)
    return records[number - start - 1] if number > start else None


MADE_BY = "made by the plan"
BATCHES = "batches committed"
"""In a checkpoint's folder: the plan that made it, and how many batches it has."""


def end_key(folder: int, stream: Stream) -> tuple[object, str]:
    """The key in a checkpoint's folder of where the batch ends that has begun."""
    return folder, f"end of {stream}"


def place_key(world: World, cluster: Cluster, folder: int, stream: Stream) -> tuple[object, str]:
    """Under which key the number of `stream` is stored."""
    key = KEYS[world.names][stream][cluster]
    if world.place is Place.GROUP:
        return cluster, key
    return (folder if world.place is Place.CHECKPOINT else 0), key


def beginning(world: World, left: Left) -> State:
    """A job that has just been placed at its home, with the first entry of its journal."""
    starts = [Entry(stream, Known(log_start(world, stream), None)) for stream in world.keys]
    place = {place_key(world, "a", 0, each.stream): Number(each.known.number, 1) for each in starts}
    return State(
        locations=(Location("lives", "a", 1),),
        plans=(),
        journals=(Log(starts),),
        place=() if world.place is Place.JOURNAL else put((), place),
        processed=frozenset(),
        strays=frozenset(),
        drivers=(),
        hooks=(),
        arrived="",
        synced=frozenset(),
        dead=False,
        tracker=None,
        left=left,
    )


def log_start(world: World, stream: Stream) -> int:
    """The first offset of `stream` on a."""
    return world.base if stream == "A" else world.copied


def spend(state: State, kind: str, **changes: Any) -> State:
    """The state in which an event of this kind may happen once less."""
    counted: dict[str, Any] = {kind: getattr(state.left, kind) - 1}
    left = state.left._replace(**counted)
    return state._replace(left=left, **changes)


def noted(state: State, stay: int, *entries: Entry) -> State:
    """The state with more entries in the journal of a stay."""
    journals = [*state.journals, *[Log()] * (stay - len(state.journals))]
    journals[stay - 1] = Log((*journals[stay - 1], *entries))
    return state._replace(journals=tuple(journals))
