"""Every history of a small mirrored partition, grouped by what a reader of its log can see.

A history is a source partition, the runs of a mirror, and a prefix that retention has deleted at the destination. What
can be seen of it is the pattern of the records that are left: which of them are equal. Histories with the same pattern
differ in the source's order of those records, and in where records lay that are not seen. A search sees the pattern, so
it owes an answer that is right in all of the pattern's histories at once.

Times need not be enumerated for records that are not seen: one that took the largest time of those before it would
break no bound on disorder that the others keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

Delivered = tuple[int, ...]
"""Source indexes in the order of the destination's log."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The remains of a log: equal labels are equal records, numbered by first appearance.

    ``whole``: nothing was deleted in front.
    """

    labels: tuple[int, ...]
    whole: bool

    @property
    def count(self) -> int:
        """The number of different visible records."""
        return max(self.labels, default=-1) + 1


class Done(NamedTuple):
    """``mask``: bit i is set if the i-th record of the log was processed. The first ``safe`` of them may be passed."""

    mask: int
    safe: int


@dataclass(frozen=True, slots=True)
class Hidden:
    """An invisible source record: the number of visible ones before it, and the label of an equal visible one."""

    rank: int
    label: int | None


@dataclass(frozen=True, slots=True)
class Origin:
    """One possible origin of a pattern.

    ``ranks[i]`` is the place in the source's order of the i-th record in the log, among those seen; None for a local
    writer's, made after the failover. ``order`` holds the labels by rank. ``mistakable`` are ranks of records that
    another of the source equals while their own first copy is gone: what is left is taken for them.
    """

    ranks: tuple[int | None, ...]
    order: tuple[int, ...]
    hidden: frozenset[Hidden]
    mistakable: frozenset[int] = frozenset()

    def done(self, count: int, *, copies_are_told: bool = False) -> Done:
        """What it means that the first ``count`` visible source records were processed.

        ``copies_are_told``: an unprocessed record may be passed where it comes again.
        """
        done = [rank is not None and rank < count for rank in self.ranks]
        last = {rank: place for place, rank in enumerate(self.ranks) if rank is not None}
        passed = [
            last[rank] if copies_are_told and rank is not None else place
            for place, rank in enumerate(self.ranks)
            if not done[place]
        ]
        return Done(sum(1 << place for place, each in enumerate(done) if each), min(passed, default=len(done)))


def deliveries(records: int, resends: int) -> set[Delivered]:
    """Every possible delivery of ``records`` source records, in at most 1 + ``resends`` runs.

    Each later run starts at or before the end of the one before it; any run may find records missing, and what is
    missing once does not come back.
    """
    found: set[Delivered] = set()
    for sent, end, gone in _runs((), records, 0, frozenset()):
        _extend(found, sent, end, gone, records, resends)
    return found


def _extend(found: set[Delivered], sent: Delivered, end: int, gone: frozenset[int], records: int, resends: int) -> None:
    found.add(sent)
    if not resends:
        return
    for begin in range(end + 1):
        for longer, stop, missing in _runs(sent, records, begin, gone):
            if longer != sent:
                _extend(found, longer, stop, missing, records, resends - 1)


def _runs(
    sent: Delivered, records: int, begin: int, gone: frozenset[int]
) -> Iterator[tuple[Delivered, int, frozenset[int]]]:
    """Every run from ``begin``: the records delivered, the run's end, the records gone at the source."""
    yield sent, begin, gone
    if begin < records:
        if begin not in gone:
            yield from _runs((*sent, begin), records, begin + 1, gone)
        yield from _runs(sent, records, begin + 1, gone | {begin})


def patterns(records: int, resends: int, *, local: int = 1, twins: bool = False) -> dict[Pattern, set[Origin]]:
    """Every pattern that such deliveries leave after any retention and up to ``local`` local writes, with origins.

    ``twins``: the source may hold one record twice, with the same id, content and time.
    """
    pairs = [None, *combinations(range(records), 2)] if twins else [None]
    found: dict[Pattern, set[Origin]] = {}
    for delivered in deliveries(records, resends):
        for deleted in range(len(delivered) + 1):
            for pair in pairs:
                labels, origin = _described(delivered[:deleted], delivered[deleted:], records, pair)
                for written in range(local + 1):
                    fresh = tuple(range(max(labels, default=-1) + 1, max(labels, default=-1) + 1 + written))
                    seen = Pattern((*labels, *fresh), deleted == 0)
                    written_too = replace(origin, ranks=(*origin.ranks, *(None for _ in fresh)))
                    found.setdefault(seen, set()).add(written_too)
    return found


def _described(
    deleted: Delivered, seen: Delivered, records: int, pair: tuple[int, int] | None
) -> tuple[tuple[int, ...], Origin]:
    def content(index: int) -> int:
        return pair[0] if pair is not None and index == pair[1] else index

    label_of: dict[int, int] = {}
    for index in seen:
        label_of.setdefault(content(index), len(label_of))
    visible = sorted(set(seen))
    rank_of = {index: rank for rank, index in enumerate(visible)}
    hidden = frozenset(
        Hidden(sum(other < index for other in visible), label_of.get(content(index)))
        for index in range(records)
        if index not in rank_of
    )
    order = tuple(label_of[content(index)] for index in visible)
    mistakable = frozenset(rank_of[index] for index in pair or () if index in deleted and index in rank_of)
    origin = Origin(tuple(map(rank_of.get, seen)), order, hidden, mistakable)
    return tuple(label_of[content(index)] for index in seen), origin
