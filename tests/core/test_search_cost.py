"""The cost of a search in probes: three on an ordinary mirrored log, a logarithm where bisection is needed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import ceil, log2
from statistics import median

import pytest

from reconciler.core.anchors import Anchor, Identity, StoredOffset
from reconciler.core.question import Limits, Question
from reconciler.core.reconcile import reconcile
from reconciler.core.scan import LARGEST_READ
from reconciler.core.verdicts import Finding
from tests.core.stories import (
    BY_CONTENT,
    BY_EVENT_TIME,
    BY_EVENT_TIME_AND_UNIQUE_ID,
    BY_ID,
    BY_INCREASING_ID,
    HERE,
    HERE_TOPIC,
    Rec,
    anchor_of,
    answer,
    ask_with_cost,
    event,
    log_of,
)
from tests.memory_log import MemoryLog
from tests.simulation.trial import Meter

COUNT = 20_000


def increasing(count: int) -> list[Rec]:
    return [Rec(f"r{i}", 10**6 + 7 * i, id=b"%d" % i) for i in range(count)]


def of_events(count: int) -> list[Rec]:
    return [event(f"r{i}", 10**6 + 7 * i, 10**6 + 7 * i + 3) for i in range(count)]


def metered(log: MemoryLog, anchor: Anchor, identity: Identity) -> tuple[int | None, Meter]:
    """Where to resume, and what it took to find."""
    meter, stored = Meter(), StoredOffset((anchor.offset or 0) + 1, anchor)
    question = Question(stored, HERE, HERE_TOPIC, identity, compacted=False)
    return answer(log, lambda: meter.watch(reconcile(question))).finding.resume_offset, meter


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
@pytest.mark.parametrize("count", [2, 10, 300, 5_000])
def test_bisection_costs_a_logarithm_beside_the_final_scan(
    count: int, make: Callable[[int], list[Rec]], identity: Identity
) -> None:
    """An increasing id without any time; a time from the payload."""
    records, places = make(count), places_of(count, 12)
    log, anchors = log_of(*records), [anchor_of(records[place], identity) for place in places]
    if identity is BY_INCREASING_ID:
        anchors = [replace(anchor, timestamp_ms=None) for anchor in anchors]
    found = [metered(log, anchor, identity) for anchor in anchors]
    assert [resume for resume, _ in found] == [place + 1 for place in places]
    assert max(meter.searching for _, meter in found) <= 2 * log2(count) + 4
    assert max(meter.reading_on for _, meter in found) <= ceil(count / LARGEST_READ) + 3


def test_a_unique_id_spares_the_records_between_the_time_bound_and_the_anchor() -> None:
    """Events that reached their producer an hour late: 12,000 records lie between."""
    log = log_of(*(event(f"e{i}", 300 * i, 300 * i + 3_600_000) for i in range(COUNT)))
    record = event("e15000", 300 * 15_000, 300 * 15_000 + 3_600_000)

    def found(identity: Identity, scan_records: int) -> Finding:
        limits = Limits(0, scan_records, 1000)
        return ask_with_cost(log, anchor_of(record, identity), identity, limits=limits).finding

    assert found(BY_EVENT_TIME_AND_UNIQUE_ID, 1000).verdict.value == "exact"
    assert "a copy is at 15000: [search] scan_records =" in found(BY_EVENT_TIME, 1000).detail
    assert found(BY_EVENT_TIME, 12_001).resume_offset == 15_001


def test_a_budget_that_ends_costs_the_scan_and_a_logarithm() -> None:
    """A record dated years ahead answers every time lookup: the scan ends early, and a bound is proven."""
    names = [Rec("future", 4 * 10**12, id=b"0"), *mirrored()[1:]]
    limits = Limits(0, 1000, 1000)
    cost = ask_with_cost(log_of(*names), anchor_of(names[15_000]), BY_INCREASING_ID, limits=limits)
    assert cost.finding.verdict.value in ("early", "exact", "lost")
    assert cost.finding.resume_offset is not None
    assert cost.finding.resume_offset <= 15_001
    assert cost.probes <= 2 * log2(COUNT) + 4 + 12
