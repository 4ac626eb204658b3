"""Every small history, asked about every anchor: is the answer safe wherever things look the same, and is it the best?

A question shows a search the records that are left, the anchor and the stated disorder. Of all histories that would
show it the same, none may lose a record by the answer, and none may read more again than promised. The same set tells
what the best answer would have been: no search that sees only this can resume later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, product

from reconciler.core.anchors import (
    Anchor,
    Identity,
    IdOrder,
    Names,
    Record,
    StoredOffset,
    fingerprint,
    record_timestamp,
)
from reconciler.core.probes import Answer, Cleaning, Edges, LogRange, Probe, TimeLookup
from reconciler.core.question import Limits, Question
from reconciler.core.reconcile import reconcile
from reconciler.core.verdicts import Finding
from tests.memory_log import MemoryPartition
from tests.simulation.worlds.histories import Done, Hidden, Origin, Pattern

TIMES = (10, 20, 30)
DELETED = 4
"""The number of offsets deleted at the start of an incomplete log."""
UNSEEN = 99
"""The label of an anchor that is not in the log."""


@dataclass(frozen=True, slots=True)
class Kind:
    """An anchor's fields, and the record that it names."""

    name: str
    id: bool = False
    content: bool = False
    time: bool = True
    increasing: bool = False
    unique: bool = False
    names: Names = Names.LAST

    @property
    def pins(self) -> bool:
        """True if it has more than a time."""
        return self.id or self.content

    @property
    def identity(self) -> Identity:
        order = IdOrder.INCREASING if self.increasing else IdOrder.OPAQUE
        return Identity(record_timestamp, _header_id if self.id else None, order, unique_ids=self.unique)

    @property
    def tells_copies(self) -> bool:
        """True if no two records share its id."""
        return self.increasing or self.unique


