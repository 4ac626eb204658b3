"""Finds jobs for ``init``: groups with offsets of mirrored topics, and records of those topics. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from reconciler.config.places import has_groups
from reconciler.core.anchors import Record
from reconciler.core.errors import ConfigError
from reconciler.core.probes import Withheld
from reconciler.core.text import counted, some
from reconciler.failover.unlisted import no_rows, topics_of
from reconciler.kafka.mirror.topics import Mirror
from reconciler.ports import Capabilities, LogReader, OffsetStore, ReadRequest, Row, TopicPartition, groups_of

MOST_PARTITIONS = 20
"""Partitions of a topic whose records are looked at."""
MOST_GROUPS = 100
"""Groups whose offsets are asked for, where none is named."""
_TRIES = 5
"""Reads of a partition: markers and gaps make them short."""


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A group with offsets of mirrored topics, by the source's names, and the ids of its anchors.

    ``not_mirrored``: topics of which it has offsets, too, and which are not mirrored here.
    """

    group: str
    topics: tuple[str, ...]
    rows: int
    without_anchor: int
    ids: frozenset[bytes]
    not_mirrored: tuple[str, ...] = ()

    @classmethod
    def of(cls, group: str, rows: Sequence[Row], mirror: Mirror, not_mirrored: Iterable[str]) -> FoundJob:
        anchors = [row.stored.anchor for row in rows]
        return cls(
            group,
            tuple(sorted({mirror.source_of(row.key.topic) for row in rows})),
            len(rows),
            sum(anchor is None for anchor in anchors),
            frozenset(anchor.id for anchor in anchors if anchor is not None and anchor.id is not None),
            tuple(sorted(not_mirrored)),
        )


@dataclass(frozen=True, slots=True)
class FoundStore:
    """A store's address without secrets, what it can do, and the jobs whose offsets it holds.

    ``without_rows``: for each group that was named and has no offset of a mirrored topic, half a sentence on what the
    store holds instead. ``unasked``: how many groups of the cluster it was not asked for.
    """

    address: str
    able: Capabilities
    jobs: tuple[FoundJob, ...]
    without_rows: Mapping[str, str] = field(default_factory=dict)
    unasked: int = 0


def jobs_in(
    open_store: Callable[[], OffsetStore], mirror: Mirror, wanted: Sequence[str], others: Callable[[], Iterable[str]]
) -> FoundStore:
    """The jobs of a store: of the groups ``wanted``, else of all that it lists, else of ``others``.

    Groups without offsets of a mirrored topic are not jobs. Raises the store's errors, and ConfigError if no group is
    wanted of a store that has none.
    """
    with closing(open_store()) as store:
        groups, unasked = list(wanted) or groups_of(store), 0
        if groups is None and not has_groups(store.address):
            raise ConfigError(
                f"{store.address} has no groups, so it does not name its job.", hint="Name the job: --group NAME."
            )
        if groups is None:
            every = list(others())
            groups, unasked = every[:MOST_GROUPS], max(0, len(every) - MOST_GROUPS)
        names = sorted({*mirror.topics, *(mirror.source_of(topic) for topic in mirror.topics)})
        found = []
        for group in groups:
            rows = [row for row in store.read(group, names) if row.malformed is None]
            if rows:
                topics = topics_of(store, group) or set()
                found.append(FoundJob.of(group, rows, mirror, topics.difference(names)))
        with_rows = {job.group for job in found}
        without_rows = {group: no_rows(store, group) for group in wanted if group not in with_rows}
        return FoundStore(store.address, store.capabilities, tuple(found), without_rows, unasked)


def description(job: FoundJob, stored: FoundStore) -> str:
    """The rows that were found for a job, as sentences."""
    if not job.rows:
        return f"No offset of this group was found in {stored.address} yet."
    kept = job.rows - job.without_anchor
    how_many = "none" if not kept else "all" if not job.without_anchor else f"{kept:,}"
    ids = "" if not kept else " that holds an id" if job.ids else " that holds no id, but a fingerprint or a time"
    others = f" {left_out(job)}" if job.not_mirrored else ""
    return f"Found there: {counted(job.rows, 'stored offset')}, {how_many} with an anchor{ids}.{others}"


def left_out(job: FoundJob) -> str:
    """A job that started without a topic that it reads would skip it, and no check of this file could tell."""
    return (
        f"The group has offsets of topics, too, that are not mirrored here: {some(job.not_mirrored, 10)}. If the job "
        "reads them, add them to its topics, and have them mirrored."
    )


def sample(reader: LogReader, topics: Iterable[str], records: int) -> Mapping[TopicPartition, Sequence[Record]]:
    """About ``records`` of the newest records of each topic, from up to ``MOST_PARTITIONS`` of its partitions."""
    found: dict[TopicPartition, Sequence[Record]] = {}
    described = reader.describe(topics).topics
    for name in sorted(described):
        partitions = described[name].places
        starts, ends = reader.log_starts(partitions), reader.log_ends(partitions)
        held = [tp for tp in partitions if ends[tp] > starts[tp]][:MOST_PARTITIONS]
        for tp in held:
            share = -(-records // len(held))
            found[tp] = _newest(reader, tp, max(starts[tp], ends[tp] - share), ends[tp], share)
    return found


def _newest(reader: LogReader, tp: TopicPartition, begin: int, end: int, most: int) -> list[Record]:
    records: list[Record] = []
    at = begin
    for _ in range(_TRIES):
        if at >= end or len(records) >= most:
            break
        (chunk,) = reader.read([ReadRequest(tp, at, most - len(records))])
        if isinstance(chunk, Withheld):
            break
        records += chunk.records
        at = chunk.next_offset
    return records[:most]
