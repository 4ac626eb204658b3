"""Worlds of a job that stored numbers alone, beside a MirrorMaker that left syncs and checkpoints at the destination.

The log, its runs and its ills are those of ``making``; added are the source's numbering, with gaps, the pairs that the
mirror wrote while it delivered, as far as compaction left them, and pairs of a topic that was deleted and recreated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from reconciler.core.anchors import StoredOffset
from reconciler.core.mirrored.pairs import SETTLED_MS, MirrorCheckpoint, MirrorEvidence, Pairs, Sync, evidence_for
from reconciler.core.question import CLOCKS_MS, Question
from reconciler.core.verdicts import Finding, Verdict
from tests.simulation.oracle import broken_bounds, replayed, skipped
from tests.simulation.trial import Meter, Trial
from tests.simulation.worlds.carrying import answer, carry_out
from tests.simulation.worlds.cases import AMONG, FAR_AHEAD, PLACE, Case, Made, Run, World
from tests.simulation.worlds.making import make_case
from tests.simulation.worlds.mirrored import kinds_of

GROUP = "others"
COPIED, FAR = "copied checkpoints", "checkpoints too far"
NO_PAIRS = Pairs()


@dataclass(frozen=True, slots=True)
class Bare(Case):
    """A case whose job stored ``stored`` alone. ``numbers`` are the source's offsets of its records, ``row_ms`` is when
    the number was stored, where the store keeps that."""

    numbers: tuple[int, ...] = ()
    stored: int = 0
    pairs: Pairs = NO_PAIRS
    recreated: bool = False
    row_ms: int | None = None
    older: str = ""
    """What a MirrorMaker before 3.5 wrote: ``COPIED`` or ``FAR`` checkpoints."""

    @property
    def tells_copies(self) -> bool:
        return False  # nothing is stepped over without an anchor

    @property
    def evidence(self) -> MirrorEvidence:
        return evidence_for(self.stored, self.pairs, local_writers=bool(self.among))

    @property
    def question(self) -> Question:
        return Question(
            StoredOffset(self.stored, None, self.row_ms),
            "destination",
            "destination/events",
            self.identity,
            self.limits,
            compacted=self.compacted,
            mirror=self.evidence,
        )


def stored_at(seed: int, source: Sequence[Made], processed: int) -> int | None:
    """When the number was stored: after the records before it were made, or the time is not kept."""
    rng = random.Random(f"row {seed}")
    made = max((made.stamp_ms for made in source[: processed + 1] if made.stamp_ms < FAR_AHEAD), default=0)
    return rng.choice((None, made, made + 1_000, made + 2 * CLOCKS_MS))


def make_bare(seed: int) -> tuple[Bare, World]:
    """A case from its seed, and what came of it."""
    rng = random.Random(f"bare {seed}")
    case = make_case(seed)
    if rng.random() < 0.5:  # most mirrors send everything at least once
        case = replace(case, runs=_complete(rng, case))
    numbers = numbers_for(rng, len(case.source))
    last = numbers[case.processed]
    following = numbers[case.processed + 1] if case.processed + 1 < len(numbers) else last + 4
    recreated = rng.random() < 0.12 and not case.among  # others who write there first have no pairs that tell
    if recreated and rng.random() < 0.5:  # the mirror went on where it was, instead of at the source's start
        first = rng.randrange(len(case.source))
        case = replace(case, runs=tuple(_from(first, run) for run in case.runs))
    world = carry_out(case)
    recreated = recreated and any(index >= 0 for index in world.delivered.values())
    fields = {name: getattr(case, name) for name in Case.__slots__}
    stored = rng.randint(last + 1, following)
    pairs = _pairs(rng, case, world, numbers, recreated=recreated)
    older, pairs = _of_older_version(random.Random(f"older {seed}"), case, numbers, pairs)
    bare = Bare(
        **fields,
        numbers=numbers,
        stored=stored,
        pairs=pairs,
        older=older,
        recreated=recreated,
        row_ms=stored_at(seed, case.source, case.processed),
    )
    return bare, world


def _complete(rng: random.Random, case: Case) -> tuple[Run, ...]:
    count = len(case.source)
    if rng.random() < 0.5:  # killed again and again, each time after a few records that were not committed
        runs, end = [], 0
        while end < count:
            first = max(0, end - rng.choice((0, 1, 1, 2, 3)))
            end = min(count, max(end, first) + rng.randint(1, 6))
            runs.append(Run(tuple(range(first, end))))
        return tuple(runs)
    runs = [Run(tuple(range(count)))]
    for _ in range(rng.choice((0, 1, 1, 2))):
        first = rng.randint(0, count)
        runs.append(Run(tuple(range(first, rng.randint(first, count)))))
        if rng.random() < 0.7 or runs[-1].sent[-1:] != (count - 1,):  # a run that was cut off is continued
            begin = rng.randint(0, runs[-1].sent[-1] + 1 if runs[-1].sent else first)
            runs.append(Run(tuple(range(begin, count))))
    return tuple(runs)


def _from(first: int, run: Run) -> Run:
    sent = tuple(index for index in run.sent if index >= first)
    return Run(sent, tuple(index for index in run.aborted if index >= first))


def numbers_for(rng: random.Random, count: int) -> tuple[int, ...]:
    gap = rng.choice((0.0, 0.0, 0.1, 0.4))
    number, numbers = rng.choice((0, 0, 7, 500)), []
    for _ in range(count):
        number += 1 + (rng.randint(1, 3) if rng.random() < gap else 0)
        numbers.append(number)
    return tuple(numbers)


# ---------------------------------------------------------------- what the mirror wrote


def _pairs(rng: random.Random, case: Case, world: World, numbers: Sequence[int], *, recreated: bool) -> Pairs:
    newest = max((made.stamp_ms for made in case.source if made.stamp_ms < FAR_AHEAD), default=0)
    tight = rng.random() < 0.5 and not recreated
    now = 0 if tight else newest + 2
    often = rng.choice((0.05, 0.3, 0.7, 1.0))
    syncs: list[Sync] = []
    checkpoints: list[MirrorCheckpoint] = []
    if recreated:
        syncs, checkpoints = _stale(rng, case, numbers, newest + 1)
    stale = len(syncs)
    starts, told = starts_of(case.runs), rng.choice((0.0, 0.5, 1.0))
    delivered = [(offset, index) for offset, index in sorted(world.delivered.items()) if index >= 0]
    written: list[Sync] = []
    for count, (offset, index) in enumerate(delivered):
        stamp = case.source[index].stamp_ms
        now = max(now + 1, stamp if tight and stamp < FAR_AHEAD else 0)
        if count == 0 or (count in starts and rng.random() < told) or rng.random() < often:
            written.append(Sync(numbers[index], offset, now))
        if written and rng.random() < 0.3:
            now += 1
            found = _checkpoint(rng, rng.choice(written[-6:]), numbers, now)
            most = next(
                (n for n, made in zip(numbers, case.source, strict=True) if now < made.stamp_ms < FAR_AHEAD), None
            )
            if most is None or found.upstream <= most:  # no group has committed what was not there yet
                checkpoints.append(found)
    at_source = rng.random() < 0.35 and not recreated
    if at_source:
        return Pairs((), tuple(checkpoints))
    syncs += written
    if rng.random() < 0.4 and syncs:  # the cleaner leaves the last one of what it has seen
        seen = rng.randint(1, len(syncs))
        syncs = syncs[seen - 1 :]
    elif not recreated or stale < len(syncs):
        head = syncs[: stale + 1] if recreated else []
        syncs = head + [sync for sync in syncs[len(head) :] if rng.random() < 0.9]
    kept = rng.choice((0.0, 1.0, 1.0))
    return Pairs(tuple(syncs), tuple(each for each in checkpoints if rng.random() < kept))


def starts_of(runs: Sequence[Run]) -> set[int]:
    """The counts of delivered records at which a run begins: a mirror that starts writes a sync at once."""
    found, count = set(), 0
    for run in runs:
        found.add(count)
        count += len(run.sent)
    return found


def _checkpoint(rng: random.Random, sync: Sync, numbers: Sequence[int], now: int) -> MirrorCheckpoint:
    """A group's committed offset at or behind a sync: MirrorMaker adds one where it lies behind."""
    committed = rng.choice([sync.upstream, sync.upstream, sync.upstream + rng.randint(1, 5), rng.choice(numbers) + 1])
    committed = max(committed, sync.upstream)
    return MirrorCheckpoint(GROUP, committed, sync.downstream + (committed > sync.upstream), now)


