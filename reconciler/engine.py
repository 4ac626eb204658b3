"""Runs many searches in lockstep rounds, each round's probes batched into a few calls.

A window of partitions is searched at a time. As searches end, those of the next partitions begin: a slow search holds
no other up, and memory does not grow with the run. A large run has two windows: another thread asks the log for one
while this one judges the answers to the other. All searches of one partition (many jobs read one topic) begin
together and share its answers: edges and times are asked once, and reads that overlap are made once. Probes only read,
so a round that failed because brokers were away is repeated until the deadline; a search whose log's range moved
meanwhile (retention, a new leader) starts over, a few times at most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, NoReturn, Self, TypeVar

from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import Unreachable
from reconciler.core.probes import (
    Answer,
    Chunk,
    Cleaning,
    Edges,
    LogMoved,
    LogRange,
    Probe,
    Read,
    Round,
    Search,
    TimeLookup,
    Withheld,
)
from reconciler.ports import LogReader, ReadRequest
from reconciler.retry import insist

RESTARTS = 5
"""How often a partition may start over because retention moved its range."""

PARTITIONS_AT_ONCE = 2_000
"""Partitions that are searched at a time, so the most in one call."""
SEARCHES_AT_ONCE = 8_000
"""Searches that run at a time, unless one partition has more: a running one takes about 3 kB."""
BY_TURNS = 1_000
"""A run of more partitions has two windows, each of half the size."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
F = TypeVar("F")
"""The result of a search."""
_Answered = Callable[[], list[tuple[Answer, ...]]]


@dataclass(frozen=True, slots=True)
class Inquiry(Generic[F]):
    """A partition and how to start its search; a restart calls ``start`` again."""

    partition: TopicPartition
    start: Callable[[], Search[F]]


@dataclass(frozen=True, slots=True)
class SearchResult(Generic[F]):
    """A finding and its cost."""

    finding: F
    probes: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a run, reported after every round."""

    rounds: int
    done: int
    partitions: int


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """``deadline_s``: seconds from the run's start after which it gives up an unreachable cluster."""

    deadline_s: float = 60.0
    on_progress: Callable[[Progress], None] | None = None


class _Task(Generic[F]):
    __slots__ = ("_probes", "_restarts", "_rounds", "_search", "_start", "asked", "found", "partition")

    def __init__(self, inquiry: Inquiry[F]) -> None:
        self.partition = inquiry.partition
        self.found: SearchResult[F] | None = None
        self.asked: Round = ()
        self._start = inquiry.start
        self._probes = self._rounds = self._restarts = 0
        self._search = inquiry.start()
        self._step(lambda: next(self._search))

    def answer(self, answers: tuple[Answer, ...]) -> None:
        """Send a round's answers to the search; start over if the log's range has moved."""
        if any(_is_moved(part) for part in answers):
            self._start_over()
        else:
            self._step(lambda: self._search.send(answers))

    def _step(self, advance: Callable[[], Round]) -> None:
        try:
            self.asked = advance()
        except StopIteration as stop:
            self.found = SearchResult(stop.value, self._probes, self._rounds)
            return
        except LogMoved:
            self._start_over()
            return
        self._probes += len(self.asked)
        self._rounds += 1

    def _start_over(self) -> None:
        self._restarts += 1
        if self._restarts > RESTARTS:
            raise Unreachable(
                f"The log of {self.partition} moved {self._restarts} times while it was searched: "
                "its retention deletes faster than it can be read, or its leaders change.",
                hint="Raise the topic's retention.ms until the job has started, or let the brokers settle; "
                "then run this again.",
            )
        self._search.close()
        self._search = self._start()
        self._step(lambda: next(self._search))


def _is_moved(answer: Answer) -> bool:
    return isinstance(answer, Chunk) and not isinstance(answer, Withheld) and answer.out_of_range


@dataclass(slots=True)
class _Run:
    reader: LogReader
    clock: Callable[[], float]
    settings: EngineSettings
    began: float
    counts: dict[str, int] = field(default_factory=dict)
    given_up: bool = False
    """Nothing is asked or repeated any more."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[K, F]):
    """All findings by the caller's keys, and the number of probes of each kind."""

    found: Mapping[K, SearchResult[F]]
    probes: Mapping[str, int]
    rounds: int


