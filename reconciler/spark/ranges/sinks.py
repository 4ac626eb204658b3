"""The interface of a sink for exactly once, and the batch that it receives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.ports import Change, ClusterInfo, OffsetStore, Row, TopicPartition
from reconciler.spark.ranges.planning import LogEdges, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reconciler.spark.ranges.offsets import GroupOffsets


@dataclass(frozen=True, slots=True)
class RangeBatch:
    """One batch: its ranges, their name (``planning.name_of``), and the rows that it was planned from.

    ``lost``: records before it that retention removed unread (only if the policy continues after them).
    """

    ranges: tuple[OffsetRange, ...]
    name: str
    group: str
    cluster: ClusterInfo
    rows: Mapping[TopicPartition, Row]
    lost: tuple[OffsetRange, ...] = ()


class RangeSink:
    """Writes the results. For each batch: ``settle``, ``unfinished``, then ``begin``, ``stage``, ``commit``.

    By default a sink accepts any store, has nothing to settle, and saves the offsets after the results.
    """

    needs_rows = False
    """Whether one of a batch's partitions at least must have a stored row before it is begun: one that says that it is
    unread is written for those that have none."""

    @property
    def store(self) -> OffsetStore | None:
        """The store in which this sink commits offsets together with results; None: the job's own."""
        return None

    def check(self, store: OffsetStore) -> None:
        """Raise ConfigError or Refused if exactly once cannot be kept with offsets in this store."""

    def settle(self, spark: SparkSession, group: str, rows: Mapping[TopicPartition, Row]) -> None:
        """Finish or undo the batches that a killed run left, judged by the stored rows."""

    def has_rewritten(self) -> bool:
        """Whether stored rows were written since it got them, by itself too: they must be read, and settled, again."""
        return False

    def unfinished(self, group: str, log: LogEdges) -> tuple[OffsetRange, ...] | None:
        """Ranges of a batch that was begun and must be run again unchanged, if there is one."""
        return None

    def begin(self, batch: RangeBatch, changes: Sequence[Change]) -> bool:
        """Called before anything is written. ``changes`` are the rows that will be saved with the batch.

        False if the batch cannot be run as it was begun before: it is abandoned, and must be planned again.
        """
        return True

    def abandon(self, batch: RangeBatch) -> None:
        """The batch has no records: if it was begun when it had, the next ``settle`` undoes it."""

    def stage(self, results: DataFrame, batch: RangeBatch) -> None:
        """Write the results where readers do not see them yet, or so that writing them again changes nothing."""
        raise NotImplementedError

    def commit(self, batch: RangeBatch, changes: Sequence[Change], save: Callable[[], None]) -> None:
        """Make the results visible, and save the offsets: by ``save``, or together in the sink's own store."""
        save()


def settled(sink: RangeSink, spark: SparkSession, offsets: GroupOffsets) -> dict[TopicPartition, Row]:
    """The group's rows, after the sink has settled by these very ones what killed runs left."""
    while True:
        rows = offsets.read()
        sink.settle(spark, offsets.group, rows)
        if not sink.has_rewritten():
            return rows