def _of_older_version(rng: random.Random, case: Case, numbers: Sequence[int], pairs: Pairs) -> tuple[str, Pairs]:
    """Sometimes: the pairs with checkpoints that were copied from the group's offset before there was a sync, or that
    lead too far behind the newest sync."""
    kind = rng.choice(("", "", "", "", COPIED, FAR))
    committed = [number + rng.choice((0, 1, 1)) for number in numbers]
    written = [each.written_ms or 0 for each in (*pairs.syncs, *pairs.checkpoints)]
    newest = max((made.stamp_ms for made in case.source if made.stamp_ms < FAR_AHEAD), default=0)
    if kind == COPIED:
        now = min(written, default=newest + 2) - 1
        number = rng.choice(committed)
        return kind, replace(pairs, checkpoints=(MirrorCheckpoint(GROUP, number, number, now), *pairs.checkpoints))
    if kind == FAR and pairs.syncs:
        sync, now = pairs.syncs[-1], max(written) + 2 * SETTLED_MS
        group = max(sync.upstream, rng.choice(committed))
        far = MirrorCheckpoint(GROUP, group, sync.downstream + group - sync.upstream, now)
        return kind, replace(pairs, checkpoints=(*pairs.checkpoints, far))
    return "", pairs


def _stale(
    rng: random.Random, case: Case, numbers: Sequence[int], now: int
) -> tuple[list[Sync], list[MirrorCheckpoint]]:
    """Pairs of the topic that had this name before: other places for the same offsets."""
    place, syncs = 0, []
    for index in range(len(case.source)):
        if rng.random() < 0.8:
            if rng.random() < 0.4:
                syncs.append(Sync(numbers[index], place, now))
            place += 1 + (rng.random() < 0.1)
    checkpoints = [_checkpoint(rng, sync, numbers, now) for sync in syncs if rng.random() < 0.5]
    return syncs, checkpoints


