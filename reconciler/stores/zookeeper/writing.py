"""Changing offsets in ZooKeeper: each with its anchor, in transactions that check every version they rest on.

- W1  A row's offset and anchor change in one transaction, or neither does.
- W2  A transaction names the data versions of all znodes it changes, as they were when the rows' versions were
      compared with the expected ones: whatever changed since undoes it, and all is looked at again.
- W3  A deleted row leaves its anchor's znode behind, empty, so that its version goes on. Two of these programs can
      then not take a row that was deleted and made again for the old one.
- W4  An offset that stays the same number is not written, only checked: the job's own znode keeps its time.
- W5  In a znode shared by partitions, a partition that has no anchor and is not changed gets a note of its time, as the
      znode's own time is going to be that of this change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.core.errors import OutcomeUnknown, Refused, Unreachable
from reconciler.ports import Change, Row, TopicPartition, WriteResult
from reconciler.stores import common
from reconciler.stores.zookeeper import anchor_node
from reconciler.stores.zookeeper.anchor_node import Pair, Znode
from reconciler.stores.zookeeper.client import Check, Create, Delete, Ensemble, Operation, Set
from reconciler.stores.zookeeper.layouts import Layout, damaged, edit_of
from reconciler.stores.zookeeper.paths import ancestors
from reconciler.stores.zookeeper.single_text import Entry

TRANSACTION_BYTES = 400_000
"""A server takes requests of 1 MB (``jute.maxbuffer``). A row is about 0.6 kB."""
RACES = 20
"""How often a batch may find that something changed between the look and the transaction."""
_OVERHEAD = 200


@dataclass(frozen=True, slots=True)
class Found:
    """One row's offset as it is written, in its znode, with the znode beside it."""

    entry: Entry
    node: Znode
    beside: Znode | None

    def row(self, key: TopicPartition, *, shared: bool) -> Row:
        pair = self.pair(shared=shared)
        version = self.version(shared=shared)
        return Row(key, pair.stored, version, anchor_lag=pair.lag, note=pair.note, text=self.entry.text)

    def pair(self, *, shared: bool) -> Pair:
        return anchor_node.pair(self.entry.offset, self.node, self.beside, shared=shared)

    def version(self, *, shared: bool) -> str:
        """Of a shared znode, what is this partition's own: the others change by themselves."""
        beside = 0 if self.beside is None else self.beside.mzxid
        own = f"{self.node.czxid:x}.{self.entry.text}" if shared else f"{self.node.mzxid:x}.{self.entry.partition}"
        return f"{own}.{beside:x}"


@dataclass(frozen=True, slots=True)
class Seen:
    """The znodes of some rows at one moment, by path; ``rows`` are those that have an offset."""

    rows: Mapping[TopicPartition, Found]
    nodes: Mapping[str, Znode | None]


def look(ensemble: Ensemble, layout: Layout, keys: Iterable[TopicPartition]) -> Seen:
    """The rows as they are now, and in shared znodes all others beside them."""
    keys = list(keys)
    paths = {layout.offset(key.topic, key.partition): key for key in keys}
    # Anchors first: a pair that is changed in between then looks like an older anchor, never like a newer one.
    beside = {} if layout.shared else ensemble.get([layout.anchor(key.topic, key.partition) for key in keys])
    nodes = ensemble.get(paths)
    entries: dict[TopicPartition, tuple[Entry, Znode]] = {}
    for path, key in paths.items():
        node = nodes[path]
        if node is not None:
            found = parsed(ensemble, layout, path, node, None if layout.shared else key.partition)
            entries |= {TopicPartition(key.topic, number): (entry, node) for number, entry in found.items()}
    if layout.shared:
        beside = ensemble.get([layout.anchor(key.topic, key.partition) for key in {*keys, *entries}])
    rows = {
        key: Found(entry, node, beside[layout.anchor(key.topic, key.partition)])
        for key, (entry, node) in entries.items()
    }
    return Seen(rows, {**nodes, **beside})


def parsed(ensemble: Ensemble, layout: Layout, path: str, node: Znode, partition: int | None) -> dict[int, Entry]:
    """The offsets in a znode. Raises Refused where it holds something else."""
    try:
        return layout.entries(node.data, partition)
    except ValueError as err:
        raise damaged(ensemble, path, err) from err


def write(ensemble: Ensemble, layout: Layout, changes: Sequence[Change], now_ms: int) -> WriteResult:
    """Compare-and-set each change. Raises OutcomeUnknown where only a part was written before something failed."""
    written: list[TopicPartition] = []
    conflicts: list[TopicPartition] = []
    for batch in _batches(layout, changes, now_ms):
        try:
            lost = _write_batch(ensemble, layout, batch, now_ms)
        except (Unreachable, OutcomeUnknown) as err:
            if not written:
                raise
            raise OutcomeUnknown(
                f"{len(written)} of {len(changes)} rows were written, then: {err.message}", hint="Run this again."
            ) from err
        conflicts += lost
        written += [change.key for change in batch if change.key not in set(lost)]
    return WriteResult(tuple(written), tuple(conflicts))


