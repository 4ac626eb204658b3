"""A job that stores its offsets itself, batch by batch: with anchors, as range batches do, or as bare numbers.

The last records of a batch are read from the log, named and stored by the product (``spark.batches``), without Spark.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reconciler.config.identity import identity_from_spec
from reconciler.core.anchors import StoredOffset
from reconciler.places.registry import open_store
from reconciler.ports import Change, OffsetStore, Row, TopicPartition
from reconciler.spark.batches.offsets import GroupOffsets
from reconciler.spark.batches.planning import OffsetRange
from reconciler.spark.batches.reading import last_records
from tests.memory_log import MemoryLog
from tests.places.bare_memory import BareStore

GROUP = "g"


@dataclass(frozen=True)
class Store:
    """Where a job's offsets are. ``bare``: as numbers alone, whose records ``track`` keeps in the journal."""

    folder: Path
    bare: bool = False
    dated: bool = False
    atomic: bool = True

    @classmethod
    def of(cls, folder: Path, draw: random.Random, *, bare: bool) -> Store:
        return cls(folder, bare, draw.random() < 0.5, draw.random() < 0.6)

    @property
    def address(self) -> str:
        return f"memory:{self.folder}" if self.bare else f"sqlite:///{self.folder}/offsets.db"

    def numbers(self, _: str = "") -> OffsetStore:
        return BareStore(str(self.folder), dated=self.dated, atomic=self.atomic)

    def open(self, _: str = "") -> OffsetStore:
        return self.numbers() if self.bare else open_store(self.address)

    def rows(self) -> dict[TopicPartition, Row]:
        with closing(self.open()) as store:
            return {row.key: row for row in store.read(GROUP)}

    def create(self) -> None:
        """The job does so when it first writes; the commands need a store that is there."""
        with closing(self.open()) as store:
            store.create()


@dataclass
class Stay:
    """A process of the job that reads ``topic`` of one cluster, and stores what it has processed."""

    store: Store
    log: MemoryLog
    topic: str
    identity: Mapping[str, str]
    now_ms: Callable[[], int]

    def keep(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """The batch's records are in the sink: store its offsets."""
        if self.store.bare:
            self._keep_numbers(starts, ends)
            return
        with closing(self.store.open()) as store:
            self._keep_rows(store, starts, ends)

    def _keep_rows(self, store: OffsetStore, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """A partition without a record in the batch keeps its row, and so does one whose row has the batch already."""
        identity = identity_from_spec(**self.identity)
        own = GroupOffsets(store, GROUP, identity, now_ms=self.now_ms)
        ranges = [OffsetRange(self.topic, n, starts[n], end) for n, end in ends.items() if end > starts[n]]
        lasts, cluster, rows = last_records(ranges, self.log, timeout_s=30), self.log.describe([self.topic]), own.read()
        ahead = {at: each for at, each in lasts.items() if not self._has(rows.get(at), each.offset + 1)}
        own.save(own.changes(rows, ahead, cluster), "batch")

    def _has(self, row: Row | None, number: int) -> bool:
        is_here = row is not None and row.stored.cluster_id == self.log.cluster_id
        return row is not None and is_here and row.stored.offset >= number

    def _keep_numbers(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        store = self.store.numbers()
        there = {row.key: row.version for row in store.read(GROUP, [self.topic])}
        keys = {TopicPartition(self.topic, number): end for number, end in ends.items() if end > starts[number]}
        new = partial(StoredOffset, anchor=None, written_at_ms=self.now_ms())
        changes = [Change(key, there.get(key), new(end)) for key, end in keys.items()]
        assert not store.write(GROUP, changes, reason="job", now_ms=self.now_ms()).conflicts
