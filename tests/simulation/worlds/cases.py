"""The values of the simulation: a source partition, a mirror, a failover, and the question of a job.

A case is made from a seed alone (``making``) and carried out in memory (``carrying``). The world that comes of it
keeps, for every offset of the destination, which source record lies there, so that the oracle can say what was
skipped and what was read again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from reconciler.core.anchors import Anchor, Identity, IdOrder, Record, StoredOffset, record_timestamp
from reconciler.core.question import Limits, Question
from reconciler.ports import TopicPartition
from tests.memory_log import MemoryLog

LOCAL = -1
"""Stands for the source index of a record that a local writer made after the failover. Never processed."""
AMONG = -2
"""A local writer's record from before the failover: never the job's, so neither skipped nor read again."""
SOURCE_BASE = 500
"""The source's first offset in most cases, so that the two numberings never agree by chance."""
PLACE = TopicPartition("events", 0)
FAR_AHEAD = 10**12
"""The time of a record that its producer dated years ahead (ms); all others are below 10**9."""


@dataclass(frozen=True, slots=True)
class Made:
    """A record as its producer made it. ``event_ms`` is in the payload, ``stamp_ms`` is the Kafka timestamp."""

    event_ms: int
    stamp_ms: int
    id: bytes | None
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the mirror: source indexes that were committed, then some in an aborted transaction."""

    sent: tuple[int, ...]
    aborted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """The history of one partition.

    ``among`` are a local writer's records from before the failover, by how many mirrored ones stand in front; ``local``
    come after it. ``markers`` are control records' times by the same count. The cleaner has been over the first
    ``cleaned`` records; ``compacted`` is what the search is told about that. ``declared``: the disorder told is true.
    ``small_reads``: the search reads a few records at a time, so that a small log takes the ways of a long one.
    ``reads_aborted``: jobs may read uncommitted records, so those of aborted transactions are in the log; else they
    only take offsets. ``base``: the source's first offset; where it is small, a hint points at a record here.
    """

    seed: int
    source: tuple[Made, ...]
    processed: int
    runs: tuple[Run, ...]
    anchor: Anchor
    anchor_index: int
    limits: Limits
    declared: bool
    order: str = "monotone"
    ids: str = "opaque"
    event_time: bool = False
    append_time: bool = False
    append_skew_ms: int = 0
    lag: int = 0
    among: tuple[tuple[int, Made], ...] = ()
    local: tuple[Made, ...] = ()
    markers: tuple[tuple[int, int], ...] = ()
    deleted: int = 0
    cleaned: int = 0
    drops_tombstones: bool = False
    compacted: bool | None = False
    small_reads: bool = False
    reads_aborted: bool = False
    base: int = SOURCE_BASE

    @property
    def sent(self) -> int:
        """The number of mirrored records, copies included."""
        return sum(len(run.sent) for run in self.runs)

    @property
    def identity(self) -> Identity:
        return Identity(
            timestamp_of=payload_time if self.event_time else record_timestamp,
            id_of=None if self.ids == "none" else header_id,
            id_order=IdOrder.INCREASING if self.ids == "increasing" else IdOrder.OPAQUE,
            record_time=not self.event_time,
            unique_ids=self.ids == "unique",
        )

    @property
    def tells_copies(self) -> bool:
        """True if no two records share an id."""
        return self.ids in ("increasing", "unique") and self.anchor.id is not None

    @property
    def question(self) -> Question:
        return Question(
            StoredOffset(self.base + self.processed + 1, self.anchor),
            "destination",
            "destination/events",
            self.identity,
            self.limits,
            anchor_lag=self.lag,
            hints=() if self.anchor.offset is None else (self.anchor.offset,),
            compacted=self.compacted,
        )


@dataclass(frozen=True, slots=True)
class World:
    """The outcome of a case: the destination, and the source index of each offset ever written."""

    log: MemoryLog
    delivered: dict[int, int]
    held: dict[int, int]
    """The part of ``delivered`` that is still there."""
    aborted: frozenset[int] = frozenset()
    """The offsets that only a job that reads uncommitted records sees."""

    @property
    def committed(self) -> World:
        """What a job sees that reads committed records only."""
        return replace(self, held={at: index for at, index in self.held.items() if at not in self.aborted})

    def holds(self, index: int) -> bool:
        return index in self.held.values()

    def holds_first_copy_of(self, index: int) -> bool:
        first = min((offset for offset, found in self.delivered.items() if found == index), default=None)
        return first in self.held


def header_id(record: Record) -> bytes | None:
    return dict(record.headers).get("id")


def payload_time(record: Record) -> int | None:
    return None if record.value is None else int(json.loads(record.value)["ts"])


def time_of(made: Made, event_time: bool) -> int | None:
    """A record's time as the job defines it. A deletion has no payload, and so no time of an event."""
    if event_time:
        return None if made.value is None else made.event_ms
    return made.stamp_ms


def true_disorder(records: list[Made] | tuple[Made, ...], event_time: bool) -> int:
    """The least d such that of any two records the earlier one's time is at most the later one's plus d.

    An event dated after its own Kafka timestamp is disorder too.
    """
    worst, largest = 0, 0
    for made in records:
        time = made.event_ms if event_time else made.stamp_ms
        worst, largest = max(worst, largest - time, made.event_ms - made.stamp_ms), max(largest, time)
    return worst
