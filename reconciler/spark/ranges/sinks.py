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
    """Writes the results. For each batch: ``unfinished``, then ``begin``, ``stage``, ``commit``.

    By default a sink accepts any store, repeats nothing, and saves the offsets after the results.
    """

    @property
    def store(self) -> OffsetStore | None:
        """The store in which this sink commits offsets together with results; None: the job's own."""
        return None

    def check(self, store: OffsetStore) -> None:
        """Raise ConfigError or Refused if exactly once cannot be kept with offsets in this store."""

    def unfinished(
        self, spark: SparkSession, offsets: GroupOffsets, rows: Mapping[TopicPartition, Row], edges: LogEdges
    ) -> tuple[OffsetRange, ...] | None:
        """The ranges of a batch that was begun and must be run again unchanged, over these very rows.

        None if there is no such batch; empty if it was undone, and the rows must be read again.
        """
        return None

    def begin(self, batch: RangeBatch, changes: Sequence[Change]) -> None:
        """Called before anything is written. ``changes`` are the rows that will be saved with the batch."""

    def abandon(self, batch: RangeBatch, offsets: GroupOffsets) -> None:
        """Undo the batch if it was begun when it still had records; it has none any more."""

    def stage(self, results: DataFrame, batch: RangeBatch) -> None:
        """Write the results where readers do not see them yet, or so that writing them again changes nothing."""
        raise NotImplementedError

    def commit(self, batch: RangeBatch, changes: Sequence[Change], save: Callable[[], None]) -> None:
        """Make the results visible, and save the offsets: by ``save``, or together in the sink's own store."""
        save()
