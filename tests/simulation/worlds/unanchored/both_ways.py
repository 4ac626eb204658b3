"""Worlds of two clusters that mirror each other: the syncs here are of either direction, and the job has no anchors.

The log and its ills are those of ``bare``. What MirrorMaker records is written as it writes it: a sync when a run
begins, at every jump of the source's numbers, and after ``lag`` records (``MirrorSourceTask``); a checkpoint from the
newest sync that is not behind the group's offset, or an older one that its store kept (``OffsetSyncStore``); the
position that Connect commits. The mirror from here to the source did the same with a topic that is gone; it may have
been restarted, too, and its log there may be nearly this one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from reconciler.core.mirrored.pairs import SETTLED_MS, MirrorCheckpoint, Pairs, Sync
from reconciler.core.mirrored.syncs import SHORTLY_MS
from reconciler.core.verdicts import Finding
from tests.simulation.oracle import skipped
from tests.simulation.trial import Meter, Trial
from tests.simulation.worlds.carrying import answer, carry_out
from tests.simulation.worlds.cases import FAR_AHEAD, PLACE, Case, Made, World
from tests.simulation.worlds.mirrored import kinds_of
from tests.simulation.worlds.unanchored.bare import (
    GROUP,
    Bare,
    describe_bare,
    is_owed,
    make_bare,
    numbers_for,
    skips_and_replays,
    starts_of,
    stored_at,
)

STEPS_MS = (1, 1, 500, 2 * SETTLED_MS)
LIVE_STEPS_MS = (10, 20, 40, 500)
NOT_LIVE: Mapping[int, int] = {}
PACES = (1, 1_000, 200_000)
"""Simulated times are in ms; the last pace is a record in some minutes."""
CONTRADICTED = ("comes from none of them", "does not follow from", "behind the log's end")
PAUSES_MS = (2 * SETTLED_MS, 86_400_000)
"""From the last record at the source to the first that is written here, and from the last here to the next there."""
B = TypeVar("B", bound=Bare)
WORDS = ("of this mirror", "of the other mirror", "of both")


@dataclass(frozen=True, slots=True)
class BothWays(Bare):
    """``owner``: whose syncs are here; ``foreign`` are the other mirror's. ``filtered``: the mirror drops the source's
    last records. ``live``: it delivers records as they come."""

    owner: str = WORDS[0]
    filtered: bool = False
    live: bool = False
    foreign: tuple[Sync, ...] = ()


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
    if not case.event_time:  # its records say when they were made
        case = slowed(case, rng.choice(PACES))
    owner = rng.choice((WORDS[0], WORDS[0], WORDS[1], WORDS[1], WORDS[1], WORDS[2]))
    if not any(index >= 0 for index in world.delivered.values()):
        owner = WORDS[0]
    length = sum(index >= 0 for index in world.delivered.values())
    cut = rng.randint(0, length)  # the failover, and the failback
    away = 40 * max(STEPS_MS) + 2 * rng.choice(PAUSES_MS)
    if owner is not WORDS[0] and not (case.event_time or case.among):
        case = _interrupted(case, world, cut, away)
    world = carry_out(case)
    placed = [(case.numbers[index], at) for at, index in sorted(world.delivered.items()) if index >= 0]
    stamps = {at: case.source[index].stamp_ms for at, index in world.delivered.items() if index >= 0}
    newest = max((stamp for stamp in stamps.values() if stamp < FAR_AHEAD), default=0)
    live = rng.random() < 0.7 and not case.append_time
    made, start = (stamps, 0) if live else ({}, newest + 2)
    starts = starts_of(case.runs)
    filtered = rng.random() < 0.1
    dropped = case.numbers[-1] if filtered else None
    if owner is WORDS[0]:
        left = record(rng, placed, starts, start, dropped, made)
        pairs = Pairs(left.syncs, left.checkpoints, left.delivered, is_one_way=False)
        foreign: tuple[Sync, ...] = ()
    else:
        first = record(rng, placed[:cut], starts, start, None, made)
        local, again = _restarted(random.Random(f"restarts {seed}"), _local(rng, len(placed)), placed, starts)
        other = record(rng, local, again, max(first.now, _last(stamps, placed[:cut])) + rng.choice(PAUSES_MS))
        later = {0, *(start - cut for start in starts if start >= cut)}
        second = record(rng, placed[cut:], later, other.now + rng.choice(PAUSES_MS), dropped, made)
        foreign = other.syncs
        delivered = second.delivered if second.delivered is not None else first.delivered
        syncs = other.syncs if owner is WORDS[1] else (*first.syncs, *other.syncs, *second.syncs)
        pairs = Pairs(syncs, (*first.checkpoints, *second.checkpoints), delivered, is_one_way=False)
    if rng.random() < 0.3 and pairs.syncs:  # the cleaner leaves the last one of what it has seen
        pairs = replace(pairs, syncs=pairs.syncs[rng.randint(0, len(pairs.syncs) - 1) :])
    if rng.random() < 0.3:
        pairs = replace(pairs, delivered=None)
    fields = {name: getattr(case, name) for name in (*Case.__slots__, "numbers", "stored")}
    fields["row_ms"] = stored_at(seed, case.source, case.processed)
    return BothWays(
        **fields, pairs=pairs, recreated=False, owner=owner, filtered=filtered, live=live, foreign=foreign
    ), world


def slowed(case: B, pace: int) -> B:
    """The case with so many times as long between all its times."""

    def slow(made: Made) -> Made:
        ahead = made.stamp_ms >= FAR_AHEAD
        return made if ahead else replace(made, event_ms=made.event_ms * pace, stamp_ms=made.stamp_ms * pace)

    return replace(
        case,
        source=tuple(map(slow, case.source)),
        local=tuple(map(slow, case.local)),
        among=tuple((place, slow(made)) for place, made in case.among),
        markers=tuple((place, time if time >= FAR_AHEAD else time * pace) for place, time in case.markers),
        limits=replace(case.limits, max_disorder_ms=case.limits.max_disorder_ms * pace),
        append_skew_ms=case.append_skew_ms * pace,
    )


def _interrupted(case: Bare, world: World, cut: int, away_ms: int) -> Bare:
    """Nobody wrote at the source between the failover and the failback."""
    indexes = [index for _, index in sorted(world.delivered.items()) if index >= 0]
    first = max(indexes[:cut], default=-1) + 1

    def later(made: Made) -> Made:
        return made if made.stamp_ms >= FAR_AHEAD else replace(made, stamp_ms=made.stamp_ms + away_ms)

    source = (*case.source[:first], *map(later, case.source[first:]))
    markers = tuple((place, time + away_ms) for place, time in case.markers)
    return replace(case, source=source, local=tuple(map(later, case.local)), markers=markers)


def _last(stamps: Mapping[int, int], placed: Sequence[tuple[int, int]]) -> int:
    return max((stamps[at] for _, at in placed if stamps[at] < FAR_AHEAD), default=0) + 1


def _local(rng: random.Random, length: int) -> list[tuple[int, int]]:
    """Numbers here and places at the source of a topic that was here, as long as the mirrored one or so."""
    count = rng.randint(1, max(1, 2 * length))
    numbers, start = numbers_for(rng, count), rng.choice((0, 0, 0, 20))
    first = numbers[0] - rng.choice((0, 0, numbers[0]))
    return [(number - first, start + place) for place, number in enumerate(numbers)]


def _restarted(
    rng: random.Random, local: list[tuple[int, int]], placed: Sequence[tuple[int, int]], starts: set[int]
) -> tuple[list[tuple[int, int]], set[int]]:
    """What the other mirror delivered there where it was restarted, too, and where its deliveries begin.

    Or its log there is nearly this one: restarts and all, but other numbers, and some records more or less.
    """
    kind = rng.choice(("once", "again", "near", "near"))
    if kind == "near":
        return _nearly(rng, placed, starts)
    if kind == "once":
        return local, {0}
    numbers, place = [number for number, _ in local], local[0][1]
    sent: list[int] = []
    begins, end = set(), 0
    while end < len(numbers):
        begins.add(len(sent))
        first = rng.choice((0, rng.randint(0, end), max(0, end - 4)))
        end = min(len(numbers), end + rng.randint(1, len(numbers)))
        sent += numbers[first:end]
    return [(number, place + at) for at, number in enumerate(sent)], begins


def _nearly(
    rng: random.Random, placed: Sequence[tuple[int, int]], starts: set[int]
) -> tuple[list[tuple[int, int]], set[int]]:
    """Not to the record: places that are the same up to the second delivery cannot be told from this log's."""
    shift = max(rng.choice((-7, -2, -1, 0, 1, 2, 7)), -min(number for number, _ in placed))
    gap, turn = rng.choice((0, 0, 1, 3)), rng.choice(placed)[0]
    length = min((start for start in starts if start), default=len(placed))
    front = rng.choice((0, 0, 1, 2, 20)) if length > 1 else 1
    less = None if front else rng.randrange(min(length, len(placed)))
    kept = [(count, number) for count, (number, _) in enumerate(placed) if count != less]
    begins = {sum(count < start for count, _ in kept) for start in starts}
    local = [(number + shift + gap * (number > turn), front + place) for place, (_, number) in enumerate(kept)]
    return local, begins - {len(kept)}


