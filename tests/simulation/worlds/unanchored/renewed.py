"""Worlds of a source topic that was deleted and recreated under its name, whose copy stayed: numbers begin again.

The job stored a number of the old topic or of the new one. Each topic, its runs and its ills are those of ``making``;
the pairs are written as in ``both_ways``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from reconciler.core.mirrored.pairs import Pairs
from reconciler.core.verdicts import Finding
from tests.simulation.oracle import skipped
from tests.simulation.trial import Meter, Trial
from tests.simulation.worlds.carrying import answer, carry_out
from tests.simulation.worlds.cases import FAR_AHEAD, PLACE, Case, Made, Run, World, true_disorder
from tests.simulation.worlds.making import make_case
from tests.simulation.worlds.mirrored import kinds_of
from tests.simulation.worlds.resent import complete_runs
from tests.simulation.worlds.unanchored.bare import Bare, describe_bare, is_owed, numbers_for, starts_of, stored_at
from tests.simulation.worlds.unanchored.both_ways import record

AWAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Renewed(Bare):
    """``old`` records are of the old topic. ``shown``: a sync of that is left whose number is behind the stored one.
    ``told_by_row``: the row's time is known, and all records of the new topic are newer."""

    old: int = 0
    shown: bool = False
    told_by_row: bool = False


def make_renewed(seed: int) -> tuple[Renewed, World]:
    rng = random.Random(f"renewed {seed}")
    case, other = make_case(seed), make_case(seed + 10**9)
    old = len(case.source)
    first = _numbers(rng, old)
    now = max(made.stamp_ms for made in case.source if made.stamp_ms < FAR_AHEAD) + 2
    runs = tuple(complete_runs(rng, old)) if rng.random() < 0.7 else case.runs
    before = carry_out(replace(case, runs=runs, local=(), among=(), deleted=0, cleaned=0))
    placed = [(first[index], at) for at, index in sorted(before.delivered.items()) if index >= 0]
    old_pairs = record(rng, placed, starts_of(runs), now)
    away = rng.choice((0, AWAY_MS))
    source = (*case.source, *(_later(made, old_pairs.now + away) for made in other.source))
    again = complete_runs(rng, len(other.source)) if rng.random() < 0.7 else other.runs
    more = tuple(Run(tuple(old + at for at in run.sent), tuple(old + at for at in run.aborted)) for run in again)
    both = replace(case, source=source, runs=(*runs, *more), processed=0, among=(), local=(), append_time=False)
    written = both.sent
    both = replace(
        both,
        limits=replace(case.limits, max_disorder_ms=true_disorder(source, case.event_time)),
        declared=True,
        deleted=rng.randint(0, written) if rng.random() < 0.4 else 0,
        cleaned=min(case.cleaned, written),
    )
    world = carry_out(both)
    numbers = (*first, *_numbers(rng, len(other.source)))
    placed = [(numbers[index], at) for at, index in sorted(world.delivered.items()) if index >= old]
    now = max((made.stamp_ms for made in source if made.stamp_ms < FAR_AHEAD), default=0) + 2
    new_pairs = record(rng, placed, starts_of(more), now)
    processed = rng.randrange(old if rng.random() < 0.7 else len(source))
    kept = rng.choice((0, 0, 0, rng.randint(0, len(old_pairs.syncs)), len(old_pairs.syncs)))
    syncs = (*old_pairs.syncs[kept:], *new_pairs.syncs)
    checkpoints = (*old_pairs.checkpoints, *new_pairs.checkpoints) if rng.random() < 0.5 else new_pairs.checkpoints
    pairs = Pairs(() if rng.random() < 0.3 else syncs, checkpoints)
    row_ms = stored_at(seed, source, processed)
    known = [sync.upstream for sync in old_pairs.syncs if sync in pairs.syncs]
    fields = {name: getattr(both, name) for name in Case.__slots__} | {"processed": processed}
    return (
        Renewed(
            **fields,
            numbers=numbers,
            stored=numbers[processed] + 1,
            pairs=pairs,
            recreated=True,
            row_ms=row_ms,
            told_by_row=row_ms is not None and away > 0 and processed < old and row_ms < old_pairs.now,
            old=old,
            shown=max(known, default=-1) > numbers[processed] + 1 and case.order != "future" != other.order,
        ),
        world,
    )


def _numbers(rng: random.Random, count: int) -> tuple[int, ...]:
    numbers = numbers_for(rng, count)
    return tuple(number - numbers[0] for number in numbers)


def _later(made: Made, by_ms: int) -> Made:
    stamp = made.stamp_ms if made.stamp_ms >= FAR_AHEAD else made.stamp_ms + by_ms
    return replace(made, stamp_ms=stamp, event_ms=made.event_ms + by_ms, value=made.value and b" " + made.value)


def broken_promises(case: Renewed, world: World, finding: Finding) -> Iterator[str]:
    if finding.resume_offset is None or not is_owed(case, world):
        return
    lost = skipped(case, world, finding)
    new = [at for at in lost if world.held[at] >= case.old]
    if case.told_by_row and case.limits.max_disorder_ms < AWAY_MS // 2 and new:
        yield f"passes {len(new)} records that were made after the number was stored: offsets {new}"
    if case.shown and lost:
        yield f"skips {len(lost)} unprocessed records: offsets {lost}"


def try_seed(seed: int) -> list[Trial]:
    case, world = make_renewed(seed)
    meter = Meter()
    finding = answer(case, world, meter)
    broken = tuple(broken_promises(case, world, finding))
    which = "the old topic" if case.processed < case.old else "the new topic"
    kinds = ("renewed", f"renewed, number of {which}", *(() if case.shown else ("renewed, nothing shows it",)))
    length = world.log.partitions[PLACE].end
    return [Trial(seed, kinds, finding.verdict.value, meter, length, broken, cramped=True)]


def describe(seed: int) -> str:
    """Describe a case for a person."""
    case, world = make_renewed(seed)
    which = "the old topic" if case.processed < case.old else "the new topic"
    return describe_bare(case, world, f"{', '.join(kinds_of(case))}; a number of {which}; shown {case.shown}")
