"""Anchors for a streaming query's own checkpoint, kept in an anchor store beside it.

A checkpoint says where a restart continues, and has no room for anchors. A batch's anchors are made for exactly the
offsets that Spark planned for it (``offsets/N``, also where transaction markers lie in between), so the rules for pairs
hold (``stores.paired.rules``): an anchor is believed if the checkpoint has the very offset it was made for.

A batch has one end, and ``offsets/N`` fixes it before the batch runs: a repeated batch has the same end. So an end
stands for its batch's id, and:

- while batch N runs, its anchors lie aside, and those of the last committed batch are the main ones. The reader decides
  whether N was committed: the checkpoint then has N's end, or N's start. A failed batch is never believed, and a kill
  between any two steps leaves a pair that fits;
- once N+1 was planned, N is committed, and the anchors laid aside for it become the main ones;
- a partition that was silent in N keeps its anchor, rewritten for N's end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from reconciler.checkpoints import log
from reconciler.checkpoints.log import by_partition
from reconciler.checkpoints.restart import Checkpoint
from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.ports import Change, OffsetStore, Row, TopicPartition
from reconciler.spark.last_records import LastRecord
from reconciler.spark.recording.store import Describe, GroupRecorder, Recorder, StoreKeeper
from reconciler.spark.target import AnchorTarget
from reconciler.stores import registry
from reconciler.stores.paired import NOTHING, AnchorRows, aside_of, read_kept, refuse_unable, same, version_of

Offsets = Mapping[TopicPartition, int]


def recorder_for(target: AnchorTarget) -> Recorder | CheckpointRecorder:
    """The recorder for the target's store. Raises ConfigError for a checkpoint without an anchor store."""
    if not isinstance(target.store, str) or not registry.traits(target.store).corrected_in_copy:
        return Recorder(target)
    if target.anchors is None:
        raise ConfigError(
            f"A checkpoint has no room for anchors ({target.store}).",
            hint="Name the store that keeps them, as under [anchors] in the configuration: "
            'anchors="sqlite:////srv/anchors.db".',
        )
    return CheckpointRecorder(target)


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """A batch's place in the log, by partition: the next offset to read before it, and after it."""

    number: int
    starts: Offsets
    ends: Offsets

    @classmethod
    def planned(cls, found: Checkpoint) -> BatchBounds:
        """The batch that the checkpoint is in the middle of, or has just finished."""
        assert found.last is not None
        starts = lowest(each.start for each in found.positions)
        if not found.repeats_a_batch:
            return cls(found.last.batch, starts, starts)
        ends = lowest(each.start if each.end is None else each.end for each in found.positions)
        return cls(found.last.batch, starts, ends)

    def without(self, places: Collection[TopicPartition]) -> BatchBounds:
        """This without some partitions, of which nothing is to be kept for this batch."""
        kept = {at: end for at, end in self.ends.items() if at not in places}
        return replace(self, ends=kept)


def lowest(each_source: Iterable[log.Offsets | None]) -> Offsets:
    """Where two sources read the same partition the lower offset counts, as in the checkpoint's rows."""
    return {at: min(offsets) for at, offsets in by_partition(each_source).items()}


# ---------------------------------------------------------------- deciding


def row_made_for(kept: AnchorRows, offset: int | None) -> StoredOffset | None:
    """The row made for exactly this offset. Of two, the one laid aside is the later."""
    rows = [row.stored for row in (kept.aside, kept.main) if row is not None and row.stored.offset == offset]
    return rows[0] if rows else None


def anchor_of_end(
    batch: BatchBounds, at: TopicPartition, anchor: Anchor | None, before: StoredOffset | None
) -> Anchor | None:
    """The anchor for the end of a batch; None if the last record before it is not known.

    ``anchor`` names the batch's last record; ``before`` is the row made for the batch's start.
    """
    if anchor is None:
        if before is None or before.anchor is None:
            return None
        names_last = before.anchor.names is Names.LAST and not before.anchor.is_bare
        return before.anchor if names_last or batch.ends[at] == before.offset else None
    if anchor.offset is not None and anchor.offset >= batch.ends[at]:
        return None  # from another source, which is ahead in the same partition
    return anchor