def record(
    rng: random.Random,
    placed: Sequence[tuple[int, int]],
    starts: set[int],
    now: int,
    last: int | None = None,
    stamps: Mapping[int, int] = NOT_LIVE,
) -> Left:
    """What a mirror records that delivers these numbers to these places; ``last`` is what Connect commits last.

    ``stamps``: when the records were made, by their places, where they are delivered as they come.
    """
    lag, tick = rng.choice((0, 1, 3, 100)), rng.choice((0.0, 0.2, 0.6))
    steps = LIVE_STEPS_MS if stamps else STEPS_MS
    syncs: list[Sync] = []
    checkpoints: list[MirrorCheckpoint] = []
    store: list[Sync] = []
    delivered, previous, synced = None, None, -1
    for count, (number, place) in enumerate(placed):
        stamp = stamps.get(place, 0)
        now = max(now, stamp if stamp < FAR_AHEAD else 0) + rng.choice(steps)
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
            now += rng.choice(steps)
            group = max(0, number + rng.choice((1, 1, 1, 0, -2, -7)))
            if (sync := next((sync for sync in store if sync.upstream <= group), None)) is not None:
                checkpoints.append(MirrorCheckpoint(GROUP, group, sync.downstream + (group > sync.upstream), now))
    if placed and rng.random() < 0.6:  # the mirror went on for a minute, or was stopped in an orderly way
        delivered = placed[-1][0] if last is None else last
    return Left(tuple(syncs), tuple(checkpoints), delivered, now)


