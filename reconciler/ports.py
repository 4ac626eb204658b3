"""The ports: protocols that a destination's log and an offset store implement, and the values that they exchange."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import ge
from typing import Protocol, runtime_checkable

from reconciler.core.anchors import UNKNOWN_PARTITION as UNKNOWN_PARTITION
from reconciler.core.anchors import Malformed as Malformed
from reconciler.core.anchors import StoredOffset
from reconciler.core.anchors import TopicPartition as TopicPartition
from reconciler.core.probes import Chunk

# ---------------------------------------------------------------- logs


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the cluster describes it: its id (KIP-516; None on old brokers) and its partitions, ascending.

    ``compacted``: whether log compaction may remove records; None where the cluster does not say.
    """

    name: str
    topic_id: str | None
    partitions: tuple[int, ...]
    compacted: bool | None = None

    def __post_init__(self) -> None:
        if any(map(ge, self.partitions, islice(self.partitions, 1, None))):
            raise ValueError(f"the partitions of {self.name} are not ascending")

    @property
    def places(self) -> list[TopicPartition]:
        """Its partitions by their full names."""
        return [TopicPartition(self.name, number) for number in self.partitions]

    def has(self, partition: int) -> bool:
        """True if there is such a partition. ``in partitions`` would look at each: a job asks once for every row."""
        at = bisect_left(self.partitions, partition)
        return at < len(self.partitions) and self.partitions[at] == partition


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """A cluster and the requested topics. A topic that does not exist is absent from ``topics``."""

    cluster_id: str
    topics: Mapping[str, TopicInfo]

    def topic_id(self, topic: str) -> str | None:
        """The topic's id; None if there is no such topic, or the cluster gives it none."""
        return self.topics[topic].topic_id if topic in self.topics else None

    def numbers_as(self, other: ClusterInfo, topic: str) -> bool:
        """True if an offset of the topic means the same record in both: it was not deleted or recreated in between."""
        agree = (topic in self.topics) == (topic in other.topics)
        return agree and (self.cluster_id, self.topic_id(topic)) == (other.cluster_id, other.topic_id(topic))


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Read the first records at or after ``offset``: at least one unless the log ends, ``max_records`` at most.

    ``committed``: without records of aborted and open transactions; the log ends at the first open one.
    ``full_until_ms``: records behind the last one that was not created after this time may be counted instead.
    """

    partition: TopicPartition
    offset: int
    max_records: int
    committed: bool = False
    full_until_ms: int | None = None


class LogReader(Protocol):
    """Reading a cluster's log, batched over partitions.

    Every method answers for exactly the requested partitions, or raises: ``Unreachable`` if brokers cannot be reached
    in time (the call may be repeated), ``Refused`` if they refuse.
    """

    def describe(self, topics: Iterable[str]) -> ClusterInfo: ...

    def log_starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """First offset that can be read, per partition."""

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Offset after the last record any reader may see (the high watermark)."""

    def offsets_for_times(self, asked: Sequence[tuple[TopicPartition, int]]) -> Sequence[int | None]:
        """Per question (partition, epoch ms): first offset in log order with a timestamp at or after it, or None."""

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        """One chunk a request, in the requests' order. A partition may occur at several offsets."""

    def close(self) -> None: ...


class ReadsApart(Protocol):
    """A log whose records another process may read."""

    @property
    def reads_apart(self) -> bool:
        """True if ``read`` may run beside one of the other calls. Two reads, or two other calls, may not."""

    def expect(self, topics: Mapping[str, TopicInfo]) -> None:
        """Prepare the process for reading these topics. Never raises: errors surface in the read."""


def separate_reads(log: LogReader) -> ReadsApart | None:
    """The log, if another process reads its records."""
    return log if getattr(log, "reads_apart", False) is True else None  # type: ignore[return-value]


# ---------------------------------------------------------------- stores


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of a store; commands and the behaviour suite check them before they rely on one."""

    writable: bool = True
    keeps_anchors: bool = True
    atomic_batches: bool = False
    """All changes of one ``write`` happen, or none."""
    translated_by_mirror: bool = False
    """Rows with another cluster's anchor came through MirrorMaker, which has translated their offset."""

    @property
    def needs_tracking(self) -> bool:
        """True if the anchors of its rows are in the job's journal alone, filled by ``track``."""
        return self.translated_by_mirror or not self.keeps_anchors


