"""A bare store and the store of its anchors, in memory, and the rows that they give together."""

from __future__ import annotations

import uuid

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.ports import Change, Row, TopicPartition
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired.steps import ASIDE
from reconciler.stores.paired.store import PairedStore
from tests.stores.paired.bare import BareStore, Faults, Faulty

GROUP, NOW = "readers", 1_700_000_000_000
KEY, OTHER = TopicPartition("events", 0), TopicPartition("events", 1)


def anchor(offset: int, cluster: str = "a", **more: object) -> Anchor:
    named = {"timestamp_ms": 1_000 + offset, "fingerprint": fingerprint(b"%d" % offset, None)}
    return Anchor(offset, cluster_id=cluster, topic_id=f"{cluster}/events", **{**named, **more})


def made_for(offset: int, cluster: str = "a", record: int | None = None) -> StoredOffset:
    """A stored offset with the anchor that was made for it."""
    return StoredOffset(offset, anchor(offset - 1 if record is None else record, cluster), NOW)


class Pair:
    """Both stores, with helpers for their rows of partition 0."""

    def __init__(self, *, atomic: bool = True, dated: bool = False) -> None:
        name = uuid.uuid4().hex
        self.faults = Faults()
        self.bare = BareStore(f"{name}-bare", atomic=atomic, dated=dated)
        self.anchors = MemoryStore(f"{name}-anchors")
        self.store = self.another()

    def another(self, faults: Faults | None = None) -> PairedStore:
        """The same two stores as another process opens them."""
        faults = faults or self.faults
        return PairedStore(Faulty(self.bare, "bare", faults), Faulty(self.anchors, "anchors", faults))

    def job_stores(self, offset: int | None, key: TopicPartition = KEY) -> None:
        self._put(self.bare, key, None if offset is None else StoredOffset(offset))

    def keep(self, stored: StoredOffset | None, key: TopicPartition = KEY) -> None:
        self._put(self.anchors, key, stored)

    def _put(self, store: MemoryStore, key: TopicPartition, stored: StoredOffset | None) -> None:
        there = {row.key: row.version for row in store.read(GROUP)}
        if stored is None and key not in there:
            return
        assert store.write(GROUP, [Change(key, there.get(key), stored)], reason="test", now_ms=NOW).written

    def row(self, key: TopicPartition = KEY) -> Row | None:
        return next((row for row in self.another(Faults()).read(GROUP) if row.key == key), None)

    def believed(self) -> tuple[int, tuple[int | None, str | None] | None] | None:
        """The stored offset, and the record and cluster of its anchor, as read."""
        row = self.row()
        return None if row is None else named(row.stored)

    def write(self, new: StoredOffset | None, store: PairedStore | None = None, kind: type[Change] = Change) -> bool:
        row = self.row()
        change = kind(KEY, row.version if row else None, new)
        return bool((store or self.store).write(GROUP, [change], reason="test", now_ms=NOW).written)

    @property
    def left_aside(self) -> bool:
        return any(row.key.topic.endswith(ASIDE) for row in self.anchors.read(GROUP))


def named(stored: StoredOffset | None) -> tuple[int, tuple[int | None, str | None] | None] | None:
    if stored is None:
        return None
    return stored.offset, (stored.anchor.offset, stored.anchor.cluster_id) if stored.anchor else None
