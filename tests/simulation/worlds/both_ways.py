"""Worlds of two clusters that mirror each other: the syncs here are of either direction, and the job has no anchors.

The log and its ills are those of ``bare``. What MirrorMaker records is written as it writes it: a sync when a run
begins, at every jump of the source's numbers, and after ``lag`` records (``MirrorSourceTask``); a checkpoint from the
newest sync that is not behind the group's offset, or an older one that its store kept (``OffsetSyncStore``); the
position that Connect commits. The mirror from here to the source did the same with a topic that is gone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from reconciler.core.unanchored.owners import NEAR, SETTLED_MS
from reconciler.core.unanchored.pairs import MirrorCheckpoint, Pairs, Sync
from reconciler.core.verdicts import Finding
from tests.simulation.oracle import replayed, skipped
from tests.simulation.trial import Meter, Trial
from tests.simulation.worlds import bare
from tests.simulation.worlds.bare import GROUP, Bare, is_counted, is_owed, make_bare, numbers_for
from tests.simulation.worlds.carrying import answer
from tests.simulation.worlds.cases import FAR_AHEAD, PLACE, Case, World

STEPS_MS = (1, 1, 500, 2 * SETTLED_MS)
WORDS = ("of this mirror", "of the other mirror", "of both")


@dataclass(frozen=True, slots=True)
class BothWays(Bare):
    """``owner``: whose syncs are here. ``filtered``: the mirror drops the source's last records."""

    owner: str = WORDS[0]
    filtered: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """What one mirror recorded; ``delivered`` is the last number that Connect committed."""

    syncs: tuple[Sync, ...]
    checkpoints: tuple[MirrorCheckpoint, ...]
    delivered: int | None
    now: int


def make_both_ways(seed: int) -> tuple[BothWays, World]:
    rng = random.Random(f"both ways {seed}")
    case, world = make_bare(seed)
    now = max((made.stamp_ms for made in case.source if made.stamp_ms < FAR_AHEAD), default=0) + 2
    placed = [(case.numbers[index], at) for at, index in sorted(world.delivered.items()) if index >= 0]
    filtered = rng.random() < 0.1
    starts = bare._starts(case)
    owner = rng.choice((WORDS[0], WORDS[0], WORDS[1], WORDS[1], WORDS[1], WORDS[2]))
    if not placed:
        owner = WORDS[0]
    local = _local(rng, len(placed))
    if owner is WORDS[0]:
        left = record(rng, placed, starts, now, case.numbers[-1] if filtered else None)
        pairs = Pairs(left.syncs, left.checkpoints, left.delivered, is_one_way=False)
    else:
        cut = rng.randint(0, len(placed))  # the failover, and the failback
        first = record(rng, placed[:cut], starts, now)
        other = record(rng, local, {0}, first.now + 1)
        later = {0, *(start - cut for start in starts if start >= cut)}
        second = record(rng, placed[cut:], later, other.now + 1, case.numbers[-1] if filtered else None)
        delivered = second.delivered if second.delivered is not None else first.delivered
        syncs = other.syncs if owner is WORDS[1] else (*first.syncs, *other.syncs, *second.syncs)
        pairs = Pairs(syncs, (*first.checkpoints, *second.checkpoints), delivered, is_one_way=False)
    if rng.random() < 0.3 and pairs.syncs:  # the cleaner leaves the last one of what it has seen
        pairs = replace(pairs, syncs=pairs.syncs[rng.randint(0, len(pairs.syncs) - 1) :])
    if rng.random() < 0.3:
        pairs = replace(pairs, delivered=None)
    fields = {name: getattr(case, name) for name in (*Case.__slots__, "numbers", "stored")}
    return BothWays(**fields, pairs=pairs, recreated=False, owner=owner, filtered=filtered), world


def _local(rng: random.Random, length: int) -> list[tuple[int, int]]:
    """Numbers here and places at the source of a topic that was here, as long as the mirrored one or so."""
    count = rng.randint(1, max(1, 2 * length))
    numbers, start = numbers_for(rng, count), rng.choice((0, 0, 0, 20))
    first = numbers[0] - rng.choice((0, 0, numbers[0]))
    return [(number - first, start + place) for place, number in enumerate(numbers)]