@dataclass(frozen=True, slots=True)
class Traits:
    """Traits known from a store's address alone (``places.registry.traits``): nothing is loaded or opened."""

    holds_commits: bool = False
    """Its rows are the commits of groups of the destination cluster: they share that cluster's outages and rate limit.

    A consumer starts a partition without a row by its own ``auto.offset.reset``: at the latest, unless it is set. The
    store keeps a client, with threads and connections, for each group it has read.
    """
    corrected_in_copy: bool = False
    """The store is a Structured Streaming checkpoint: a correction is a copy of it, never a write to it."""
    corrected_by_job: bool = False
    """Only its job writes to it: until it does, the plan in the state store has the number that counts."""

    @property
    def corrected_by_apply(self) -> bool:
        """True for the stores that ``apply`` writes to."""
        return not (self.corrected_in_copy or self.corrected_by_job)


@dataclass(frozen=True, slots=True)
class Row:
    """One stored offset and the token that a compare-and-set on it needs (opaque, never shown).

    ``anchor_lag``: offsets between the anchor's record and the stored offset that may hold processed records, if the
    store records it: 0 for a pair that belongs together despite a gap between their offsets. None: derived from
    the two offsets. ``note``: a further remark for the user (for example why there is no anchor), as the end of a
    sentence. ``numbered_by``: the id of the cluster whose number it is, where the store itself says so. ``of_stay``:
    the stay of the driver that wrote it, where the row has room for it.
    """

    key: TopicPartition
    stored: StoredOffset
    version: str
    anchor_lag: int | None = None
    note: str = ""
    numbered_by: str | None = None
    of_stay: int | None = None

    @property
    def malformed(self) -> Malformed | None:
        """Why it cannot be read; None for a sound row."""
        return self.stored if isinstance(self.stored, Malformed) else None


@dataclass(frozen=True, slots=True)
class Change:
    """Put ``new`` at ``key`` if the row's version is still ``expected`` (None: there is no row yet).

    ``found_from`` is the stored offset that a correction was found from, for layouts that carry something over from it.

    ``undated``: ``new`` has no time of writing and gets none, since one would say that the job had processed
    everything up to then. ``stay``: the stay that ``new`` begins, for rows that have room for it.
    """

    key: TopicPartition
    expected: str | None
    new: StoredOffset
    found_from: StoredOffset | None = field(default=None, kw_only=True)
    undated: bool = field(default=False, kw_only=True)
    stay: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a batch: keys written, and keys whose row had changed (those were not written)."""

    written: tuple[TopicPartition, ...] = ()
    conflicts: tuple[TopicPartition, ...] = field(default=())


class OffsetReader(Protocol):
    """The rows of an offset store, to read.

    Raises ``Unreachable`` and ``Refused`` as logs do, and ``NotCreated`` where the store's file or table is not
    there yet.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def address(self) -> str:
        """The store's address as configured, without secrets."""

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows, of the given topics or all; ordered by topic, partition.

        A row that cannot be read is ``Malformed``, and the others are read.
        """

    def close(self) -> None: ...


class OffsetStore(OffsetReader, Protocol):
    """A place where jobs keep offsets, by group, topic and partition.

    Raises ``OutcomeUnknown`` when a write may or may not have happened.
    """

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each change. With ``atomic_batches`` all or none. ``reason`` is kept where there is room."""

    def create(self) -> None:
        """Create the store's file or table if it does not exist. Opening and reading never do."""

    def check_writable(self, group: str) -> None:
        """Raise ``Refused`` if a write would be refused now (a group with live members). Writes nothing."""


@runtime_checkable
class ListsGroups(Protocol):
    """A store that can name the groups it holds rows of."""

    def groups(self) -> list[str]:
        """Their names, sorted."""


@runtime_checkable
class NamesGroups(Protocol):
    """A store that can name the groups of its system, whether or not they have rows of a job's topics."""

    def group_names(self) -> list[str]: ...


def topic_counts(store: OffsetReader, group: str) -> Mapping[str, int]:
    """How many offsets the group has of each topic. Raises as ``read`` does."""
    return Counter(row.key.topic for row in store.read(group))


@runtime_checkable
class HasMembers(Protocol):
    """A store whose groups have live members while their job runs."""

    def members(self, group: str) -> Sequence[str]:
        """The group's live members, like ``CLIENT_ID at HOST``; what the cluster calls its state if it names none."""


def groups_of(store: OffsetReader) -> list[str] | None:
    """The groups that a store holds rows of; None if it cannot name them."""
    return store.groups() if isinstance(store, ListsGroups) else None


def by_key(rows: Iterable[Row]) -> dict[TopicPartition, Row]:
    return {row.key: row for row in rows}
