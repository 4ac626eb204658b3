"""The world of the hand-over model: logs, a place of bare numbers, the state store, and who acts in it.

One job reads one or two streams on cluster a or b. Records of a stream are numbered 0, 1, 2, … where they are made; the
copy on the other cluster has other offsets, so that either cluster's number skips or repeats records on the other. The
copy of A never gets its first record, and its last one only when the mirror catches up. Everything is a value: a step
makes a new state.

Outside the model: production on both sides under one topic name, and a driver on another stay that writes bare numbers
without reading its location (a place whose rows have no room for the stay cannot show it).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from reconciler.state.stored import Known, PlanRow

Cluster = str
Stream = str


class Place(Enum):
    """How the numbers of a job are kept, and who writes them."""

    AT_ONCE = "all rows in one compare-and-set"
    BY_ROW = "a compare-and-set a row"
    JOB_ONLY = "only the job's own transaction"
    GROUP = "a consumer group on each cluster"
    JOURNAL = "the journal itself"
    CHECKPOINT = "a folder a stay"


class Names(Enum):
    """Under which keys the streams are stored: a stream's key on a, and on b."""

    ONE = "one name on both sides"
    TWO = "two names"
    EXCHANGED = "two origins, whose names change sides"


KEYS: dict[Names, dict[Stream, dict[Cluster, str]]] = {
    Names.ONE: {"A": {"a": "events", "b": "events"}},
    Names.TWO: {"A": {"a": "events", "b": "a.events"}},
    Names.EXCHANGED: {"A": {"a": "events", "b": "a.events"}, "B": {"a": "b.events", "b": "events"}},
}
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
    """The offset of its first record on the other cluster."""
    fault: str = ""
    """The attack whose rule is taken out (attacks of the design), e.g. "A5"."""

    @property
    def keys(self) -> dict[Stream, dict[Cluster, str]]:
        return KEYS[self.names]


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


class Plan(NamedTuple):
    leaves: Cluster
    to: Cluster
    rows: tuple[Row, ...]

    def row(self, stream: Stream) -> PlanRow[int]:
        return next(each.planned for each in self.rows if each.stream == stream)


class Entry(NamedTuple):
    """One stream's part of a journal entry."""

    stream: Stream
    known: Known[int]


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
    """The stream of which it has begun a batch (only where the journal is the place)."""


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
    journals: tuple[tuple[Entry, ...], ...]
    place: tuple[tuple[tuple[object, str], Number], ...]
    """(folder or cluster or None, key) -> number, sorted."""
    processed: frozenset[tuple[Stream, int]]
    strays: frozenset[tuple[Stream, int]]
    """Processed by a driver whose job had been moved: no plan can have counted them."""
    drivers: tuple[Driver, ...]
    hooks: tuple[Hook, ...]
    arrived: bool
    """The last record of A has reached b."""
    synced: frozenset[tuple[Cluster, str, int]]
    """What MirrorMaker's group sync has committed: (cluster, key, number)."""
    dead: bool
    """Cluster a does not answer."""
    tracker: Tracker | None
    left: Left
    saved: State | None = None
    """The state of which a backup was made."""
    saves: str = ""
    """What the backup is of: the "place" or the "store"."""
    put_back: bool = False
    """The place was put back: what it had processed since cannot be counted."""
    disturbed: bool = False
    """A restore or a stray driver took part: stopping is an answer, too."""

    def held(self, key: tuple[object, str]) -> int | None:
        """The number in the place."""
        return next((number.value for at, number in self.place if at == key), None)

    @property
    def location(self) -> Location:
        return self.locations[-1]


def log(world: World, state: State, stream: Stream, cluster: Cluster) -> tuple[int, range]:
    """The offset of the first record on `cluster`, and the record numbers held there."""
    made = MADE[stream]
    if (stream == "A") == (cluster == "a"):
        return world.base, range(made)
    return world.copied, range(1 if stream == "A" else 0, made if state.arrived or stream == "B" else made - 1)


def end(world: World, state: State, stream: Stream, cluster: Cluster) -> int:
    start, records = log(world, state, stream, cluster)
    return start + len(records)


def behind(world: World, state: State, stream: Stream, cluster: Cluster, record: int | None) -> int:
    """The offset of the first record after `record`: what the proven search answers."""
    start, records = log(world, state, stream, cluster)
    return start + sum(1 for each in records if record is not None and each <= record)


def record_before(world: World, state: State, stream: Stream, cluster: Cluster, number: int) -> int | None:
    start, records = log(world, state, stream, cluster)
    return records[number - start - 1] if number > start else None


MADE_BY = "made by the plan"
"""In a copy's folder: the plan that made it."""


def place_key(world: World, cluster: Cluster, folder: int, stream: Stream) -> tuple[object, str]:
    """Under which key the number of `stream` is stored."""
    key = world.keys[stream][cluster]
    if world.place is Place.GROUP:
        return cluster, key
    return (folder if world.place is Place.CHECKPOINT else 0), key


def beginning(world: World, left: Left) -> State:
    """A job that has just been placed at its home, with the first entry of its journal."""
    starts = tuple(Entry(stream, Known(log_start(world, stream), None)) for stream in world.keys)
    return State(
        locations=(Location("lives", "a", 1),),
        plans=(),
        journals=(starts,),
        place=()
        if world.place is Place.JOURNAL
        else tuple(sorted((place_key(world, "a", 0, each.stream), Number(each.known.number, 1)) for each in starts)),
        processed=frozenset(),
        strays=frozenset(),
        drivers=(),
        hooks=(),
        arrived=False,
        synced=frozenset(),
        dead=False,
        tracker=None,
        left=left,
    )


def log_start(world: World, stream: Stream) -> int:
    """The first offset of `stream` on a."""
    return world.base if stream == "A" else world.copied
