"""Runs many partitions' searches in lockstep rounds, each round's probes batched into a few calls.

The number of rounds is that of the slowest partition, not the sum. Probes only read, so a round that failed because
brokers were away is repeated until the deadline; a partition whose range moved while it was searched (retention, a
new leader) starts over, a few times at most.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

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
)
from reconciler.ports import LogReader, ReadRequest
from reconciler.retry import insist

RESTARTS = 5
"""How often a partition may start over because retention moved its range."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
F = TypeVar("F")
"""The result of a search."""


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
    """One running search."""

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
        if any(isinstance(part, Chunk) and part.out_of_range for part in answers):
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
            name = f"{self.partition.topic}-{self.partition.partition}"
            raise Unreachable(
                f"The log of {name} moved {self._restarts} times while it was searched: "
                "its retention deletes faster than it can be read, or its leaders change.",
                hint="Raise the topic's retention.ms until the job has started, or let the brokers settle; "
                "then run this again.",
            )
        self._search.close()
        self._search = self._start()
        self._step(lambda: next(self._search))


@dataclass(slots=True)
class _Run:
    reader: LogReader
    clock: Callable[[], float]
    settings: EngineSettings
    began: float
    counts: dict[str, int] = field(default_factory=dict)


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
    tasks = {key: _Task(inquiry) for key, inquiry in inquiries.items()}
    active = [task for task in tasks.values() if task.found is None]
    rounds = 0
    while active:
        rounds += 1
        for task, answers in zip(active, _ask(state, active), strict=True):
            task.answer(answers)
        active = [task for task in active if task.found is None]
        if state.settings.on_progress:
            state.settings.on_progress(Progress(rounds, len(tasks) - len(active), len(tasks)))
    found = {key: task.found for key, task in tasks.items() if task.found is not None}
    return Outcome(found, state.counts, rounds)


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
        partitions = [tp for tp, _ in asked]
        starts = _insist(state, lambda: reader.log_starts(partitions))
        ends = _insist(state, lambda: reader.log_ends(partitions))
        return [LogRange(starts[tp], ends[tp]) for tp in partitions]
    if kind is TimeLookup:
        times = [(tp, probe.timestamp_ms) for tp, probe in asked if isinstance(probe, TimeLookup)]
        return _insist(state, lambda: reader.offsets_for_times(times))
    if kind is Cleaning:
        topics = _insist(state, lambda: reader.describe({tp.topic for tp, _ in asked})).topics
        return [topics[tp.topic].compacted if tp.topic in topics else None for tp, _ in asked]
    requests = [ReadRequest(tp, probe.offset, probe.max_records) for tp, probe in asked if isinstance(probe, Read)]
    return _insist(state, lambda: reader.read(requests))


def _insist(state: _Run, call: Callable[[], T]) -> T:
    """Repeat a call while the cluster is away, until the deadline. Reading twice is harmless."""
    return insist(call, give_up=lambda: state.clock() - state.began >= state.settings.deadline_s)
