"""The cost of a search in probes: three on an ordinary mirrored log, a logarithm where bisection is needed."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, log2
from statistics import median

import pytest

from reconciler.core.anchors import Identity, StoredOffset
from reconciler.core.probes import Answer, Cleaning, Edges, LogRange, Probe, Read, TimeLookup
from reconciler.core.question import Limits, Question
from reconciler.core.reconcile import reconcile
from reconciler.core.scan import LARGEST_READ
from reconciler.core.verdicts import Finding
from reconciler.kafka.memory import MemoryLog, MemoryPartition
from tests.core.stories import (
    BY_CONTENT,
    BY_EVENT_TIME,
    BY_EVENT_TIME_AND_UNIQUE_ID,
    BY_ID,
    BY_INCREASING_ID,
    HERE,
    HERE_TOPIC,
    PLACE,
    Rec,
    anchor_of,
    ask_with_cost,
    event,
    log_of,
)

COUNT = 20_000


@dataclass(frozen=True, slots=True)
class Cost:
    """A finding, and its probes: before the final scan, and the final scan's own (reads that follow on each other)."""

    finding: Finding
    before: int
    final_scan: int


class CachedLookups:
    """A partition that answers time lookups from one table: stamps here only grow."""

    def __init__(self, part: MemoryPartition) -> None:
        self._part = part
        self._stamps = [record.timestamp_ms or 0 for record in part.records]

    def answer(self, probe: Probe) -> Answer:
        if isinstance(probe, Edges):
            return LogRange(self._part.start, self._part.end)
        if isinstance(probe, TimeLookup):
            place = bisect_left(self._stamps, probe.timestamp_ms)
            return self._part.records[place].offset if place < len(self._stamps) else None
        if isinstance(probe, Cleaning):
            return self._part.compacted
        return self._part.read(probe.offset, probe.max_records)


def cost_of(partition: CachedLookups, question: Question) -> Cost:
    search, total, chain, follows = reconcile(question), 0, 0, -1
    asked = next(search)
    while True:
        answers = tuple(partition.answer(probe) for probe in asked)
        total += len(asked)
        (probe, *more), (answer, *_) = asked, answers
        continues = isinstance(probe, Read) and not more and probe.offset == follows
        chain = chain + 1 if continues else int(isinstance(probe, Read))
        follows = getattr(answer, "next_offset", -1)
        try:
            asked = search.send(answers)
        except StopIteration as stop:
            return Cost(stop.value, total - chain, chain)


def increasing(count: int) -> list[Rec]:
    return [Rec(f"r{i}", 10**6 + 7 * i, id=b"%d" % i) for i in range(count)]


def of_events(count: int) -> list[Rec]:
    return [event(f"r{i}", 10**6 + 7 * i, 10**6 + 7 * i + 3) for i in range(count)]


def measure(records: list[Rec], identity: Identity, places: list[int]) -> list[Cost]:
    """Search each place's anchor; with increasing ids the anchor is given no time."""
    log: MemoryLog = log_of(*records)
    partition = CachedLookups(log.partitions[PLACE])
    costs = []
    for place in places:
        anchor = anchor_of(records[place], identity)
        if identity is BY_INCREASING_ID:
            anchor = replace(anchor, timestamp_ms=None)
        stored = StoredOffset((anchor.offset or 0) + 1, anchor)
        costs.append(cost_of(partition, Question(stored, HERE, HERE_TOPIC, identity, compacted=False)))
    return costs


def places_of(count: int, searches: int) -> list[int]:
    """Both ends, the middle, and the rest at random."""
    rng = random.Random(count)
    return [
        0,
        min(1, count - 1),
        count // 2,
        max(0, count - 2),
        count - 1,
        *(rng.randrange(count) for _ in range(searches - 5)),
    ]


@cache
def mirrored(ties: int = 1) -> list[Rec]:
    return [Rec(f"r{i}", 10**6 + 7 * (i // ties), id=b"%d" % i) for i in range(COUNT)]


@cache
def mirrored_log(ties: int = 1) -> MemoryLog:
    return log_of(*mirrored(ties))


@pytest.mark.parametrize("identity", [BY_ID, BY_INCREASING_ID, BY_CONTENT], ids=["id", "increasing id", "fingerprint"])
@pytest.mark.parametrize("ties", [1, 5])
def test_the_median_search_of_a_job_that_lags_little_takes_three_probes(identity: Identity, ties: int) -> None:
    """Jobs at most 5,000 records behind, as at a failover."""
    names, log = mirrored(ties), mirrored_log(ties)
    rng = random.Random(5)
    places = [COUNT - 1 - rng.randrange(5000) for _ in range(11)]
    costs = [ask_with_cost(log, anchor_of(names[place], identity), identity) for place in places]
    assert [cost.finding.resume_offset for cost in costs] == [place + 1 for place in places]
    assert median(cost.probes for cost in costs) <= 3


def test_the_median_search_takes_three_probes_after_retention_too() -> None:
    names = mirrored()
    log = log_of(*names, deleted_before=9000)
    costs = [ask_with_cost(log, anchor_of(names[place])).probes for place in range(16_000, 20_000, 400)]
    assert median(costs) <= 3


@pytest.mark.parametrize(
    ("make", "identity"),
    [(increasing, BY_INCREASING_ID), (of_events, BY_EVENT_TIME), (of_events, BY_EVENT_TIME_AND_UNIQUE_ID)],
    ids=["id", "event time", "event time, unique id"],
)
@pytest.mark.parametrize("count", [2, 10, 300, COUNT])
def test_bisection_costs_a_logarithm_beside_the_final_scan(
    count: int, make: Callable[[int], list[Rec]], identity: Identity
) -> None:
    """An increasing id without any time; a time from the payload."""
    places = places_of(count, 12)
    costs = measure(make(count), identity, places)
    assert [cost.finding.resume_offset for cost in costs] == [place + 1 for place in places]
    assert max(cost.before for cost in costs) <= 2 * log2(count) + 4
    assert max(cost.final_scan for cost in costs) <= ceil(count / LARGEST_READ) + 3


def test_a_unique_id_spares_the_records_between_the_time_bound_and_the_anchor() -> None:
    """Events that reached their producer an hour late: 12,000 records lie between."""
    log = log_of(*(event(f"e{i}", 300 * i, 300 * i + 3_600_000) for i in range(COUNT)))
    record = event("e15000", 300 * 15_000, 300 * 15_000 + 3_600_000)

    def found(identity: Identity, scan_records: int) -> Finding:
        limits = Limits(0, scan_records, 1000)
        return ask_with_cost(log, anchor_of(record, identity), identity, limits=limits).finding

    assert found(BY_EVENT_TIME_AND_UNIQUE_ID, 1000).verdict.value == "moved"
    assert "a copy is at 15000: [search] scan_records =" in found(BY_EVENT_TIME, 1000).detail
    assert found(BY_EVENT_TIME, 12_001).resume_offset == 15_001


def test_a_budget_that_ends_costs_the_scan_and_a_logarithm() -> None:
    """A record dated years ahead answers every time lookup: the scan ends early, and a bound is proven."""
    names = [Rec("future", 4 * 10**12, id=b"0"), *mirrored()[1:]]
    limits = Limits(0, 1000, 1000)
    cost = ask_with_cost(log_of(*names), anchor_of(names[15_000]), BY_INCREASING_ID, limits=limits)
    assert cost.finding.verdict.value in ("bounded", "moved", "lost")
    assert cost.finding.resume_offset is not None
    assert cost.finding.resume_offset <= 15_001
    assert cost.probes <= 2 * log2(COUNT) + 4 + 12
