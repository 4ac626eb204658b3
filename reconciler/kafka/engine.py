"""Runs many searches in lockstep rounds, each round's probes batched into a few calls.

A window of partitions is searched at a time. As searches end, those of the next partitions begin: a slow search holds
no other up, and memory does not grow with the run. A large run has two windows: the log is asked for one while the
answers to the other are judged (``asking``). All searches of one partition (many jobs read one topic) begin together
and share its answers. A search whose log's range moved meanwhile (retention, a new leader) starts over, a few times at
most. No answer depends on what else is asked with it, so findings do not depend on which window is answered first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import Unreachable
from reconciler.core.probes import Answer, Chunk, LogMoved, Read, Round, Search, Withheld
from reconciler.kafka.asking import Asker, Log
from reconciler.ports import LogReader

RESTARTS = 5
"""How often a partition may start over because retention moved its range."""

PARTITIONS_AT_ONCE = 1_000
"""Partitions that are searched at a time, so the most in one call. With two windows of half as many, the first records
are asked for soon, and few are left to judge when the last have come."""
SEARCHES_AT_ONCE = 8_000
"""Searches that run at a time, unless one partition has more: a running one takes about 3 kB."""
BY_TURNS = 1_000
"""A run of more partitions has two windows, each of half the size."""

K = TypeVar("K", bound=Hashable)
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
        for each in answers:
            if isinstance(each, Chunk) and not isinstance(each, Withheld) and each.out_of_range:
                self._start_over()
                return
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
        if not _is_again(self.asked):
            self._probes += len(self.asked)
            self._rounds += 1

    def _start_over(self) -> None:
        self._restarts += 1
        if self._restarts > RESTARTS:
            raise Unreachable(
                f"The log of {self.partition} moved {self._restarts} times while it was searched: "
                "its retention deletes faster than it can be read, or its leaders change.",
                hint="Raise the topic's retention.ms until the job has started, or wait until the brokers "
                "are stable; then run this again.",
            )
        self._search.close()
        self._search = self._start()
        self._step(lambda: next(self._search))


def _is_again(asked: Round) -> bool:
    first = asked[0]
    return len(asked) == 1 and isinstance(first, Read) and first.again


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
    settings = settings or EngineSettings()
    log = Log(reader, clock, clock() + settings.deadline_s)
    searches = _Searches(inquiries)
    count = 2 if len({each.partition for each in inquiries.values()}) > BY_TURNS else 1
    rounds = 0
    with Asker[_Window[K, F]](log, apart=count > 1) as asker:
        for window in [_Window(searches, count) for _ in range(count)]:
            asker.ask(window, window.fill())
        for window, answers in asker.answers():
            rounds += 1
            for task, found in zip(window.running.values(), answers, strict=True):
                task.answer(found)
            window.empty()
            if settings.on_progress:
                settings.on_progress(Progress(rounds, len(searches.found), len(inquiries)))
            asker.ask(window, window.fill())
    return Outcome({key: searches.found[key] for key in inquiries}, log.counts, rounds)


class _Searches(Generic[K, F]):
    """All searches of a run: ``waiting`` in reverse order of their start, and what the ended ones have ``found``."""

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
