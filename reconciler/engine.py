"""Runs many partitions' searches in lockstep rounds, each round's probes batched into a few calls.

The number of rounds is that of the slowest partition, not the sum. Probes only read, so a round that failed because
brokers were away is asked again until the deadline; a partition whose range moved while it was searched (retention)
starts over, a few times at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from reconciler.core.errors import ReconcilerError, Unreachable
from reconciler.core.probes import Answer, Chunk, LogEnd, LogStart, Probe, Read, Round, Search, TimeLookup
from reconciler.core.verdicts import Finding
from reconciler.ports import LogReader, ReadRequest, TopicPartition

RESTARTS = 5
"""How often a partition may start over because retention moved its range."""

T = TypeVar("T")
Start = Callable[[], Search[Finding]]


@dataclass(frozen=True, slots=True)
class Found:
    """A finding and what it cost."""

    finding: Finding
    probes: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands: told after every round."""

    rounds: int
    done: int
    partitions: int


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """``deadline_s``: seconds from the run's start after which an unreachable cluster is given up."""

    deadline_s: float = 60.0
    on_progress: Callable[[Progress], None] | None = None


@dataclass(slots=True)
class _Task:
    start: Start
    search: Search[Finding]
    asked: Round = ()
    probes: int = 0
    rounds: int = 0
    restarts: int = 0


@dataclass(slots=True)
class _Run:
    reader: LogReader
    clock: Callable[[], float]
    settings: EngineSettings
    began: float
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All findings, and how many probes of each kind were asked (start, end, time, read)."""

    found: Mapping[TopicPartition, Found]
    probes: Mapping[str, int]
    rounds: int


def run(
    reader: LogReader,
    searches: Mapping[TopicPartition, Start],
    *,
    clock: Callable[[], float],
    settings: EngineSettings | None = None,
) -> Outcome:
    """Run every search to its finding. ``clock`` gives monotonic seconds.

    Raises ``Unreachable`` when the cluster stays away past the deadline, ``Refused`` when it says no.
    """
    state = _Run(reader, clock, settings or EngineSettings(), clock())
    tasks = {tp: _Task(start, start()) for tp, start in searches.items()}
    found: dict[TopicPartition, Found] = {}
    for tp, task in tasks.items():
        _resume(tp, task, None, found)
    rounds = 0
    while len(found) < len(tasks):
        rounds += 1
        active = [(tp, task) for tp, task in tasks.items() if tp not in found]
        answers = _ask(state, active)
        for (tp, task), answer in zip(active, answers, strict=True):
            if any(isinstance(part, Chunk) and part.out_of_range for part in answer):
                _start_over(tp, task, found)
            else:
                _resume(tp, task, answer, found)
        if state.settings.on_progress:
            state.settings.on_progress(Progress(rounds, len(found), len(tasks)))
    return Outcome(found, state.counts, rounds)


def _resume(
    tp: TopicPartition, task: _Task, answer: tuple[Answer, ...] | None, found: dict[TopicPartition, Found]
) -> None:
    """Send the answers in and keep the next round, or the finding."""
    try:
        task.asked = next(task.search) if answer is None else task.search.send(answer)
    except StopIteration as stop:
        found[tp] = Found(stop.value, task.probes, task.rounds)
        return
    task.probes += len(task.asked)
    task.rounds += 1


def _start_over(tp: TopicPartition, task: _Task, found: dict[TopicPartition, Found]) -> None:
    task.restarts += 1
    if task.restarts > RESTARTS:
        raise Unreachable(
            f"The log of {tp.topic}-{tp.partition} moved {task.restarts} times while it was searched: "
            "its retention deletes faster than it can be read.",
            hint="Raise the topic's retention.ms until the job has started, then run this again.",
        )
    task.search.close()
    task.search = task.start()
    _resume(tp, task, None, found)


def _ask(state: _Run, active: Sequence[tuple[TopicPartition, _Task]]) -> list[tuple[Answer, ...]]:
    """One round: gather probes by kind, one batched call a kind, hand the answers back in each task's order."""
    places: dict[type[Probe], list[tuple[int, int]]] = {LogStart: [], LogEnd: [], TimeLookup: [], Read: []}
    for index, (_, task) in enumerate(active):
        for slot, probe in enumerate(task.asked):
            places[type(probe)].append((index, slot))
    answers: list[list[Answer]] = [[None] * len(task.asked) for _, task in active]
    for kind, spots in places.items():
        if not spots:
            continue
        state.counts[kind.__name__] = state.counts.get(kind.__name__, 0) + len(spots)
        asked = [(active[index][0], active[index][1].asked[slot]) for index, slot in spots]
        for (index, slot), answer in zip(spots, _ask_kind(state, kind, asked), strict=True):
            answers[index][slot] = answer
    return [tuple(answer) for answer in answers]


def _ask_kind(state: _Run, kind: type[Probe], asked: Sequence[tuple[TopicPartition, Probe]]) -> Sequence[Answer]:
    reader = state.reader
    if kind is LogStart or kind is LogEnd:
        partitions = [tp for tp, _ in asked]
        edges = _insist(state, lambda: (reader.log_starts if kind is LogStart else reader.log_ends)(partitions))
        return [edges[tp] for tp in partitions]
    if kind is TimeLookup:
        times = [(tp, probe.timestamp_ms) for tp, probe in asked if isinstance(probe, TimeLookup)]
        return _insist(state, lambda: reader.offsets_for_times(times))
    requests = [ReadRequest(tp, probe.offset, probe.max_records) for tp, probe in asked if isinstance(probe, Read)]
    return _insist(state, lambda: reader.read(requests))


def _insist(state: _Run, call: Callable[[], T]) -> T:
    """Ask, and ask again while the cluster is away and the deadline has not passed. Reading twice harms nothing."""
    try:
        return call()
    except ReconcilerError as error:
        if not error.retryable:
            raise
    # Imported only when something failed: tenacity costs 60 ms at start, which a hook on a healthy cluster saves.
    from tenacity import Retrying, retry_if_exception, wait_random_exponential  # noqa: PLC0415
    from tenacity.stop import stop_base  # noqa: PLC0415

    class PastDeadline(stop_base):
        def __call__(self, retry_state: object) -> bool:
            return state.clock() - state.began >= state.settings.deadline_s

    retrying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, ReconcilerError) and error.retryable),
        stop=PastDeadline(),
        wait=wait_random_exponential(multiplier=0.2, max=2.0),
        reraise=True,
    )
    return retrying(call)
