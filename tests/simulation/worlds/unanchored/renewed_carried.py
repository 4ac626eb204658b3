"""As ``renewed``, with records that carry the source's offset, and no pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from reconciler.core.question import Limits
from reconciler.core.verdicts import Finding
from tests.simulation.oracle import skipped
from tests.simulation.trial import Meter, Trial
from tests.simulation.worlds.carrying import answer, carry_out
from tests.simulation.worlds.cases import PLACE, Case, World
from tests.simulation.worlds.unanchored.carried import Carried
from tests.simulation.worlds.unanchored.renewed import make_renewed


@dataclass(frozen=True, slots=True)
class RenewedCarried(Carried):
    old: int = 0

    def is_shown_by(self, world: World) -> bool:
        """The numbers go back from a record of the old topic to the first of the new one, have no gaps within either
        topic, and the whole log may be read."""
        numbers = [int(made.id or b"0") for made in self.source]
        held = [index for _, index in sorted(world.held.items()) if index >= 0]
        begins = next((at for at, index in enumerate(held) if index >= self.old), 0)
        if begins == 0 or numbers[held[begins]] > numbers[held[begins - 1]]:
            return False
        steps = {two - one for one, two in pairwise(numbers)}
        plain = steps <= {1, numbers[self.old] - numbers[self.old - 1]} and not (self.deleted or self.cleaned)
        times = self.order != "future" and not self.event_time and not self.markers
        return plain and times and self.compacted is False and self.limits == Limits(self.limits.max_disorder_ms)


def make(seed: int) -> tuple[RenewedCarried, World]:
    case, _ = make_renewed(seed)
    source = tuple(replace(made, id=b"%d" % number) for made, number in zip(case.source, case.numbers, strict=True))
    fields = {name: getattr(case, name) for name in Case.__slots__}
    changed = fields | {"source": source, "ids": "opaque", "lag": 0}
    found = RenewedCarried(**changed, stored=case.stored, old=case.old)
    return found, carry_out(found)


def broken_promises(case: RenewedCarried, world: World, finding: Finding) -> Iterator[str]:
    if finding.resume_offset is None or not case.is_shown_by(world):
        return
    if lost := skipped(case, world, finding):
        yield f"skips {len(lost)} unprocessed records: offsets {lost}"


def try_seed(seed: int) -> list[Trial]:
    case, world = make(seed)
    meter = Meter()
    finding = answer(case, world, meter)
    broken = tuple(broken_promises(case, world, finding))
    kinds = ("renewed, carried", *(("renewed, carried, shown",) if case.is_shown_by(world) else ()))
    length = world.log.partitions[PLACE].end
    return [Trial(seed, kinds, finding.verdict.value, meter, length, broken, cramped=True)]


def describe(seed: int) -> str:
    """Describe a case for a person."""
    case, world = make(seed)
    held = " ".join(
        f"{at}={'' if i < case.old else 'n'}{(case.source[i].id or b'').decode()}@{case.source[i].stamp_ms}"
        for at, i in world.held.items()
    )
    return f"seed {seed}: stored {case.stored}, shown {case.is_shown_by(world)}\n  {held}\n  {answer(case, world)}"