def _write_batch(ensemble: Ensemble, layout: Layout, batch: Sequence[Change], now_ms: int) -> list[TopicPartition]:
    """Write those changes whose rows are as expected, all together. The keys of the others."""
    for _ in range(RACES):
        seen = look(ensemble, layout, [change.key for change in batch])
        versions = {key: found.version(shared=layout.shared) for key, found in seen.rows.items()}
        lost = common.conflicts(batch, versions)
        good = [change for change in batch if change.key not in set(lost)]
        operations = _Transaction(layout, seen, now_ms).operations(good)
        if not operations or ensemble.commit([*_folders(ensemble, layout, operations), *operations]):
            return list(lost)
    raise Unreachable(
        f"The offsets at {ensemble.name} change faster than they can be written; nothing was written.",
        hint="Stop the job that writes them, then run this again.",
    )


def _folders(ensemble: Ensemble, layout: Layout, operations: Sequence[Operation]) -> list[Operation]:
    """What to make first, so that the znodes to make have a place."""
    above: dict[str, None] = {}
    for operation in operations:
        if isinstance(operation, Create):
            above |= dict.fromkeys(ancestors(operation.path))
    there = ensemble.existing([*above, layout.base])
    if layout.base not in there:
        raise missing(ensemble, layout)
    return [Create(path) for path in sorted(above, key=lambda path: path.count("/")) if path not in there]


def missing(ensemble: Ensemble, layout: Layout) -> Refused:
    """There is no store at the address."""
    return Refused(
        f"There is no znode {layout.base} at {ensemble.name}.",
        hint="Correct the store's address: hosts, and the path behind them. To make a new store there, run: reconciler"
        " anchors import.",
    )


@dataclass(slots=True)
class _Transaction:
    """The operations for some changes, resting on what was seen."""

    layout: Layout
    seen: Seen
    now_ms: int
    _done: list[Operation] = field(default_factory=list)

    def operations(self, changes: Sequence[Change]) -> list[Operation]:
        by_path: dict[str, list[Change]] = {}
        for change in changes:
            by_path.setdefault(self.layout.offset(change.key.topic, change.key.partition), []).append(change)
        for path, here in by_path.items():
            if any(change.new is not None or change.key in self.seen.rows for change in here):
                untouched = self._offsets(path, here)
                self._anchors(here, untouched)
        return self._done

    def _offsets(self, path: str, changes: Sequence[Change]) -> Znode | None:
        """One znode with offsets. Returns it if it stays as it is."""
        node = self.seen.nodes[path]
        partition = None if self.layout.shared else changes[0].key.partition
        edits = {change.key.partition: edit_of(self.layout, change) for change in changes}
        data = self.layout.edited(None if node is None else node.data, partition, edits)
        if node is not None and data == node.data:
            self._done.append(Check(path, node.version))
            return node
        if node is None:
            if data is not None:
                self._done.append(Create(path, data))
        elif data is None:
            self._done.append(Delete(path, node.version))
        else:
            self._done.append(Set(path, data, node.version))
            self._keep_times(changes[0].key.topic, edits)
        return None

    def _anchors(self, changes: Sequence[Change], untouched: Znode | None) -> None:
        for change in changes:
            stored = common.stamped(change, self.now_ms)
            if stored is not None:
                seen_zxid = untouched.mzxid if untouched and not self.layout.shared else None
                self._beside(change.key, anchor_node.encode(stored, seen_zxid=seen_zxid))
            elif change.key in self.seen.rows and self.seen.rows[change.key].beside is not None:
                self._beside(change.key, b"")

    def _keep_times(self, topic: str, edits: Mapping[int, object]) -> None:
        if not self.layout.shared:
            return
        for key, found in self.seen.rows.items():
            stored = found.pair(shared=True).stored
            own_time = stored.anchor is None and stored.written_at_ms == found.node.mtime_ms
            if key.topic == topic and key.partition not in edits and own_time:
                self._beside(key, anchor_node.encode(stored))

    def _beside(self, key: TopicPartition, data: bytes) -> None:
        path = self.layout.anchor(key.topic, key.partition)
        there = self.seen.nodes[path]
        self._done.append(Create(path, data) if there is None else Set(path, data, there.version))


def _batches(layout: Layout, changes: Sequence[Change], now_ms: int) -> Iterator[list[Change]]:
    batch: list[Change] = []
    size = 0
    for change in changes:
        stored = common.stamped(change, now_ms)
        paths = (layout.offset(change.key.topic, 0), layout.anchor(change.key.topic, 0))
        one = _OVERHEAD + sum(len(path.encode()) for path in paths)
        one += 0 if stored is None else len(anchor_node.encode(stored))
        if batch and size + one > TRANSACTION_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(change)
        size += one
    if batch:
        yield batch