def run(
    reader: LogReader,
    inquiries: Mapping[K, Inquiry[F]],
    *,
    clock: Callable[[], float],
    settings: EngineSettings | None = None,
) -> Outcome[K, F]:
    """Run every search to its finding. ``clock`` gives monotonic seconds.

    Raises ``Unreachable`` if the cluster stays away past the deadline, ``Refused`` if it refuses.
    """
    state = _Run(reader, clock, settings or EngineSettings(), clock())
    searches = _Searches(inquiries)
    count = 2 if len({each.partition for each in inquiries.values()}) > BY_TURNS else 1
    windows = [_Window(searches, count) for _ in range(count)]
    rounds = 0
    with _Asker(state, apart=count > 1) as asker:
        asked = deque((window, asker.ask(window.fill())) for window in windows)
        while asked:
            window, answered = asked.popleft()
            if not window.running:
                continue
            rounds += 1
            for task, answers in zip(window.running.values(), answered(), strict=True):
                task.answer(answers)
            window.empty()
            if state.settings.on_progress:
                state.settings.on_progress(Progress(rounds, len(searches.found), len(inquiries)))
            asked.append((window, asker.ask(window.fill())))
    return Outcome({key: searches.found[key] for key in inquiries}, state.counts, rounds)


class _Searches(Generic[K, F]):
    """All searches of a run: ``waiting``, the last one to begin first, and what those that ended have ``found``."""

    def __init__(self, inquiries: Mapping[K, Inquiry[F]]) -> None:
        self.inquiries = inquiries
        self.waiting = sorted(inquiries, key=lambda key: inquiries[key].partition, reverse=True)
        self.found: dict[K, SearchResult[F]] = {}


class _Window(Generic[K, F]):
    """The searches that run together: one of ``count`` windows that take the same searches."""

    def __init__(self, searches: _Searches[K, F], count: int) -> None:
        self._searches = searches
        self._partitions = PARTITIONS_AT_ONCE // count
        self._most = SEARCHES_AT_ONCE // count
        self.running: dict[K, _Task[F]] = {}

    def fill(self) -> list[_Task[F]]:
        """Begin searches while there is room, all of a partition together; all that run now."""
        partitions = {task.partition for task in self.running.values()}
        inquiries, waiting = self._searches.inquiries, self._searches.waiting
        while waiting:
            key = waiting[-1]
            partition = inquiries[key].partition
            is_full = len(partitions) >= self._partitions or len(self.running) >= self._most
            if is_full and partition not in partitions:
                break
            task = _Task(inquiries[waiting.pop()])
            if task.found is not None:
                self._searches.found[key] = task.found
            else:
                self.running[key] = task
                partitions.add(partition)
        return list(self.running.values())

    def empty(self) -> None:
        """Take out the searches that have ended."""
        for key, task in list(self.running.items()):
            if task.found is not None:
                self._searches.found[key] = task.found
                del self.running[key]


class _Asker:
    """Asks the log for windows, one after the other: at once, or ``apart`` in a thread of its own.

    Only that thread uses the reader meanwhile. At a failure the call that is under way is waited for, since the caller
    may use the reader next; at an interrupt it is not.
    """

    def __init__(self, state: _Run, *, apart: bool) -> None:
        self._state = state
        self._orders: SimpleQueue[tuple[Sequence[_Task[Any]], SimpleQueue[_Answered]] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="asker", daemon=True) if apart else None

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._thread is None:
            return
        self._state.given_up = kind is not None
        self._orders.put(None)
        if kind is None or issubclass(kind, Exception):
            self._thread.join()

    def ask(self, active: Sequence[_Task[Any]]) -> _Answered:
        """A function that returns the answers, in each task's order, or raises their error."""
        if self._thread is None or not active:
            return partial(_ask, self._state, active)
        reply: SimpleQueue[_Answered] = SimpleQueue()
        self._orders.put((active, reply))
        return lambda: reply.get()()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            active, reply = order
            reply.put(self._asked(active))

    def _asked(self, active: Sequence[_Task[Any]]) -> _Answered:
        try:
            answers = [] if self._state.given_up else _ask(self._state, active)
        except Exception as error:  # noqa: BLE001 - it is raised where the answers are used
            return partial(_fail, error)
        return lambda: answers


def _fail(error: Exception) -> NoReturn:
    raise error


def _ask(state: _Run, active: Sequence[_Task[F]]) -> list[tuple[Answer, ...]]:
    """One round: group the probes by kind, make one batched call a kind, and return answers in each task's order."""
    places: dict[type[Probe], list[tuple[int, int]]] = {Edges: [], TimeLookup: [], Cleaning: [], Read: []}
    for index, task in enumerate(active):
        for slot, probe in enumerate(task.asked):
            places[type(probe)].append((index, slot))
    answers: list[list[Answer]] = [[None] * len(task.asked) for task in active]
    for kind, spots in places.items():
        if not spots:
            continue
        state.counts[kind.__name__] = state.counts.get(kind.__name__, 0) + len(spots)
        asked = [(active[index].partition, active[index].asked[slot]) for index, slot in spots]
        for (index, slot), answer in zip(spots, _ask_kind(state, kind, asked), strict=True):
            answers[index][slot] = answer
    return [tuple(answer) for answer in answers]


