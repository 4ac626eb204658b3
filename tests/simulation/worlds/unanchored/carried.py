"""Worlds of a job that stored numbers alone, and of a mirror that writes the source's offset into each record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from reconciler.core.anchors import Identity, Record, StoredOffset, record_timestamp
from reconciler.core.mirrored.pairs import MirrorEvidence
from reconciler.core.question import Limits, Question
from reconciler.core.verdicts import Finding
from tests.simulation.oracle import best_replay, broken_bounds, replayed, skipped
from tests.simulation.trial import Meter, Trial
from tests.simulation.worlds.carrying import answer, carry_out
from tests.simulation.worlds.cases import PLACE, Case, Made, World, header_id, payload_time
from tests.simulation.worlds.making import make_case
from tests.simulation.worlds.mirrored import kinds_of
from tests.simulation.worlds.resent import broken_runs, complete_runs
from tests.simulation.worlds.unanchored.bare import numbers_for


@dataclass(frozen=True, slots=True)
class Carried(Case):
    """A case whose job stored ``stored`` alone. The numbers of its records stand in the header ``id``."""

    stored: int = 0

    @property
    def tells_copies(self) -> bool:
        return True

    @property
    def question(self) -> Question:
        return Question(
            StoredOffset(self.stored),
            "destination",
            "destination/events",
            Identity(
                payload_time if self.event_time else record_timestamp,
                record_time=not self.event_time,
                source_value_of=number_of,
            ),
            self.limits,
            compacted=self.compacted,
            mirror=MirrorEvidence(self.stored),
        )


def number_of(record: Record) -> int | None:
    found = header_id(record)
    return None if found is None else int(found)


def make_carried(seed: int) -> Carried:
    rng = random.Random(f"carried {seed}")
    case = make_case(seed)
    numbers = numbers_for(rng, len(case.source))
    nameless = rng.choice((0.0, 0.0, 0.0, 0.1))
    source = tuple(
        replace(made, id=None if rng.random() < nameless else b"%d" % number)
        for made, number in zip(case.source, numbers, strict=True)
    )
    runs = tuple((complete_runs if rng.random() < 0.5 else broken_runs)(rng, len(source)))
    last = numbers[case.processed] if case.processed >= 0 else numbers[0] - 1
    following = numbers[case.processed + 1] if case.processed + 1 < len(numbers) else last + 4
    if rng.random() < 0.5:
        plain = {"deleted": 0, "cleaned": 0, "append_time": False, "compacted": False, "small_reads": False}
        case = replace(case, **plain, limits=Limits(case.limits.max_disorder_ms))
    local = tuple(replace(made, id=None) for made in case.local)
    case = replace(case, source=source, runs=runs, among=(), local=local, lag=0)
    if rng.random() < 0.1:  # the source's topic was recreated, and the job went on: the old one's records lie in front
        old = numbers_for(rng, rng.randint(1, 20))
        made = [Made(number, number, b"%d" % number, b"old %d" % number, b'{"ts": %d}' % number) for number in old]
        case = replace(case, among=tuple((0, each) for each in made), deleted=0, cleaned=0)
    fields = {name: getattr(case, name) for name in Case.__slots__}
    return Carried(**fields, stored=rng.randint(last + 1, following))


def is_owed(case: Carried, world: World) -> bool:
    """False where records without a number are told by a disorder that was not stated, or a budget ends first."""
    gone = len(world.held) < len(world.delivered)
    looked_at = case.limits.scan_records > len(world.held)
    return case.declared or (looked_at and not (gone or case.append_time or case.event_time))


def broken_promises(case: Carried, world: World, finding: Finding) -> Iterator[str]:
    if finding.resume_offset is None or not is_owed(case, world):
        return
    if lost := skipped(case, world, finding):
        yield f"skips {len(lost)} unprocessed records: offsets {lost}"
    yield from broken_bounds(finding, replayed(case, world, finding))


def is_plain(case: Carried, world: World) -> bool:
    """True without deletion, and where every record carries a number: then the best place can be proven."""
    named = all(made.id is not None for made in (*case.source, *case.local))
    whole = len(world.held) == len(world.delivered) and not case.append_time and not case.compacted
    return named and whole and case.limits == Limits(case.limits.max_disorder_ms) and not case.small_reads


def try_seed(seed: int) -> list[Trial]:
    case = make_carried(seed)
    world, meter = carry_out(case), Meter()
    finding = answer(case, world, meter)
    broken = tuple(broken_promises(case, world, finding))
    kinds = ["carried", *(("carried, recreated",) if case.among else ())]
    processed = [index for index in world.held.values() if 0 <= index <= case.processed]
    if is_plain(case, world) and processed and not case.among:
        is_best = finding.resume_offset is not None and replayed(case, world, finding) == best_replay(case, world)
        kinds += ["carried, plain", *(("carried, plain, nothing repeats that need not",) if is_best else ())]
    kinds += [f"carried, {kind}" for kind in kinds_of(case)[1:]]
    length = world.log.partitions[PLACE].end
    return [Trial(seed, tuple(kinds), finding.verdict.value, meter, length, broken, cramped=True)]


def describe(seed: int) -> str:
    """Describe a case for a person."""
    case = make_carried(seed)
    world = carry_out(case)
    part = world.log.partitions[PLACE]
    held = " ".join(
        f"{at}={(case.source[i].id or b'-').decode() if i >= 0 else 'L'}@{case.source[i].stamp_ms if i >= 0 else ''}"
        for at, i in world.held.items()
    )
    lines = [
        f"seed {seed}: {', '.join(kinds_of(case))}; disorder {'stated' if case.declared else 'not stated'}",
        f"stored {case.stored}, processed up to index {case.processed}",
        f"destination (offset=source's): {held}",
        f"log {part.start}..{part.end}, cleaned {case.cleaned} (told: {case.compacted}), {case.limits}",
        f"answer: {answer(case, world)}",
    ]
    return "\n  ".join(lines)
