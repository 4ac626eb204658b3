"""A job that stores its offsets itself, batch by batch: with anchors, as ``recording`` does it, or as bare numbers.

What runs here of ``recording`` is all but Spark: the range of a batch is given, and the last records of the range are
read from the log (``RangeEnds``), named and stored (``Recorder``) by the product.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from reconciler.core.anchors import StoredOffset
from reconciler.identity import identity_from_spec
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import Change, LogReader, OffsetStore, Row, TopicPartition
from reconciler.spark.recording.batch_range import SourceRange
from reconciler.spark.recording.range_ends import RangeEnds
from reconciler.spark.recording.store import Recorder
from reconciler.spark.target import AnchorTarget, ClusterAccess
from reconciler.stores.paired.store import PairedStore
from reconciler.stores.registry import open_store
from tests.stores.paired.bare import BareStore

GROUP, SERVERS = "g", "here:1"


@dataclass(frozen=True, slots=True)
class Access(ClusterAccess):
    """The cluster that a job reads, in memory."""

    log: MemoryLog = field(default_factory=MemoryLog)

    def reader(self, who: str = "", **_: Any) -> LogReader:
        return self.log


@dataclass(frozen=True)
class Store:
    """Where a job's offsets are. ``bare``: as numbers alone, whose anchors ``track`` keeps in a store of their own."""

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

    @property
    def anchors(self) -> str:
        return f"sqlite:///{self.folder}/anchors.db"

    def numbers(self, _: str = "") -> OffsetStore:
        return BareStore(str(self.folder), dated=self.dated, atomic=self.atomic)

    def open(self, _: str = "") -> OffsetStore:
        """As the product opens it, with its anchors."""
        return PairedStore(self.numbers(), open_store(self.anchors)) if self.bare else open_store(self.address)

    def open_anchors(self) -> OffsetStore:
        return open_store(self.anchors)

    def rows(self) -> dict[TopicPartition, Row]:
        with closing(self.open()) as store:
            return {row.key: row for row in store.read(GROUP)}

    def create(self) -> None:
        """``track`` and ``recording`` do so when they first write; the commands need a store that is there."""
        for store in (self.open_anchors(), self.open()):
            with closing(store):
                store.create()


@dataclass
class Stay:
    """A process of the job that reads ``topic`` of one cluster, and stores what it has processed."""

    store: Store
    log: MemoryLog
    topic: str
    identity: Mapping[str, str]
    now_ms: Callable[[], int]

    def __post_init__(self) -> None:
        target = AnchorTarget(
            group=GROUP,
            cluster=Access({"bootstrap.servers": SERVERS}, log=self.log),
            identity=identity_from_spec(**self.identity),
            store=self.store.address,
            now_ms=self.now_ms,
        )
        self._recorder = Recorder(target)
        self._ends = RangeEnds(target, self._recorder.cluster, topics=None)

    def keep(self, batch_id: int, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """The batch's records are in the sink: store its offsets."""
        if self.store.bare:
            self._keep_numbers(starts, ends)
            return
        self._recorder.open()
        named = [{(self.topic, number): offset for number, offset in each.items()} for each in (starts, ends)]
        found = self._ends.last_records([SourceRange(named[0], named[1], SERVERS, False)])
        self._recorder.batch(batch_id, found.ends, gone=found.gone)

    def _keep_numbers(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        store = self.store.numbers()
        there = {row.key: row.version for row in store.read(GROUP, [self.topic])}
        keys = {TopicPartition(self.topic, number): end for number, end in ends.items() if end > starts[number]}
        new = partial(StoredOffset, anchor=None, written_at_ms=self.now_ms())
        changes = [Change(key, there.get(key), new(end)) for key, end in keys.items()]
        assert not store.write(GROUP, changes, reason="job", now_ms=self.now_ms()).conflicts

    def close(self) -> None:
        self._ends.close()
        self._recorder.close()