KINDS = (
    Kind("id and fingerprint", id=True, content=True),
    Kind("id", id=True),
    Kind("fingerprint", content=True),
    Kind("increasing id", id=True, content=True, increasing=True),
    Kind("unique id", id=True, content=True, unique=True),
    Kind("time"),
    Kind("id without time", id=True, time=False),
    Kind("fingerprint without time", content=True, time=False),
    Kind("increasing id without time", id=True, time=False, increasing=True),
    Kind("record at the offset, by id", id=True, content=True, names=Names.NEXT),
    Kind("record at the offset, by increasing id", id=True, increasing=True, names=Names.NEXT),
    Kind("unique id without time", id=True, time=False, unique=True),
    Kind("record at the offset, by unique id", id=True, unique=True, names=Names.NEXT),
    Kind("record at the offset, by time", names=Names.NEXT),
    Kind("largest time", names=Names.MAX_TIME),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """The input of a search. ``anchor`` is a label or ``UNSEEN``; only increasing ids have an ``order``."""

    pattern: Pattern
    times: tuple[int, ...]
    kind: Kind
    disorder: int
    anchor: int
    anchor_time: int | None
    order: tuple[tuple[int, int], ...] | None = None
    """Labels and their ranks, of records that have an id."""
    rank: int | None = None
    """The number of visible ids below that of an unseen anchor; only for increasing ids."""


def _header_id(record: Record) -> bytes | None:
    return dict(record.headers).get("id")


def in_order(times: Sequence[int], origin: Origin, disorder: int) -> bool:
    """True if the origin could have given its records these times. A local writer's clock is held to it too."""
    local = [times[label] for label in range(len(times)) if label not in origin.order]
    line = [*(times[label] for label in origin.order), *local]
    latest = 0
    for time in line:
        if time < latest - disorder:
            return False
        latest = max(latest, time)
    twins = [hidden for hidden in origin.hidden if hidden.label is not None]
    return all(times[twin.label or 0] in _fitting(line, twin.rank, disorder) for twin in twins)


def _fitting(line: Sequence[int], rank: int, disorder: int) -> list[int]:
    """The possible times of a record at ``rank`` among others."""
    least = max(line[:rank], default=0) - disorder
    most = min(line[rank:], default=max(TIMES)) + disorder
    return [time for time in TIMES if least <= time <= most]


Look = dict["Asked", set[Done]]
"""The possible inputs of a search, each with the processed records of the histories that lead to it."""


@dataclass(frozen=True, slots=True)
class Space:
    """The scope of an enumeration: the true disorder of times (ms), and the one stated to the search.

    Told less than is true, a search owes its answers only where the log is whole and the anchor is in it.
    """

    disorder: int
    told: int

    @property
    def is_told_true(self) -> bool:
        return self.told >= self.disorder


def questions(pattern: Pattern, origins: set[Origin], space: Space, kinds: Sequence[Kind]) -> Iterator[Look]:
    """Yield all questions about a pattern for each choice of times."""
    if not space.is_told_true:
        if not pattern.whole:
            return
        kinds = [kind for kind in kinds if kind.pins]
    for times in product(TIMES, repeat=pattern.count):
        possible = [origin for origin in origins if in_order(times, origin, space.disorder)]
        asked: Look = {}
        for kind in kinds:
            for origin in possible:
                for question, done in _asked_of(pattern, times, kind, space, origin):
                    asked.setdefault(question, set()).add(done)
        if asked:
            yield asked


def _asked_of(
    pattern: Pattern, times: tuple[int, ...], kind: Kind, space: Space, origin: Origin
) -> Iterator[tuple[Asked, Done]]:
    told = space.told
    if kind.names is Names.MAX_TIME:
        for count in range(len(origin.order) + 1):
            for time in _largest_times(times, origin, count, space.disorder):
                yield Asked(pattern, times, kind, told, UNSEEN, time), origin.done(count)
        return
    # Not promised: the anchor's first copy is gone, and another source record that equals it in all things is there.
    order = tuple((label, rank) for label, rank in zip(pattern.labels, origin.ranks, strict=True) if rank is not None)
    known = tuple(sorted(set(order))) if kind.increasing else None
    for rank, label in enumerate(origin.order):
        if rank in origin.mistakable and kind.pins:
            continue
        time = times[label] if kind.time else None
        asked = Asked(pattern, times, kind, told, label if kind.pins else UNSEEN, time, known)
        yield asked, origin.done(rank + (kind.names is Names.LAST), copies_are_told=kind.tells_copies)
    for hidden in origin.hidden if space.is_told_true else ():
        if hidden.label is not None and kind.pins:
            continue
        place = hidden.rank if kind.increasing else None
        for time in _hidden_times(times, origin, hidden, space.disorder) if kind.time else (None,):
            yield (
                Asked(pattern, times, kind, told, UNSEEN, time, known, place),
                origin.done(hidden.rank, copies_are_told=kind.tells_copies),
            )


def _hidden_times(times: tuple[int, ...], origin: Origin, hidden: Hidden, disorder: int) -> Sequence[int]:
    if hidden.label is not None:
        return [times[hidden.label]]
    local = [times[label] for label in range(len(times)) if label not in origin.order]
    return _fitting([*(times[label] for label in origin.order), *local], hidden.rank, disorder)


def _largest_times(times: tuple[int, ...], origin: Origin, count: int, disorder: int) -> set[int]:
    """The possible values of ``maxEventTime`` after the first ``count`` visible records were processed."""
    seen = max((times[label] for label in origin.order[:count]), default=0)
    earlier = [hidden for hidden in origin.hidden if hidden.rank <= count]
    unseen = [time for hidden in earlier for time in _hidden_times(times, origin, hidden, disorder)]
    return {time for time in unseen if time > seen} | ({seen} if count else set())


# ---------------------------------------------------------------- asking


def partition_of(asked: Asked) -> MemoryPartition:
    """The visible log."""
    part = MemoryPartition()
    if not asked.pattern.whole:
        part.start = part.end = DELETED
    rank = None if asked.order is None else dict(asked.order)
    for label in asked.pattern.labels:
        part.append(asked.times[label], b"key", _content(label), _headers(asked.kind, label, rank))
    return part


def _content(label: int) -> bytes:
    return b"record %d" % label


def _headers(kind: Kind, label: int, rank: Mapping[int, int] | None) -> tuple[tuple[str, bytes], ...]:
    if not kind.id or (rank is not None and label not in rank):
        return ()
    return (("id", b"%d" % label if rank is None else b"%d" % (10 * rank[label])),)


def question_of(asked: Asked) -> Question:
    kind, label = asked.kind, asked.anchor
    name = None
    if kind.id and kind.increasing and asked.order is not None:
        place = 10 * dict(asked.order)[label] if label != UNSEEN else 10 * (asked.rank or 0) - 5
        name = b"%d" % place
    elif kind.id:
        name = b"%d" % label
    mark = fingerprint(b"key", _content(label)) if kind.content else None
    anchor = Anchor(1000, asked.anchor_time, name, mark, "source", "source/events", kind.names)
    offset = 1000 if kind.names is Names.NEXT else 1001
    limits = Limits(asked.disorder)
    return Question(StoredOffset(offset, anchor), "here", "here/events", kind.identity, limits, compacted=False)


def answer(asked: Asked, lies: Iterator[int | None] | None = None) -> Finding:
    """Run the search on the visible log. ``lies``: what the broker answers to each time lookup instead of the truth."""
    part = partition_of(asked)
    search = reconcile(question_of(asked))
    probes = next(search)
    while True:
        try:
            probes = search.send(tuple(replied(part, probe, lies) for probe in probes))
        except StopIteration as stop:
            return stop.value


def lies_of(asked: Asked) -> Iterator[Iterator[int | None]]:
    """All answers that a broker can give to two lookups, and then to the next ones again."""
    part = partition_of(asked)
    said = (None, *range(part.start, part.end + 1))
    return (cycle(pair) for pair in product(said, said))


def replied(part: MemoryPartition, probe: Probe, lies: Iterator[int | None] | None = None) -> Answer:
    if isinstance(probe, Edges):
        return LogRange(part.start, part.end)
    if isinstance(probe, TimeLookup):
        return part.lookup(probe.timestamp_ms) if lies is None else next(lies)
    if isinstance(probe, Cleaning):
        return part.compacted
    return part.read(probe.offset, probe.max_records)


# ---------------------------------------------------------------- judging


def replayed(asked: Asked, done: Done, resume: int) -> int:
    """Records from ``resume`` on that were processed."""
    return (done.mask >> max(0, resume - _first(asked))).bit_count()


def best_resume(asked: Asked, histories: set[Done]) -> int:
    """The largest offset before which no history has an unprocessed record that does not come again."""
    return _first(asked) + min((done.safe for done in histories), default=len(asked.pattern.labels))


def is_best(asked: Asked, histories: set[Done], resume: int) -> bool:
    """True if a later place would be unsafe in some history; where copies are told, if it would repeat no less."""
    best = best_resume(asked, histories)
    if not asked.kind.tells_copies:
        return resume == best
    if not asked.pattern.whole or asked.anchor == UNSEEN:  # copies behind an absent anchor are not looked at
        first = min((~each.mask & (each.mask + 1)).bit_length() - 1 for each in histories)
        return not asked.kind.increasing or resume >= _first(asked) + first
    return resume <= best and all(replayed(asked, each, resume) == replayed(asked, each, best) for each in histories)


def _first(asked: Asked) -> int:
    return 0 if asked.pattern.whole else DELETED


def broken_promises(asked: Asked, histories: set[Done], finding: Finding) -> Iterator[str]:
    """Every promise that this answer breaks in some history."""
    resume = finding.resume_offset
    if resume is None:
        yield f"gives up ({finding.verdict.value}), where the log's start would have been safe"
        return
    if resume > best_resume(asked, histories):
        yield f"skips: resumes at {resume}, and only {best_resume(asked, histories)} is safe"
        return
    again = {replayed(asked, done, resume) for done in histories}
    if finding.replay_at_most is not None and max(again) > finding.replay_at_most:
        yield f"replays {max(again)}, promised at most {finding.replay_at_most}"
    if finding.replay_exact is not None and again != {finding.replay_exact}:
        yield f"replays {sorted(again)} in different histories, promised exactly {finding.replay_exact}"