# ---------------------------------------------------------------- judging


def is_owed(case: Bare, world: World) -> bool:
    """False where a record that is gone has a twin, or a disorder that was not stated decides."""
    gone = len(world.held) < len(world.delivered)
    known = [(made.stamp_ms, made.key, made.value) for made in case.source]
    if case.append_time or case.event_time:
        known = [(0, made.key, made.value) for made in case.source]
    if gone and len(set(known)) < len(known):
        return False
    looked_at = case.limits.scan_records > len(world.held)
    return case.declared or (looked_at and not (gone or case.append_time or case.event_time))


def is_counted(case: Bare, world: World) -> bool:
    """False where a record equals another, and times alone tell what lies between the two (``oracle.knows_count``)."""
    return case.declared or (is_plain(case) and case.limits.scan_records > len(world.held))


def best_place(case: Bare, world: World) -> int:
    """The first copy of the first record that was delivered from the stored offset on; else the log's end."""
    part = world.log.partitions[PLACE]
    return min((at for at, index in world.delivered.items() if index > case.processed), default=part.end)


def broken_promises(case: Bare, world: World, finding: Finding) -> Iterator[str]:
    if finding.resume_offset is None:
        if case.evidence.below and not case.recreated and case.order != "future" and is_plain(case):
            yield "unresolved, although there is a sync"
        return
    if not is_owed(case, world):
        return
    yield from skips_and_replays(case, world, finding)
    if not is_counted(case, world):
        return
    held = [at for at, index in world.held.items() if index > case.processed and index != AMONG]
    if finding.verdict is Verdict.EXACT and held and is_plain(case):
        behind = [at for at, index in _firsts(world).items() if at >= finding.resume_offset and index <= case.processed]
        if behind:
            yield f"says moved, although first copies of processed records follow: {behind}"