def _ask_kind(state: _Run, kind: type[Probe], asked: Sequence[tuple[TopicPartition, Probe]]) -> Sequence[Answer]:
    reader = state.reader
    if kind is Edges:
        partitions = list(dict.fromkeys(tp for tp, _ in asked))
        starts = _insist(state, lambda: reader.log_starts(partitions))
        ends = _insist(state, lambda: reader.log_ends(partitions))
        ranges = {tp: LogRange(starts[tp], ends[tp]) for tp in partitions}
        return [ranges[tp] for tp, _ in asked]
    if kind is TimeLookup:
        times = [(tp, probe.timestamp_ms) for tp, probe in asked if isinstance(probe, TimeLookup)]
        different = list(dict.fromkeys(times))
        offsets = dict(zip(different, _insist(state, lambda: reader.offsets_for_times(different)), strict=True))
        return [offsets[each] for each in times]
    if kind is Cleaning:
        topics = _insist(state, lambda: reader.describe({tp.topic for tp, _ in asked})).topics
        return [topics[tp.topic].compacted if tp.topic in topics else None for tp, _ in asked]
    reads = [(tp, probe) for tp, probe in asked if isinstance(probe, Read)]
    requests = [ReadRequest(tp, probe.offset, probe.max_records, probe.committed) for tp, probe in reads]
    return _read(state, requests)


def _read(state: _Run, requests: Sequence[ReadRequest]) -> list[Chunk]:
    """A chunk for each request, the same as if it were read alone; requests that overlap are read at once."""
    answers: dict[int, Chunk] = {}
    waiting: dict[tuple[TopicPartition, bool], list[int]] = {}
    for index in sorted(range(len(requests)), key=lambda index: (requests[index].offset, -requests[index].max_records)):
        waiting.setdefault((requests[index].partition, requests[index].committed), []).append(index)
    while waiting:
        turn = [_joined([requests[index] for index in indexes]) for indexes in waiting.values()]
        chunks = _insist(state, partial(state.reader.read, turn))
        for asked, chunk in zip(turn, chunks, strict=True):
            first, *others = waiting.pop((asked.partition, asked.committed))
            answers[first] = _part(chunk, asked, requests[first]) or chunk
            unserved = []
            for index in others:
                if (part := _part(chunk, asked, requests[index])) is not None:
                    answers[index] = part
                else:
                    unserved.append(index)
            if unserved:
                waiting[asked.partition, asked.committed] = unserved
    return [answers[index] for index in range(len(requests))]


def _joined(requests: Sequence[ReadRequest]) -> ReadRequest:
    """The first of a partition's requests, in order of their offsets, as long as those that overlap with it need.

    At most twice as long, so that jobs far and wide over a partition are not all read at once.
    """
    first, *others = requests
    end = first.offset + first.max_records
    for each in others:
        if each.offset >= end or each.offset + each.max_records > first.offset + 2 * first.max_records:
            break
        end = max(end, each.offset + each.max_records)
    return ReadRequest(first.partition, first.offset, end - first.offset, first.committed)


def _part(chunk: Chunk, asked: ReadRequest, request: ReadRequest) -> Chunk | None:
    """The answer to ``request`` within the chunk for ``asked``, whose offset is not higher; None if it holds none."""
    if request.offset == asked.offset and (isinstance(chunk, Withheld) or not chunk.records):
        return chunk
    if isinstance(chunk, Withheld):
        return None  # what lies behind may be readable
    if chunk.out_of_range or request.offset >= chunk.next_offset:
        return None
    if len(chunk.records) >= asked.max_records and request.offset + request.max_records > asked.offset + len(
        chunk.records
    ):
        return None  # it may lack records that lie behind the chunk
    first = bisect_left(chunk.records, request.offset, key=lambda record: record.offset)
    records = chunk.records[first : first + request.max_records]
    is_full = len(records) == request.max_records
    return Chunk(records, records[-1].offset + 1 if is_full else chunk.next_offset)


def _insist(state: _Run, call: Callable[[], T]) -> T:
    """Repeat a call while the cluster is away, until the deadline. Reading twice is harmless."""

    def left_s() -> float:
        return 0.0 if state.given_up else state.began + state.settings.deadline_s - state.clock()

    return insist(call, left_s=left_s)