def record(
    rng: random.Random, placed: Sequence[tuple[int, int]], starts: set[int], now: int, last: int | None = None
) -> Left:
    """What a mirror records that delivers these numbers to these places; ``last`` is what Connect commits last."""
    lag, tick = rng.choice((0, 1, 3, 100)), rng.choice((0.0, 0.2, 0.6))
    syncs: list[Sync] = []
    checkpoints: list[MirrorCheckpoint] = []
    store: list[Sync] = []
    delivered, previous, synced = None, None, -1
    for count, (number, place) in enumerate(placed):
        now += rng.choice(STEPS_MS)
        if count in starts or previous is None or number - previous != 1 or place - (synced + 1) >= lag:
            syncs.append(Sync(number, place, now))
            if store and number < store[0].upstream:
                store = []
            store = [syncs[-1], *(sync for sync in store if rng.random() < 0.8)]
            synced = place
        if count in starts and delivered is not None:  # it resumes where it had committed
            delivered = min(delivered, number - 1)
        previous = number
        if rng.random() < 0.2:
            delivered = number
        if rng.random() < tick:
            now += rng.choice(STEPS_MS)
            group = max(0, number + rng.choice((1, 1, 1, 0, -2, -7)))
            if (sync := next((sync for sync in store if sync.upstream <= group), None)) is not None:
                checkpoints.append(MirrorCheckpoint(GROUP, group, sync.downstream + (group > sync.upstream), now))
    if placed and rng.random() < 0.6:  # the mirror went on for a minute, or was stopped in an orderly way
        delivered = placed[-1][0] if last is None else last
    return Left(tuple(syncs), tuple(checkpoints), delivered, now)


# ---------------------------------------------------------------- judging


def can_be_told(case: BothWays, world: World) -> bool:
    """False where nothing at the destination says whose the syncs are, as docs/explanation/limitations.md has it."""
    if case.owner is WORDS[0] or not case.pairs.syncs:
        return True
    if case.owner is WORDS[2]:
        return False
    last = case.pairs.syncs[-1]
    behind = world.log.partitions[PLACE].end - 1 - last.downstream
    if behind < 0 or behind > NEAR:
        return True
    if case.pairs.delivered is not None and case.pairs.delivered - last.upstream > behind:
        return True
    newest = max(case.pairs.checkpoints, key=lambda each: each.written_ms or 0, default=None)
    if newest is None or (newest.written_ms or 0) <= (last.written_ms or 0) + SETTLED_MS:
        return False
    at_once = newest.downstream - last.downstream in (
        min(1, newest.upstream - last.upstream),
        newest.upstream - last.upstream,
    )
    return newest.upstream >= last.upstream and not at_once


def broken_promises(case: BothWays, world: World, finding: Finding) -> Iterator[str]:
    if case.owner is WORDS[0] and not case.filtered and "are left out" in finding.detail:
        yield f"doubts its own mirror's syncs: {finding.detail}"
    if finding.resume_offset is None or not is_owed(case, world) or not can_be_told(case, world):
        return
    if lost := skipped(case, world, finding):
        yield f"skips {len(lost)} unprocessed records: offsets {lost}"
    again = replayed(case, world, finding)
    if not is_counted(case, world):
        return
    if finding.replay_at_most is not None and again > finding.replay_at_most:
        yield f"replays {again}, promised at most {finding.replay_at_most}"
    if finding.replay_exact is not None and again != finding.replay_exact:
        yield f"replays {again}, promised exactly {finding.replay_exact}"


def shown_kinds(case: BothWays, world: World) -> tuple[str, ...]:
    kind = f"syncs {case.owner}"
    told = () if can_be_told(case, world) else (f"{kind}, nothing tells",)
    return ("both ways", kind, *told, *(("both ways, filtered",) if case.filtered else ()))


def try_seed(seed: int) -> list[Trial]:
    case, world = make_both_ways(seed)
    meter = Meter()
    finding = answer(case, world, meter)
    broken = tuple(broken_promises(case, world, finding))
    length = world.log.partitions[PLACE].end
    return [Trial(seed, shown_kinds(case, world), finding.verdict.value, meter, length, broken, cramped=True)]


def describe(seed: int) -> str:
    """Describe a case for a person."""
    case, world = make_both_ways(seed)
    part = world.log.partitions[PLACE]
    held = " ".join(f"{at}={case.numbers[i] if i >= 0 else 'L' if i == -1 else 'A'}" for at, i in world.held.items())
    lines = [
        f"seed {seed}: {', '.join((*bare.kinds_of(case), *shown_kinds(case, world)))}; declared {case.declared}",
        f"stored {case.stored}, processed up to {case.numbers[case.processed]}",
        f"destination (offset=source's): {held}",
        f"log {part.start}..{part.end}, markers {part.markers}, cleaned {case.cleaned} (told: {case.compacted})",
        f"syncs: {' '.join(f'{sync}@{sync.written_ms}' for sync in case.pairs.syncs)}",
        f"checkpoints: {' '.join(f'{each}@{each.written_ms}' for each in case.pairs.checkpoints)}",
        f"delivered {case.pairs.delivered}, {case.limits}",
        f"answer: {answer(case, world)}",
    ]
    return "\n  ".join(lines)