def skips_and_replays(case: Bare, world: World, finding: Finding) -> Iterator[str]:
    if lost := skipped(case, world, finding):
        yield f"skips {len(lost)} unprocessed records: offsets {lost}"
    if is_counted(case, world):
        yield from broken_bounds(finding, replayed(case, world, finding))


def _firsts(world: World) -> dict[int, int]:
    seen: dict[int, int] = {}
    for offset, index in sorted(world.delivered.items()):
        if index >= 0:
            seen.setdefault(index, offset)
    return {offset: index for index, offset in seen.items()}


def is_plain(case: Bare) -> bool:
    """True without retention, compaction, broken times or twins."""
    known = {(made.stamp_ms, made.key, made.value) for made in case.source}
    return not (case.deleted or case.cleaned or case.append_time or case.event_time) and len(known) == len(case.source)


def shown_kinds(case: Bare) -> tuple[str, ...]:
    where = "syncs" if case.pairs.syncs else "checkpoints alone" if case.pairs.checkpoints else "no pairs"
    gaps = ("source offsets missing",) if len(case.numbers) <= case.numbers[-1] - case.numbers[0] else ()
    older = (f"bare, {case.older}",) if case.older else ()
    return ("bare", f"bare, {where}", *gaps, *older, *(("bare, recreated",) if case.recreated else ()))


def try_seed(seed: int) -> list[Trial]:
    case, world = make_bare(seed)
    meter = Meter()
    finding = answer(case, world, meter)
    broken = tuple(broken_promises(case, world, finding))
    kinds = (*(f"bare, {kind}" for kind in kinds_of(case)[1:]), *shown_kinds(case))
    length = world.log.partitions[PLACE].end
    return [Trial(seed, kinds, finding.verdict.value, meter, length, broken, cramped=True)]


def describe(seed: int) -> str:
    """Describe a case for a person."""
    case, world = make_bare(seed)
    told = describe_bare(case, world, ", ".join((*kinds_of(case), *shown_kinds(case))))
    return f"{told}\n  best {best_place(case, world)}, evidence: {case.evidence}"


def describe_bare(case: Bare, world: World, words: str) -> str:
    """The source and the destination by the source's offsets, the pairs, the question and the answer."""
    part = world.log.partitions[PLACE]
    source = [f"{number}@{made.stamp_ms}" for number, made in zip(case.numbers, case.source, strict=True)]
    held = " ".join(f"{at}={source[i] if i >= 0 else 'L' if i == -1 else 'A'}" for at, i in world.held.items())
    lines = [
        f"seed {case.seed}: {words}; ids {case.ids}; declared {case.declared}",
        f"source (offset@time): {' '.join(source)}",
        f"stored {case.stored}, processed up to {case.numbers[case.processed]}",
        f"destination (offset=source's): {held}",
        f"log {part.start}..{part.end}, markers {part.markers}, cleaned {case.cleaned} (told: {case.compacted})",
        f"syncs: {' '.join(f'{sync}@{sync.written_ms}' for sync in case.pairs.syncs)}",
        f"checkpoints: {' '.join(f'{each}@{each.written_ms}' for each in case.pairs.checkpoints)}",
        f"delivered {case.pairs.delivered}, {case.limits}",
        f"answer: {answer(case, world)}",
    ]
    return "\n  ".join(lines)
