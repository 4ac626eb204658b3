"""Sends the probes of searches to a log: a round in a few calls, for two windows of searches in turn.

All searches of a partition share its answers: edges and times are asked once, and reads that overlap are made once.
Probes only read, so a call that failed because brokers were away is repeated until the deadline.

Where another process reads the records (``ports.ReadsApart``), two threads ask: offsets are looked up for one window
while records are read for the other. There is at most one look-up and one read at a time, so neither has to be safe
for two threads. Any other log is asked by one thread, one call after the other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Generic, NoReturn, Protocol, Self, TypeVar

from reconciler import ports
from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import Unreachable
from reconciler.core.probes import Answer, Chunk, Cleaning, Edges, LogRange, Probe, Read, Round, TimeLookup, Withheld
from reconciler.ports import LogReader, ReadRequest
from reconciler.retry import insist

T = TypeVar("T")
W = TypeVar("W")
"""The caller's name for a window."""
Answers = list[tuple[Answer, ...]]
"""One round's answers, by search, in the order of its probes."""
_Answered = Callable[[], Answers]


class Asking(Protocol):
    """A search that waits for the answers to its probes."""

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def asked(self) -> Round: ...


@dataclass(slots=True)
class Log:
    """The log of one run, with the clock and the time until which a call is repeated (both in monotonic seconds)."""

    reader: LogReader
    clock: Callable[[], float]
    until: float
    counts: Counter[str] = field(default_factory=Counter)
    """The number of probes of each kind so far."""
    given_up: bool = False
    """True once nothing more is asked or repeated."""
    looking: Lock = field(default_factory=Lock)
    reading: Lock = field(default_factory=Lock)

    def count(self, active: Sequence[Asking]) -> None:
        self.counts.update(type(probe).__name__ for task in active for probe in task.asked)


