"""Brokers whose time lookups are wrong, over the other families' worlds. No answer may skip a record for it.

Redpanda answered "slightly ahead of the correct offset" (PR 9815). Kafka with tiered storage can miss the segment that
holds the record (KAFKA-17637), or know the times of its local segments only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from reconciler.core.probes import LogRange
from reconciler.ports import TopicPartition
from tests.memory_log import MemoryLog, MemoryPartition
from tests.simulation import oracle
from tests.simulation.trial import Meter, Trial
from tests.simulation.worlds import mirrored, resent
from tests.simulation.worlds.carrying import answer, carry_out
from tests.simulation.worlds.cases import PLACE, Case, World
from tests.simulation.worlds.making import make_case
from tests.simulation.worlds.resent import make_resent
from tests.simulation.worlds.unanchored import bare, carried

Lie = Callable[[int | None, LogRange], int | None]
"""From the true answer and the log's range to what the broker says."""


def _too_high(low: int, high: int) -> Callable[[random.Random, LogRange], Lie]:
    def make(rng: random.Random, _: LogRange) -> Lie:
        more = rng.randint(low, high)
        return lambda true, log: None if true is None else min(log.end - 1, true + more)

    return make


def _next_segment(rng: random.Random, log: LogRange) -> Lie:
    bases = sorted(rng.randint(log.start, log.end) for _ in range(rng.randint(1, 6)))
    return lambda true, _: None if true is None else next((base for base in bases if base > true), None)


def _local_only(rng: random.Random, log: LogRange) -> Lie:
    base = rng.randint(log.start, log.end)
    return lambda true, _: None if true is None or base == log.end else max(true, base)


def _at_random(rng: random.Random, log: LogRange) -> Lie:
    said = rng.choice((None, rng.randint(log.start, log.end)))
    return lambda *_: said


def _changing(rng: random.Random, _: LogRange) -> Lie:
    return lambda true, log: rng.choice((true, None, rng.randint(log.start, log.end)))


LIES: dict[str, Callable[[random.Random, LogRange], Lie]] = {
    "a little too high": _too_high(1, 8),
    "too high": _too_high(9, 20),
    "far too high": _too_high(21, 400),
    "too low": lambda rng, _: lambda true, log: None if true is None else max(log.start, true - rng.randint(1, 30)),
    "none": lambda *_: lambda *_: None,
    "the end": lambda *_: lambda _, log: log.end,
    "the last record": lambda *_: lambda _, log: max(log.start, log.end - 1),
    "the next segment": _next_segment,
    "local segments only": _local_only,
    "at random": _at_random,
    "changing": _changing,
}


def deceive(log: MemoryLog, lie: Lie) -> None:
    """Make this log's time lookups answer as the lie says."""
    truly = log.offsets_for_times

    def offsets_for_times(asked: Sequence[tuple[TopicPartition, int]]) -> Sequence[int | None]:
        parts: list[MemoryPartition] = [log.partitions[tp] for tp, _ in asked]
        ranges = [LogRange(part.start, part.end) for part in parts]
        return [lie(true, log_range) for true, log_range in zip(truly(asked), ranges, strict=True)]

    log.offsets_for_times = offsets_for_times  # type: ignore[method-assign]


def _carried(seed: int) -> tuple[Case, World]:
    case = carried.make_carried(seed)
    return case, carry_out(case)


def _mirrored(seed: int) -> tuple[Case, World]:
    case = make_case(seed)
    return case, carry_out(case)


def _resent(seed: int) -> tuple[Case, World]:
    case = make_resent(seed)
    return case, carry_out(case)


OVER = {
    "mirrored": (_mirrored, oracle.broken_promises),
    "resent": (_resent, oracle.broken_promises),
    "bare": (bare.make_bare, bare.broken_promises),
    "carried": (_carried, carried.broken_promises),
}
"""The worlds in which the broker lies: how one is made of a seed, and what its answer promises."""


def _names(seed: int) -> tuple[str, str]:
    rng = random.Random(f"lying {seed}")
    return rng.choice(sorted(OVER)), rng.choice(sorted(LIES))


def try_seed(seed: int) -> list[Trial]:
    worlds, name = _names(seed)
    make, promises = OVER[worlds]
    (case, world), meter = make(seed), Meter()
    part = world.log.partitions[PLACE]
    deceive(world.log, LIES[name](random.Random(f"lie {seed}"), LogRange(part.start, part.end)))
    finding = answer(case, world, meter)
    # How much comes again, and what can be proven at all, is promised for honest brokers.
    broken = tuple(each for each in promises(case, world, finding) if each.startswith(("skips", "replays")))
    broken = tuple(each for each in broken if "although" not in each)
    believed = "believed" if "time lookup is wrong" not in finding.detail else "contradicted"
    kinds = (f"lookups: {name}", f"lookups: {name}, {believed}", f"lookups over {worlds}")
    return [Trial(seed, kinds, finding.verdict.value, meter, part.end, broken, cramped=True)]


def describe(seed: int) -> str:
    """Describe a case for a person. Its answer is an honest broker's."""
    worlds, name = _names(seed)
    told = {"mirrored": mirrored, "resent": resent, "bare": bare, "carried": carried}[worlds].describe(seed)
    return f"{told}\nlookups: {name}"
