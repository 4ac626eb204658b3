"""Anchors for a streaming query's own checkpoint, kept in an anchor store beside it.

A checkpoint says where a restart goes on, and has no room for anchors. What is kept for a batch is made for exactly
the offsets that Spark planned for it (``offsets/N``, also where transaction markers lie in between), so that the rules
for pairs (``stores.paired_rules``) hold: an anchor is believed if the checkpoint says the very offset it was made for.

A batch has one end, and ``offsets/N`` fixes it before the batch runs: a repeated batch has the same. So an end stands
for its batch's id, and:

- while batch N runs, its anchors lie aside, and those of the last committed batch are the main ones. Whether N was
  committed is decided by whoever reads: the checkpoint then says N's end, or N's start. A batch that failed is never
  believed, and a kill between any two steps leaves a pair that fits;
- once N+1 was planned, N is committed, and what lies aside for it becomes the main anchor;
- a partition that was silent in N keeps its anchor, made anew for N's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from reconciler.clock import clock_ms
from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.errors import ConfigError, Refused
from reconciler.formats.spark_checkpoint import Checkpoint, Position
from reconciler.ports import Change, OffsetStore, TopicPartition
from reconciler.spark.identity_columns import BatchIdentity, LastRecord
from reconciler.spark.recording.store import Describe, SourceCluster, StoreKeeper, another_job
from reconciler.stores import registry
from reconciler.stores.paired.rules import Kept
from reconciler.stores.paired.steps import NOTHING, aside_of, same, version_of
from reconciler.stores.paired.store import read_kept, refuse_unable

ATTEMPTS = 3
"""How often rows are decided on that others change at the same time (a tracker, a command that finishes a write)."""

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch's place in the log, by partition: the next offset to read before it, and after it."""

    number: int
    starts: Offsets
    ends: Offsets

    @classmethod
    def planned(cls, found: Checkpoint) -> Batch:
        """The batch that the checkpoint is in the middle of, or has just done."""
        assert found.last is not None
        starts = lowest(each.start for each in found.positions)
        if not found.repeats_a_batch:
            return cls(found.last.batch, starts, starts)
        return cls(found.last.batch, starts, lowest(_end(each) for each in found.positions))


def _end(position: Position) -> Mapping[tuple[str, int], int] | None:
    return position.end if position.end is not None else position.start


def lowest(each_source: Iterable[Mapping[tuple[str, int], int] | None]) -> Offsets:
    """Of two sources that read the same partition the one that is behind counts, as in the checkpoint's rows."""
    found: dict[TopicPartition, int] = {}
    for offsets in each_source:
        for (topic, partition), offset in (offsets or {}).items():
            at = TopicPartition(topic, partition)
            found[at] = min(offset, found.get(at, offset))
    return found


# ---------------------------------------------------------------- what is kept, worked out


def believed(kept: Kept, offset: int | None) -> StoredOffset | None:
    """What was made for exactly this offset. What lies aside is the later one of two."""
    rows = [row.stored for row in (kept.aside, kept.main) if row is not None and row.stored.offset == offset]
    return rows[0] if rows else None


def anchored(batch: Batch, at: TopicPartition, anchor: Anchor | None, before: StoredOffset | None) -> Anchor | None:
    """The anchor for the end of a batch; None where nothing is known of the last record before it.

    ``anchor`` names the batch's last record; ``before`` is what was made for the batch's start.
    """
    if anchor is None:
        if before is None or before.anchor is None:
            return None
        names_last = before.anchor.names is Names.LAST and not before.anchor.is_bare
        return before.anchor if names_last or batch.ends[at] == before.offset else None
    if anchor.offset is not None and anchor.offset >= batch.ends[at]:
        return None  # of another source, which is ahead with the same partition
    return anchor


def in_flight(
    batch: Batch, kept: Mapping[TopicPartition, Kept], anchors: Mapping[TopicPartition, Anchor], now_ms: int
) -> list[Change]:
    """What changes in the anchor store while a batch runs: the last batch's anchors settle, this one's lie aside."""
    changes: list[Change] = []
    for at, end in batch.ends.items():
        there, start = kept.get(at, NOTHING), batch.starts.get(at)
        before = believed(there, start)
        if before is not None and (there.main is None or not same(there.main.stored, before)):
            changes.append(Change(at, version_of(there.main), before))
        anchor = anchored(batch, at, anchors.get(at), before)
        if anchor is None or (end == start and before is not None and before.anchor == anchor):
            continue
        new = StoredOffset(end, anchor, now_ms)
        if there.aside is None or not same(there.aside.stored, new):
            changes.append(Change(aside_of(at), version_of(there.aside), new))
    return changes


def committed(
    batch: Batch,
    kept: Mapping[TopicPartition, Kept],
    anchors: Mapping[TopicPartition, Anchor],
    now_ms: int,
    *,
    looked_up: Mapping[TopicPartition, StoredOffset] | None = None,
) -> list[Change]:
    """What changes in the anchor store once a batch is done. ``looked_up`` speaks where nothing else does."""
    changes: list[Change] = []
    for at, end in batch.ends.items():
        there = kept.get(at, NOTHING)
        anchor = anchored(batch, at, anchors.get(at), believed(there, batch.starts.get(at)))
        new = StoredOffset(end, anchor, now_ms) if anchor is not None else (looked_up or {}).get(at)
        if new is not None and (there.main is None or not same(there.main.stored, new)):
            changes.append(Change(at, version_of(there.main), new))
    return changes