class Asker(Generic[W]):
    """Asks for windows of searches, and gives their answers as they come: at once, or ``apart`` in threads of its own.

    Only those threads use the reader meanwhile. At a failure the calls that are under way are waited for, since the
    caller may use the reader next; at an interrupt they are not.
    """

    def __init__(self, log: Log, *, apart: bool) -> None:
        self._log = log
        self._replies: SimpleQueue[tuple[W, _Answered]] = SimpleQueue()
        self._orders: SimpleQueue[tuple[W, Sequence[Asking]] | None] = SimpleQueue()
        self._open = 0
        count = 0 if not apart else 1 if ports.separate_reads(log.reader) is None else 2
        self._threads = [Thread(target=self._work, name="asker", daemon=True) for _ in range(count)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        self._log.given_up = kind is not None
        for _ in self._threads:
            self._orders.put(None)
        if kind is None or issubclass(kind, Exception):
            for thread in self._threads:
                thread.join()

    def ask(self, window: W, active: Sequence[Asking]) -> None:
        """Ask for all searches of a window. With nothing to ask there is no answer."""
        if not active:
            return
        self._log.count(active)
        self._open += 1
        if self._threads:
            self._orders.put((window, active))
        else:
            self._replies.put((window, partial(ask, self._log, active)))

    def answers(self) -> Iterator[tuple[W, Answers]]:
        """Each window with its answers, in each search's order, until nothing is asked; or the error of one."""
        while self._open:
            window, answered = self._replies.get()
            self._open -= 1
            yield window, answered()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            window, active = order
            self._replies.put((window, self._asked(active)))

    def _asked(self, active: Sequence[Asking]) -> _Answered:
        try:
            answers = ask(self._log, active)
        except Exception as error:  # noqa: BLE001 - it is raised where the answers are used
            return partial(_fail, error)
        return lambda: answers


def _fail(error: Exception) -> NoReturn:
    raise error


def ask(log: Log, active: Sequence[Asking]) -> Answers:
    """One round: group the probes by kind, make one batched call a kind, and return answers in each search's order."""
    places: dict[type[Probe], list[tuple[int, int]]] = {Edges: [], TimeLookup: [], Cleaning: [], Read: []}
    for index, task in enumerate(active):
        for slot, probe in enumerate(task.asked):
            places[type(probe)].append((index, slot))
    answers: list[list[Answer]] = [[None] * len(task.asked) for task in active]
    for kind, spots in places.items():
        if not spots:
            continue
        asked = [(active[index].partition, active[index].asked[slot]) for index, slot in spots]
        for (index, slot), answer in zip(spots, _ask_kind(log, kind, asked), strict=True):
            answers[index][slot] = answer
    return list(map(tuple, answers))


def _ask_kind(log: Log, kind: type[Probe], asked: Sequence[tuple[TopicPartition, Probe]]) -> Sequence[Answer]:
    reader = log.reader
    if kind is Edges:
        partitions = list(dict.fromkeys(tp for tp, _ in asked))
        with log.looking:
            starts = _insist(log, lambda: reader.log_starts(partitions))
            ends = _insist(log, lambda: reader.log_ends(partitions))
        ranges = {tp: LogRange(starts[tp], ends[tp]) for tp in partitions}
        return [ranges[tp] for tp, _ in asked]
    if kind is TimeLookup:
        times = [(tp, probe.timestamp_ms) for tp, probe in asked if isinstance(probe, TimeLookup)]
        different = list(dict.fromkeys(times))
        with log.looking:
            found = _insist(log, lambda: reader.offsets_for_times(different))
        offsets = dict(zip(different, found, strict=True))
        return [offsets[each] for each in times]
    if kind is Cleaning:
        with log.looking:
            topics = _insist(log, lambda: reader.describe({tp.topic for tp, _ in asked})).topics
        return [topics[tp.topic].compacted if tp.topic in topics else None for tp, _ in asked]
    reads = [(tp, probe) for tp, probe in asked if isinstance(probe, Read)]
    requests = [
        ReadRequest(tp, probe.offset, probe.max_records, probe.committed, probe.full_until_ms) for tp, probe in reads
    ]
    with log.reading:
        return _read(log, requests)


def _read(log: Log, requests: Sequence[ReadRequest]) -> list[Chunk]:
    """A chunk for each request, the same as if it were read alone; requests that overlap are read at once."""
    answers: dict[int, Chunk] = {}
    waiting: dict[tuple[TopicPartition, bool], list[int]] = {}
    for index in sorted(range(len(requests)), key=lambda index: (requests[index].offset, -requests[index].max_records)):
        waiting.setdefault((requests[index].partition, requests[index].committed), []).append(index)
    while waiting:
        turn = [_joined([requests[index] for index in indexes]) for indexes in waiting.values()]
        chunks = _insist(log, partial(log.reader.read, turn))
        for asked, chunk in zip(turn, chunks, strict=True):
            first, *others = waiting.pop((asked.partition, asked.committed))
            answers[first] = chunk if _is_for(chunk, requests[first]) else _part(chunk, asked, requests[first]) or chunk
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
    """The first of a partition's requests, in order of their offsets, extended to cover the requests that overlap it.

    It is at most twice as long, so that jobs far apart in a partition are not read at once. A record that is only
    counted for one request may be needed by another.
    """
    first, *others = requests
    if not others:
        return first
    end = first.offset + first.max_records
    for each in others:
        if each.offset >= end or each.offset + each.max_records > first.offset + 2 * first.max_records:
            break
        end = max(end, each.offset + each.max_records)
    return ReadRequest(first.partition, first.offset, end - first.offset, first.committed)


def _is_for(chunk: Chunk, first: ReadRequest) -> bool:
    """True if a chunk is as ``_part`` would cut it for the first request that it was read for: nearly always."""
    if isinstance(chunk, Withheld):
        return False
    if chunk.counted is not None:
        return True  # it was read for this one alone
    missing = first.max_records - len(chunk.records)
    return missing > 0 or (missing == 0 and chunk.next_offset == chunk.records[-1].offset + 1)


def _part(chunk: Chunk, asked: ReadRequest, request: ReadRequest) -> Chunk | None:
    """The answer to ``request`` within the chunk for ``asked``, whose offset is not higher; None if it holds none."""
    if request.offset == asked.offset and (isinstance(chunk, Withheld) or not chunk.records):
        return chunk
    if isinstance(chunk, Withheld):
        return None  # the records behind it may be readable
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


def _insist(log: Log, call: Callable[[], T]) -> T:
    """Repeat a call while the cluster is unreachable, until the deadline. Reading twice is harmless."""
    if log.given_up:
        raise Unreachable("The run has ended.")  # another window has failed, and only its error is reported

    def left_s() -> float:
        return 0.0 if log.given_up else log.until - log.clock()

    return insist(call, left_s=left_s)
