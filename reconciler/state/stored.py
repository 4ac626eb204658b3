"""How a stored number is read in the stay where its job lives, and what a plan says of it. Pure.

Theory of operation. A plan begins a stay: it names the number that each partition gets, and what it replaces. The
journal of the stay begins with the plan's numbers. From then on, a place holds under a partition's key one of four
things: a number that the job stored in this stay, what the plan replaced (it was not written yet, or only the job
writes there, or the place was put back), a number of another stay, or nothing.

- N1  A number that the journal has is the job's. The entry is its anchor.
- N2  What the plan replaced, or nothing, means the plan's number.
- N3  A number that a mirror committed, and that the journal lacks, means the newest entry: the mirror's numbers are
      estimates, and may be too late.
- N4  A number of another stay, or one below all entries, needs a decision.
- N5  Any other number is beyond an entry, and proven up to that entry. Where no other cluster's number can be under its
      key, or its row names the stay, it is the job's own, and the job starts there.
- N6  Elsewhere a driver that was not stopped, or a table that was put back, may have left it: the job starts at the
      entry. This stay has processed all records before it, whichever driver wrote the number.

Each reading bounds what is read again: by a start at the number (``again``), and by a move from the last proven record
(``ahead``). The bounds are in records, and hold for what the job processed before it was read.

``R`` is what identifies a record: an anchor; in the hand-over model, a number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Known(Generic[R]):
    """One partition's part of a journal entry."""

    number: int
    record: R | None
    """The last record before ``number``, or the last that is proven to be; None if the job has processed none."""
    again: int = 0
    """Records from ``number`` on that may be processed: what the plan has shown."""
    older: int = 0
    """Records between ``record`` and ``number`` that may be processed."""
    processed: bool = True
    """False for the end of a batch that has begun."""


@dataclass(frozen=True, slots=True)
class Stored(Generic[R]):
    """A partition's stored number where the job lives."""

    number: int
    record: R | None
    again: int
    """Records from ``number`` on that may be processed."""
    ahead: int
    """Records after ``record`` that may be processed."""

    @property
    def furthest(self) -> int:
        """The number up to which the job can have processed."""
        return self.number + self.again

    @property
    def older(self) -> int:
        """Records between ``record`` and ``number``."""
        return self.ahead - self.again


@dataclass(frozen=True, slots=True)
class PlanRow(Generic[R]):
    """One partition of a plan."""

    number: int
    """Where the job resumes on the cluster it moves to."""
    record: R | None
    again: int
    older: int
    replaced: frozenset[int | None]
    """The content of the partition's key that is not the job's: it means ``number`` (N2)."""
    left: Stored[R]
    """The number on the cluster that the job leaves."""

    def first(self) -> Known[R]:
        """The partition's part of the new stay's first entry."""
        return Known(self.number, self.record, self.again, self.older)


class Doubt(Enum):
    """Why a number needs a decision."""

    ANOTHER_STAY = "it was stored in another stay of this job"
    UNKNOWN = "it is below everything that this stay has stored"


@dataclass(frozen=True, slots=True)
class Found:
    """The content of a place under a partition's key."""

    number: int | None
    of_stay: int | None = None
    """The stay of the driver that wrote it; None where a row has no room for it."""
    shared: bool = False
    """True if another cluster's number can be under this key."""
    of_mirror: bool = False
    """True if a mirror has committed this number."""


def read_number(found: Found, journal: Sequence[Known[R]], row: PlanRow[R] | None, stay: int) -> Stored[R] | Doubt:
    """The partition's stored number. ``journal``: its entries of this stay, oldest first. ``row``: of its plan."""
    number = found.number
    foreign = found.of_stay is not None and found.of_stay != stay
    exact = [each for each in journal if each.number == number and each.processed]
    if exact and not foreign:  # N1
        return from_entry(exact[-1], journal)
    replaced = row is not None and (number is None or number in row.replaced)
    if replaced and (found.of_stay is None or found.of_stay <= stay):  # N2
        return from_entry(journal[0], journal, reached=0 if number is None or foreign else number)
    if number is None or foreign:  # N4
        return Doubt.ANOTHER_STAY if foreign else Doubt.UNKNOWN
    processed = [each for each in journal if each.processed]
    if found.of_mirror:  # N3
        return from_entry(processed[-1], journal, reached=number)
    below = [each for each in processed if each.number < number]
    if not below:
        return Doubt.UNKNOWN
    proven = from_entry(below[-1], journal, reached=number)
    if stay > 1 and found.of_stay is None and found.shared:  # N6
        return proven
    return Stored(number, proven.record, proven.furthest - number, proven.ahead)  # N5


def newest(journal: Sequence[Known[R]], *, reached: int = 0) -> Stored[R]:
    """The newest processed entry as the stored number: of a job whose place is the journal, or cannot be read."""
    return from_entry([each for each in journal if each.processed][-1], journal, reached=reached)


def from_entry(entry: Known[R], journal: Sequence[Known[R]], *, reached: int = 0) -> Stored[R]:
    """An entry's number. The job may have processed up to ``reached``, or to any number that the journal has."""
    furthest = max(reached, *(each.number + each.again for each in journal))
    again = furthest - entry.number
    return Stored(entry.number, entry.record, again, again + entry.older)


def plan_back(row: PlanRow[R], replaced: Collection[int | None]) -> PlanRow[R]:
    """The row that gives back exactly the number from which ``row`` left: of a cancel, or of a rollback.

    ``replaced``: what the place holds now under the partition's key, what the plan wrote there, and what it replaced.
    """
    left = row.left
    there = Stored(row.number, row.record, row.again, row.again + row.older)
    return PlanRow(left.number, left.record, left.again, left.older, frozenset(replaced), there)