# ---------------------------------------------------------------- judging


def is_by_chance(case: BothWays, world: World) -> bool:
    """True where a sync of the other mirror happens to look like this one's: a checkpoint is at its place or right
    behind it, the record there was made shortly before, the log ends where it would with this mirror's, both sent
    the same places again, or the following one of this mirror has its distance."""
    for one, other in pairwise(case.pairs.syncs):
        same = one.upstream - one.downstream == other.upstream - other.downstream
        if same and one in case.foreign and other not in case.foreign:
            return True
    last, end = case.pairs.syncs[-1:], world.log.partitions[PLACE].end
    if last and last[0] in case.foreign and case.pairs.delivered == last[0].upstream + end - 1 - last[0].downstream:
        return True
    if any(_fits_again(case.foreign, early, late, world) for early, late in pairwise(case.foreign)):
        return True
    for sync in case.foreign:
        if any(0 <= each.downstream - sync.downstream <= 1 for each in case.pairs.checkpoints):
            return True
        index = world.held.get(sync.downstream, -1)
        if index >= 0 and 0 <= (sync.written_ms or 0) - case.source[index].stamp_ms <= SHORTLY_MS:
            return True
    return False


def _fits_again(foreign: Sequence[Sync], before: Sync, begin: Sync, world: World) -> bool:
    """Whether the other mirror sent again from the very place, and the very record, from which this one did."""
    if begin.upstream > before.upstream:
        return False
    index = world.delivered.get(begin.downstream, -1)
    copies = {at for at, copy in world.delivered.items() if copy == index >= 0 and at < begin.downstream}
    return any(sync.downstream + begin.upstream - sync.upstream in copies for sync in foreign)


def broken_promises(case: BothWays, world: World, finding: Finding) -> Iterator[str]:
    if case.owner is WORDS[0] and not case.filtered and any(word in finding.detail for word in CONTRADICTED):
        yield f"contradicts its own mirror's syncs: {finding.detail}"
    if finding.resume_offset is None or not is_owed(case, world) or is_by_chance(case, world):
        return
    yield from skips_and_replays(case, world, finding)


def shown_kinds(case: BothWays, world: World) -> tuple[str, ...]:
    kind = f"syncs {case.owner}"
    live = (f"{kind}, live",) if case.live and not case.filtered else ()
    syncs = case.foreign or case.pairs.syncs
    again = any(late.upstream <= early.upstream for early, late in pairwise(syncs))
    return (
        *("both ways", kind, *live),
        *(("both ways, filtered",) if case.filtered else ()),
        *((f"{kind}, sent again",) if again else ()),
    )


def try_seed(seed: int) -> list[Trial]:
    case, world = make_both_ways(seed)
    meter = Meter()
    finding = answer(case, world, meter)
    broken = tuple(broken_promises(case, world, finding))
    owed = finding.resume_offset is not None and is_owed(case, world) and is_by_chance(case, world)
    chance = ("both ways, skips by chance",) if owed and skipped(case, world, finding) else ()
    length = world.log.partitions[PLACE].end
    return [
        Trial(seed, (*shown_kinds(case, world), *chance), finding.verdict.value, meter, length, broken, cramped=True)
    ]


def describe(seed: int) -> str:
    """Describe a case for a person."""
    case, world = make_both_ways(seed)
    return describe_bare(case, world, ", ".join((*kinds_of(case), *shown_kinds(case, world))))