def changes_of_running(
    batch: BatchBounds,
    kept: Mapping[TopicPartition, AnchorRows],
    anchors: Mapping[TopicPartition, Anchor],
    now_ms: int,
    *,
    gone: Collection[TopicPartition] = (),
) -> list[Change]:
    """The anchor store's changes while a batch runs: the last batch's anchors settle, this one's are laid aside.

    ``gone`` are partitions of whose last records in this batch nothing is known.
    """
    changes: list[Change] = []
    for at in batch.ends:
        settled = row_made_for(kept.get(at, NOTHING), batch.starts.get(at))
        if settled is not None:
            changes += _keeping(at, kept.get(at, NOTHING).main, settled)
    for at, end in batch.without(gone).ends.items():
        there, start = kept.get(at, NOTHING), batch.starts.get(at)
        before = row_made_for(there, start)
        anchor = anchor_of_end(batch, at, anchors.get(at), before)
        if anchor is None or (end == start and before is not None and before.anchor == anchor):
            continue
        changes += _keeping(aside_of(at), there.aside, StoredOffset(end, anchor, now_ms))
    return changes


def _keeping(at: TopicPartition, there: Row | None, new: StoredOffset) -> list[Change]:
    """The change that puts ``new`` in the place of a kept row; none where that says the same."""
    return [] if there is not None and same(there.stored, new) else [Change(at, version_of(there), new)]


# ---------------------------------------------------------------- the recorder


Decide = Callable[
    [BatchBounds, Mapping[TopicPartition, AnchorRows], Mapping[TopicPartition, Anchor], int], list[Change]
]


class CheckpointRecorder(GroupRecorder):
    """Keeps the anchors of one query's checkpoint, under the group's name, in an anchor store.

    Others may change its rows too (a tracker, a command that finishes a write).
    """

    attempts = 3

    def __init__(self, target: AnchorTarget, *, describe: Describe | None = None) -> None:
        super().__init__(target, StoreKeeper(target.anchors, target.cluster.client), describe)
        self._path = registry.checkpoint_path(str(target.store))

    def _prepare(self, store: OffsetStore) -> None:
        refuse_unable(store)
        store.create()
        super()._prepare(store)

    def batch(self, batch_id: int, ends: Sequence[LastRecord], *, gone: Collection[TopicPartition] = ()) -> None:
        """Lay the running batch's anchors aside, made for the ends that Spark planned for it.

        None where its last records are ``gone``, so that the anchors there lag.
        """
        decide = partial(changes_of_running, gone=gone)
        self.keep(BatchBounds.planned(self._read(batch_id)), self.named(ends), decide)

    def keep(self, batch: BatchBounds, anchors: Mapping[TopicPartition, Anchor], decide: Decide) -> None:
        """Write the changes that ``decide`` returns, by compare-and-set on the rows it was given."""
        if not batch.ends:
            return
        topics, named = sorted({at.topic for at in batch.ends}), {**self._empty(batch), **anchors}
        group, now_ms = self.target.group, self.target.now_ms
        with self._lock:
            self._compare_and_set(
                lambda store, *, is_first: decide(batch, read_kept(store, group, topics), named, now_ms()),
                f"batch {batch.number}",
            )

    def kept(self, topics: Iterable[str]) -> dict[TopicPartition, AnchorRows]:
        """The rows that the anchor store holds now."""
        group, names = self.target.group, sorted(set(topics))
        with self._lock:
            return self._keeper.insist(lambda store: read_kept(store, group, names), f"group {group}")

    def _empty(self, batch: BatchBounds) -> dict[TopicPartition, Anchor]:
        """Anchors for partitions that never held a record: they name no record, only whose numbering it is.

        Of a source on another cluster nothing is known here.
        """
        at_zero = [at for at, end in batch.ends.items() if end == 0]
        elsewhere = self.cluster.lacks({at.topic for at in at_zero})
        at_zero = [at for at in at_zero if at.topic not in elsewhere]
        if not at_zero:
            return {}
        cluster = self.cluster.having({at.topic for at in at_zero})
        return {at: Anchor(cluster_id=cluster.cluster_id, topic_id=cluster.topic_id(at.topic)) for at in at_zero}

    def _read(self, batch_id: int) -> Checkpoint:
        from reconciler.checkpoints.reading import read_checkpoint

        found = read_checkpoint(self._path)
        if found.last is None or found.last.batch != batch_id:
            at = "no batch" if found.last is None else f"batch {found.last.batch}"
            raise ConfigError(
                f"Batch {batch_id} runs, and the checkpoint {self._path} is at {at}: it belongs to another query.",
                hint="Give recording() the query's own checkpointLocation, and use one recording() per query.",
            )
        return found
