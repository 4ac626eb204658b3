"""Every small history with every choice of syncs and checkpoints, for every offset that a job can have stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from reconciler.core.anchors import Identity, IdOrder, Record, StoredOffset, record_timestamp
from reconciler.core.mirrored.pairs import MirrorCheckpoint, Pairs, Sync, evidence_for
from reconciler.core.question import Limits, Question
from reconciler.core.reconcile import reconcile
from reconciler.core.verdicts import Finding
from tests.memory_log import MemoryPartition
from tests.simulation.worlds.exhaustive import replied
from tests.simulation.worlds.histories import Delivered, deliveries

TIMES = (10, 20)
MANY = 5
MOST_FAILURES = 20


@dataclass(frozen=True, slots=True)
class History:
    """What was delivered, the source's times, what retention deleted, the pairs that are left, the stored offset."""

    delivered: Delivered
    times: tuple[int, ...]
    deleted: int
    syncs: tuple[int, ...]
    """Places of which a sync is left."""
    checkpoint: tuple[int, int] | None
    """A sync's place, and the group's offset."""
    stored: int
    increasing: bool
    carried: bool = False
    """Each record carries its number; then there are no pairs."""

    @property
    def disorder(self) -> int:
        falls = [one - other for place, other in enumerate(self.times) for one in self.times[:place]]
        return max(0, *falls, 0)

    @property
    def pairs(self) -> Pairs:
        syncs = tuple(Sync(self.delivered[place], place, 100 + 10 * place) for place in self.syncs)
        if self.checkpoint is None:
            return Pairs(syncs)
        place, group = self.checkpoint
        behind = group > self.delivered[place]
        return Pairs(syncs, (MirrorCheckpoint("others", group, place + behind, 105 + 10 * place),))

    @property
    def question(self) -> Question:
        order = IdOrder.INCREASING if self.increasing else IdOrder.OPAQUE
        return Question(
            StoredOffset(self.stored),
            "here",
            "here/events",
            Identity(record_timestamp, source_value_of=_number)
            if self.carried
            else Identity(record_timestamp, _id, order),
            Limits(self.disorder),
            compacted=False,
            mirror=evidence_for(self.stored, self.pairs),
        )

    def log(self) -> MemoryPartition:
        part = MemoryPartition()
        for index in self.delivered:
            part.append(self.times[index], b"key", b"record %d" % index, (("id", b"%d" % index),))
        part.delete_before(self.deleted)
        return part


def _id(record: Record) -> bytes | None:
    return dict(record.headers).get("id")


def _number(record: Record) -> int | None:
    name = _id(record)
    return None if name is None else int(name)


def histories(records: int, resends: int, part: int = 0, parts: int = 1) -> Iterator[History]:
    """Every history of this size; ``part`` of ``parts`` takes every so-manieth delivery.

    From ``MANY`` records on, only those with two syncs, in which times are all equal, in order, or in reverse.
    """
    if records >= MANY:
        yield from _between_two(records, resends, part, parts)
        return
    for delivered in sorted(deliveries(records, resends))[part::parts]:
        places = range(len(delivered))
        checkpoints = [None, *((place, group) for place in places for group in range(delivered[place], records + 1))]
        kept = [chosen for size in (0, 1, 2) for chosen in combinations(places, size)]
        for times, deleted in product(_times(records), range(len(delivered) + 1)):
            for stored in range(records + 1):
                yield History(delivered, times, deleted, (), None, stored, increasing=False, carried=True)
            for syncs, checkpoint, stored in product(kept, checkpoints, range(records + 1)):
                if len(syncs) == 2 and checkpoint is not None:
                    continue
                for increasing in (False, True):
                    yield History(delivered, times, deleted, syncs, checkpoint, stored, increasing)


def _between_two(records: int, resends: int, part: int, parts: int) -> Iterator[History]:
    ascending = tuple(10 * place for place in range(records))
    orders = (TIMES[:1] * records, ascending, ascending[::-1])
    for delivered in sorted(deliveries(records, resends))[part::parts]:
        pairs = combinations(range(len(delivered)), 2)
        kept = [(one, other) for one, other in pairs if delivered[one] + 2 < delivered[other]]
        for times, syncs, stored in product(orders, kept, range(1, records)):
            if delivered[syncs[0]] + 1 < stored < delivered[syncs[1]]:
                for deleted, increasing in product((0, syncs[0], syncs[0] + 1), (False, True)):
                    yield History(delivered, times, deleted, syncs, None, stored, increasing)


def _times(records: int) -> list[tuple[int, ...]]:
    return list(product(TIMES, repeat=records))


def answer(history: History) -> Finding:
    part, search = history.log(), reconcile(history.question)
    try:
        probes = next(search)
        while True:
            probes = search.send(tuple(replied(part, probe) for probe in probes))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def broken_promises(history: History, finding: Finding) -> Iterator[str]:
    resume = finding.resume_offset
    if resume is None:
        return
    held = {at: index for at, index in enumerate(history.delivered) if at >= history.deleted}
    again = {index for at, index in held.items() if at >= resume} if history.carried else set()
    if lost := [at for at, index in held.items() if at < resume and index >= history.stored and index not in again]:
        yield f"skips: {lost}"
    count = sum(at >= resume and index < history.stored for at, index in held.items())
    if count > (finding.replay_at_most or 0):
        yield f"replays {count}, promised at most {finding.replay_at_most}"
    if finding.replay_exact not in (None, count):
        yield f"replays {count}, promised exactly {finding.replay_exact}"


@dataclass(slots=True)
class BareTally:
    """Sums over histories; two of them can be added."""

    asked: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    best: int = 0
    """Answers at the first copy of the next record that was delivered."""
    broken: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def judge(self, history: History) -> None:
        finding = answer(history)
        self.asked += 1
        self.verdicts[finding.verdict.value] += 1
        first = [at for at, index in enumerate(history.delivered) if index >= history.stored]
        self.best += finding.resume_offset == max(history.deleted, min(first, default=len(history.delivered)))
        for sentence in broken_promises(history, finding):
            self.broken[sentence.split()[0]] += 1
            self.failures = [*self.failures, f"{sentence}\n  {history}\n  {finding}"][:MOST_FAILURES]

    def merge(self, other: BareTally) -> None:
        self.asked += other.asked
        self.best += other.best
        self.verdicts.update(other.verdicts)
        self.broken.update(other.broken)
        self.failures = [*self.failures, *other.failures][:MOST_FAILURES]

    @property
    def is_clean(self) -> bool:
        return not self.broken

    def text(self) -> str:
        """The report."""
        shares = ", ".join(f"{name} {count:,}" for name, count in self.verdicts.most_common())
        lines = [
            f"histories            {self.asked:,}: {shares}",
            f"at the best place    {self.best:,}",
            f"skipped a record     {self.broken['skips:']:,}",
            f"broke a bound        {self.broken['replays']:,}",
        ]
        return "\n".join([*lines, *self.failures])


Task = tuple[int, int, int, int]
"""Records, re-sends, part and parts."""


def judge_all(tasks: Sequence[Task]) -> BareTally:
    tally = BareTally()
    for task in tasks:
        for history in histories(*task):
            tally.judge(history)
    return tally
