"""The questions of a search to one partition's log, and their answers.

A search is a generator: it yields a round (a tuple of probes), is sent the answers in the same order, and returns a
``Finding``. It does no I/O, so the same search runs on a broker, on a simulated log and in a test.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from reconciler.core.anchors import Record
from reconciler.core.errors import NotRead


@dataclass(frozen=True, slots=True)
class Edges:
    """Where the log begins and ends now. Answer: LogRange."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """``start`` is the first offset that can be read, ``end`` the one after the last record (the high watermark)."""

    start: int
    end: int

    def place_of(self, lookup: int | None) -> int:
        """Where to begin by the answer of a time lookup, within this range; its end if no record is of that time."""
        return self.end if lookup is None else min(max(lookup, self.start), self.end)


@dataclass(frozen=True, slots=True)
class TimeLookup:
    """The first offset in log order with a timestamp >= ``timestamp_ms`` (ListOffsets). Answer: int or None.

    The broker may name a transaction marker or a record since compacted away: the answer is an offset to read
    from, not a record's. Every record before it has a smaller timestamp.
    """

    timestamp_ms: int

    def __post_init__(self) -> None:
        if self.timestamp_ms < 0:  # to a broker -1 is the log's end, and -2 its start
            raise ValueError(f"{self.timestamp_ms} is no time")


@dataclass(frozen=True, slots=True)
class Cleaning:
    """Whether log compaction may have removed records (cleanup.policy). Answer: bool, or None if unknown."""


@dataclass(frozen=True, slots=True)
class Read:
    """The first records at or after ``offset``, about ``max_records`` at most. Answer: Chunk.

    ``offset`` is in the log's range; a Chunk with ``out_of_range`` means that retention has moved the range.
    ``committed``: records of aborted and open transactions are left out, and an open one ends the log.
    ``full_until_ms``: behind the last record that was not created after this time, the log may merely count the others
    (``Chunk.counted``). ``again``: the records that it has counted are needed after all. That is not a new question,
    so it does not count as a probe of the finding.
    """

    offset: int
    max_records: int
    committed: bool = False
    full_until_ms: int | None = None
    again: bool = False

    def __post_init__(self) -> None:
        if self.offset < 0 or self.max_records < 1:
            raise ValueError(f"nothing to read at {self.offset} for {self.max_records} records")


@dataclass(frozen=True, slots=True)
class Counted:
    """Records that were read and are not here: ``count`` of them, with the ``last`` offset.

    Their producers created all of them, ``oldest_ms`` or later.
    """

    count: int
    last: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records in offset order, and where to continue reading.

    ``next_offset`` is after every offset that this chunk covers, gaps included. Empty ``records`` means that there is
    none from the requested offset up to ``next_offset``, which is then the log's end as the reader saw it.
    ``counted`` follow the ``records``, only where ``Read.full_until_ms`` allows it.
    """

    records: Sequence[Record]
    next_offset: int
    out_of_range: bool = False
    counted: Counted | None = None


class Withheld(Chunk):
    """Stands in for records that could not be read within the limits. Using any part of it raises ``error``."""

    __slots__ = ("error",)

    error: NotRead

    def __init__(self, error: NotRead) -> None:
        object.__setattr__(self, "error", error)

    @property
    def records(self) -> Sequence[Record]:
        raise self.error

    @property
    def next_offset(self) -> int:
        raise self.error

    @property
    def out_of_range(self) -> bool:
        raise self.error

    @property
    def counted(self) -> Counted | None:
        raise self.error


class LogMoved(Exception):
    """The log ends before an end that was known: it was cut, or its new leader has not caught up yet.

    The records read so far may belong to another log: the search must start over.
    """


Probe = Edges | TimeLookup | Cleaning | Read
Answer = LogRange | int | bool | None | Chunk
Round = tuple[Probe, ...]

T = TypeVar("T")
Search = Generator[Round, tuple[Answer, ...], T]
"""A search that ends in a T."""


def ask_edges() -> Search[LogRange]:
    """The log's range, in a round of its own."""
    (answer,) = yield (Edges(),)
    return as_range(answer)


def ask_lookup(timestamp_ms: int) -> Search[int | None]:
    """One time lookup in a round of its own. A time before 1970 finds the first record."""
    (answer,) = yield (TimeLookup(max(0, timestamp_ms)),)
    return as_lookup(answer)


def ask_cleaning() -> Search[bool | None]:
    """Whether the log is compacted, in a round of its own."""
    (answer,) = yield (Cleaning(),)
    if answer is not None and not isinstance(answer, bool):
        raise TypeError(f"whether the log is compacted was asked, the answer is {answer!r}")
    return answer


def ask_read(
    offset: int, max_records: int, *, committed: bool = False, full_until_ms: int | None = None, again: bool = False
) -> Search[Chunk]:
    """One read in a round of its own."""
    (answer,) = yield (Read(offset, max_records, committed, full_until_ms, again),)
    return as_chunk(answer)


def as_chunk(answer: Answer) -> Chunk:
    """An answer that must be records."""
    if not isinstance(answer, Chunk):
        raise TypeError(f"a read was answered with {answer!r}")
    return answer


def as_range(answer: Answer) -> LogRange:
    """An answer that must be a range."""
    if not isinstance(answer, LogRange):
        raise TypeError(f"the log's edges were asked for, the answer is {answer!r}")
    return answer


def as_lookup(answer: Answer) -> int | None:
    """An answer that must be an offset or "none"."""
    if answer is not None and not isinstance(answer, int):
        raise TypeError(f"a time was looked up, the answer is {answer!r}")
    return answer
