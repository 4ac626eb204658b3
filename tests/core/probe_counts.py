"""Counts a search's probes, those of the final scan apart: the bisection's cost against 2·log2(n) + 4.

python -m tests.core.probe_counts [RECORDS] [SEARCHES]     median and worst case of each way to search
"""

from __future__ import annotations

import random
import sys
from bisect import bisect_left
from dataclasses import dataclass, replace
from math import log2
from statistics import median

from reconciler.core.anchors import Identity, StoredOffset
from reconciler.core.probes import Answer, Cleaning, Edges, LogRange, Probe, Read, TimeLookup
from reconciler.core.question import Question
from reconciler.core.reconcile import reconcile
from reconciler.core.verdicts import Finding
from reconciler.kafka.memory import MemoryLog, MemoryPartition
from tests.core.stories import (
    BY_EVENT_TIME,
    BY_EVENT_TIME_AND_UNIQUE_ID,
    BY_INCREASING_ID,
    HERE,
    HERE_TOPIC,
    PLACE,
    Rec,
    anchor_of,
    event,
    log_of,
)


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


def main(arguments: list[str]) -> None:
    count, searches = ([int(word) for word in arguments] + [100_000, 60][len(arguments) :])[:2]
    limit = 2 * log2(count) + 4
    places = places_of(count, searches)
    for name, make, identity in (
        ("increasing id, no time", increasing, BY_INCREASING_ID),
        ("event time in the payload", of_events, BY_EVENT_TIME),
        ("event time in the payload, unique id", of_events, BY_EVENT_TIME_AND_UNIQUE_ID),
    ):
        costs = measure(make(count), identity, places)
        before, scans = [cost.before for cost in costs], [cost.final_scan for cost in costs]
        right = sum(cost.finding.resume_offset == place + 1 for cost, place in zip(costs, places, strict=True))
        print(f"{name}: {count} records, {right} of {len(costs)} exact; outside of the final scan ", end="")
        print(f"median {median(before)}, worst {max(before)} (limit {limit:.1f}); ", end="")
        print(f"final scan median {median(scans)}, worst {max(scans)}")


if __name__ == "__main__":
    main(sys.argv[1:])
