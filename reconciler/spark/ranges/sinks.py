"""What a sink for exactly once offers, and the batch that it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from reconciler.ports import Change, ClusterInfo, OffsetStore, Row, TopicPartition
from reconciler.spark.ranges.planning import Log, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch: its ranges, their name (``planning.name_of``), and the rows that it was planned from.

    ``lost``: records that retention had removed unread in front of it (only where the policy goes on).
    """

    ranges: tuple[OffsetRange, ...]
    name: str
    group: str
    cluster: ClusterInfo
    rows: Mapping[TopicPartition, Row]
    lost: tuple[OffsetRange, ...] = ()


class Sink(Protocol):
    """Where results go. Each batch: ``settle``, ``unfinished``, then ``begin``, ``stage``, ``commit``."""

    @property
    def store(self) -> OffsetStore | None:
        """The store that this sink commits offsets in together with results; None: the job's own."""

    def check(self, store: OffsetStore) -> None:
        """Raise ConfigError or Refused if exactly once cannot hold with offsets in this store."""

    def settle(self, spark: SparkSession, group: str, rows: Mapping[TopicPartition, Row]) -> None:
        """Finish or undo what a run that was killed left, going by the rows that are stored."""

    def unfinished(self, group: str, looked: Log) -> tuple[OffsetRange, ...] | None:
        """Ranges of a batch that was begun and must be run again just as it was, if there is one."""

    def begin(self, batch: Batch, changes: Sequence[Change]) -> None:
        """Before anything is written. ``changes`` are the rows that will be saved with the batch."""

    def stage(self, results: DataFrame, batch: Batch) -> None:
        """Write the results where they do not count yet, or so that writing them again changes nothing."""

    def commit(self, batch: Batch, changes: Sequence[Change], save: Callable[[], None]) -> None:
        """Make them count, and save the offsets: by ``save``, or together in the sink's own store."""
