"""Findings: the six kinds, best to worst, and one partition's finding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from reconciler.core.anchors import Record, fingerprint


class Verdict(Enum):
    """The six kinds of a finding, ordered by badness: ``max`` of a run's is the run's."""

    EXACT = "exact"
    NEW = "new"
    EARLY = "early"
    BEHIND = "behind"
    LOST = "lost"
    UNRESOLVED = "unresolved"

    __hash__ = object.__hash__
    """Enum's own is computed from the name, in Python; a large plan asks for it hundreds of thousands of times."""

    @property
    def badness(self) -> int:
        return _ORDER[self]

    def __lt__(self, other: Verdict) -> bool:
        return self.badness < other.badness


_ORDER = {verdict: place for place, verdict in enumerate(Verdict)}

STOPS = frozenset({Verdict.LOST, Verdict.UNRESOLVED})
"""Stop unless a person accepts them."""


class MatchedBy(StrEnum):
    """The property that proved a record to be the anchor's."""

    ID = "id"
    FINGERPRINT = "fingerprint"
    TIMESTAMP = "timestamp"


class Position(StrEnum):
    """Which of a partition's positions a row is about: ``START`` and ``END`` are of a batch that will be repeated."""

    NEXT = "next"
    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Skips:
    """How many records a person's offset skips: those before it, from the proven resume offset on.

    Where nothing was proven they count from the log's start. ``at_least`` so many were read there and are more than the
    job can have processed; ``at_most`` counts every record that was read and every offset that was not.
    """

    at_least: int
    at_most: int

    def __post_init__(self) -> None:
        if not 0 <= self.at_least <= self.at_most or self.at_most < 1:
            raise ValueError("an offset skips at least as many records as are known, and at least one")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one partition's search.

    ``replay_at_most`` bounds the processed records that will be read again from ``resume_offset``;
    ``replay_exact`` is set where their exact number is known. ``record_offset`` is the
    destination record that the resume offset was checked against: the one right before it, or None at the start of a
    log. ``detail`` is a sentence for a person. ``skips`` is None where no record is skipped.
    """

    verdict: Verdict
    resume_offset: int | None
    replay_at_most: int | None = None
    replay_exact: int | None = None
    matched_by: MatchedBy | None = None
    record_offset: int | None = None
    detail: str = ""
    skips: Skips | None = None
    record_fingerprint: str | None = None
    """The fingerprint of the record at ``record_offset``, where that need not be the anchor's."""
    by_row_time: bool = False
    """True where nothing but the time of the store's row says where the job is."""
    absent: bool = False
    """The destination does not have the partition."""
    spread: bool = False
    """The destination's partitions do not correspond to the stored ones: the offset is found by time over all."""

    def __post_init__(self) -> None:
        if self.resume_offset is None and self.verdict not in STOPS:
            raise ValueError(f"{self.verdict.value} needs a resume offset")
        if self.resume_offset is not None:
            if self.resume_offset < 0:
                raise ValueError("a resume offset is never negative: -1 and -2 mean latest and earliest to Spark")
            if self.replay_at_most is None or self.replay_at_most < 0:
                raise ValueError(f"{self.verdict.value} at {self.resume_offset} has no replay bound")
            if self.record_offset is not None and self.record_offset >= self.resume_offset:
                raise ValueError("the record checked must be before the resume offset")
        if self.replay_exact is not None and self.replay_exact != self.replay_at_most:
            raise ValueError("an exact replay is its own bound")

    def resting_on(self, record: Record | None) -> Finding:
        """The finding, checked against this record, which need not be the anchor's; None: at the start of the log."""
        if record is None:
            return replace(self, record_offset=None, record_fingerprint=None)
        mark = fingerprint(record.key, record.value)
        return replace(self, record_offset=record.offset, record_fingerprint=mark)