def unknown(batch: Batch, kept: Mapping[TopicPartition, Kept], anchors: Mapping[TopicPartition, Anchor]) -> Offsets:
    """The ends that neither the batch nor what is kept has an anchor for."""

    def is_known(at: TopicPartition, there: Kept) -> bool:
        before = believed(there, batch.starts.get(at))
        return believed(there, batch.ends[at]) is not None or anchored(batch, at, anchors.get(at), before) is not None

    return {at: end for at, end in batch.ends.items() if not is_known(at, kept.get(at, NOTHING))}


# ---------------------------------------------------------------- the recorder


Decide = Callable[[Batch, Mapping[TopicPartition, Kept], Mapping[TopicPartition, Anchor], int], list[Change]]


class CheckpointRecorder:
    """Keeps the anchors of one query's checkpoint, under the group's name, in an anchor store."""

    def __init__(
        self,
        path: str,
        anchors: str | OffsetStore,
        group: str,
        client: Mapping[str, str],
        *,
        now_ms: Callable[[], int] = clock_ms,
        describe: Describe | None = None,
    ) -> None:
        self._path = path
        self._keeper = StoreKeeper(anchors, client)
        self._group = group
        self._now_ms = now_ms
        self.cluster = SourceCluster(client, describe)
        self._checked = False
        self._lock = Lock()

    def open(self) -> None:
        """Open the anchor store, once. Raises ConfigError if it cannot keep anchors, Refused if not now."""
        with self._lock:
            if not self._checked:
                store = self._keeper.opened()
                refuse_unable(store)
                store.create()
                store.check_writable(self._group)
                self._checked = True

    def batch(self, batch_id: int, ends: Sequence[LastRecord], identity: BatchIdentity) -> None:
        """Lay the anchors of the batch that runs aside, made for the ends that Spark planned for it."""
        found = self._read(batch_id)
        self.keep(Batch.planned(found), self.named(ends, identity), in_flight)

    def named(self, ends: Sequence[LastRecord], identity: BatchIdentity) -> dict[TopicPartition, Anchor]:
        """The anchors of a batch's last records."""
        if not ends:
            return {}
        cluster = self.cluster.having({end.at.topic for end in ends})
        ids = {name: info.topic_id for name, info in cluster.topics.items()}
        return {
            end.at: identity.anchor_of(end, cluster_id=cluster.cluster_id, topic_id=ids[end.at.topic]) for end in ends
        }

    def keep(self, batch: Batch, anchors: Mapping[TopicPartition, Anchor], decide: Decide) -> None:
        """Write what ``decide`` says, by compare-and-set on what it was decided on."""
        if not batch.ends:
            return
        reason, topics = f"batch {batch.number}", sorted({at.topic for at in batch.ends})
        named = {**self._empty(batch), **anchors}

        def act(store: OffsetStore) -> None:
            conflicts: tuple[TopicPartition, ...] = ()
            for _ in range(ATTEMPTS):
                changes = decide(batch, read_kept(store, self._group, topics), named, self._now_ms())
                if not changes:
                    return
                conflicts = store.write(self._group, changes, reason=reason, now_ms=self._now_ms()).conflicts
                if not conflicts:
                    return
            raise another_job(conflicts, self._group, store.address, reason)

        with self._lock:
            self._keeper.insist(act, f"{reason} of group {self._group}")

    def kept(self, topics: Iterable[str]) -> dict[TopicPartition, Kept]:
        """What is kept now."""
        names = sorted(set(topics))
        with self._lock:
            return self._keeper.insist(lambda store: read_kept(store, self._group, names), f"group {self._group}")

    def query_id(self) -> str | None:
        """The id of the query that the checkpoint belongs to; None where there is no checkpoint yet."""
        from reconciler.stores.checkpoint import read_checkpoint

        try:
            return read_checkpoint(self._path).query_id
        except Refused:
            return None

    def close(self) -> None:
        with self._lock:
            self._keeper.close()

    def _empty(self, batch: Batch) -> dict[TopicPartition, Anchor]:
        """Partitions that have never held a record: there is nothing to name but the numbering."""
        at_zero = [at for at, end in batch.ends.items() if end == 0]
        if not at_zero:
            return {}
        cluster = self.cluster.having({at.topic for at in at_zero})
        return {at: Anchor(cluster_id=cluster.cluster_id, topic_id=cluster.topics[at.topic].topic_id) for at in at_zero}

    def _read(self, batch_id: int) -> Checkpoint:
        from reconciler.stores.checkpoint import read_checkpoint

        found = read_checkpoint(self._path)
        if found.last is None or found.last.batch != batch_id:
            at = "no batch" if found.last is None else f"batch {found.last.batch}"
            raise ConfigError(
                f"Batch {batch_id} runs, and the checkpoint {self._path} is at {at}: it is another query's.",
                hint="Give recording() the query's own checkpointLocation, and one recording() to each query.",
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())


def checkpoint_path(store: object) -> str | None:
    """The path in a ``checkpoint:`` address; None for another store."""
    if not isinstance(store, str) or not registry.traits(store).corrected_in_copy:
        return None
    return registry.checkpoint_path(store)


def require_anchors(anchors: str | None, store: str) -> str:
    """Raises ConfigError where a checkpoint has no anchor store beside it."""
    if anchors is None:
        raise ConfigError(
            f"A checkpoint has no room for anchors ({store}).",
            hint="Name the store that keeps them, as under [anchors] in the configuration: "
            'anchors="sqlite:////srv/anchors.db".',
        )
    return anchors
