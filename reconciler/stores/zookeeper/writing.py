"""Changing offsets in ZooKeeper: each with its anchor, in transactions that check every version they depend on.

- W1  A row's offset and anchor change in one transaction, or neither does.
- W2  A transaction names the data versions of all znodes it changes, as they were when the rows' versions were
      compared with the expected ones. A later change makes it fail, and everything is read again.
- W3  A deleted row leaves its anchor's znode behind, empty, so that its version continues. Two of these programs can
      then not mistake a row that was deleted and recreated for the old one.
- W4  An offset that stays the same number is not written, only checked: the job's own znode keeps its time.
- W5  In a znode shared by partitions, an unchanged partition without an anchor gets a note of its time, because the
      znode's own time becomes that of this change. A write of several transactions does that with its first one: while
      the znode is as that one left it, the later ones read their own rows alone. Notes that do not fit beside a change
      are written before it, in transactions of their own. They say what the rows say anyway until the change comes, so
      a writer may die after any of them.
- W6  A note of this write itself does not change the row: the later transactions take the row's version from before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias, TypeVar

from reconciler.core.errors import NotCreated, OutcomeUnknown, Refused, Unreachable
from reconciler.formats.decimal_text import NotDecimal
from reconciler.ports import Change, Row, TopicPartition, WriteResult
from reconciler.stores import common
from reconciler.stores.zookeeper import anchor_node
from reconciler.stores.zookeeper.anchor_node import PairedOffset, Znode
from reconciler.stores.zookeeper.client import Check, Create, Delete, Ensemble, Operation, Set, ancestors
from reconciler.stores.zookeeper.layouts import Layout, damaged, edit_of
from reconciler.stores.zookeeper.single_text import NotAListing, PartitionText

T = TypeVar("T")

TRANSACTION_BYTES = 400_000
"""Bytes of changes in one transaction. A server takes requests of 1 MB (``jute.maxbuffer``). A row is about 0.6 kB."""
REQUEST_BYTES = 800_000
"""The bytes of changes, of the whole text of the shared znode, and of the notes of its other rows."""
ATTEMPTS = 20
"""Tries to write a batch while other programs change it between reading and transaction."""
_OVERHEAD_BYTES = 200


@dataclass(frozen=True)
class StoredRow:
    """One row's offset as it is written, in its znode, with the znode beside it. ``shared`` as in its layout."""

    entry: PartitionText
    node: Znode
    beside: Znode | None
    shared: bool

    def row(self, key: TopicPartition) -> Row:
        pair = self.pair
        return Row(key, pair.stored, self.version, pair.lag, pair.note, self.entry.text, anchored_ms=pair.anchored_ms)

    @cached_property
    def pair(self) -> PairedOffset:
        return anchor_node.pair(self.entry.offset, self.node, self.beside, shared=self.shared)

    @property
    def version(self) -> str:
        """The row's version. In a shared znode it covers this partition alone: the others change independently."""
        return self.version_beside(self.beside_zxid)

    @property
    def beside_zxid(self) -> int:
        return 0 if self.beside is None else self.beside.mzxid

    def version_beside(self, zxid: int) -> str:
        """The row's version if the znode beside it had been changed last by that zxid."""
        own = f"{self.node.czxid:x}.{self.entry.text}" if self.shared else f"{self.node.mzxid:x}.{self.entry.partition}"
        return f"{own}.{zxid:x}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The znodes of some rows at one moment, by path; ``rows`` are those that have an offset."""

    rows: Mapping[TopicPartition, StoredRow]
    nodes: Mapping[str, Znode | None]
    faults: Mapping[TopicPartition, Refused] = field(default_factory=dict)


State: TypeAlias = tuple[int, int]
"""When a znode was created (zxid), and its data version: it differs after any change of the znode's data."""


@dataclass(slots=True)
class Noted:
    """The notes of times (W5) that one write has made."""

    znodes: dict[str, State] = field(default_factory=dict)
    """The shared znodes, by path, whose other rows all have their notes, as this write left them."""
    _notes: dict[TopicPartition, tuple[bytes, int]] = field(default_factory=dict)
    """Each row's note, and the zxid beside the row before it."""

    def add(self, before: Snapshot, notes: Mapping[TopicPartition, Operation]) -> None:
        for key, note in notes.items():
            assert isinstance(note, Create | Set)
            self._notes[key] = (note.data, self._zxid_beside(key, before.rows[key]))

    def version(self, key: TopicPartition, row: StoredRow) -> str:
        """The row's version: W6."""
        return row.version_beside(self._zxid_beside(key, row))

    def _zxid_beside(self, key: TopicPartition, row: StoredRow) -> int:
        data, zxid = self._notes.get(key, (None, 0))
        return zxid if row.beside is not None and row.beside.data == data else row.beside_zxid


def snapshot(
    ensemble: Ensemble,
    layout: Layout,
    keys: Iterable[TopicPartition],
    *,
    to_write: bool = True,
    noted: Mapping[str, State] | None = None,
) -> Snapshot:
    """The rows as they are now, and with them all other rows in the same shared znodes.

    Raises Refused where a znode should hold an offset and holds something else; without ``to_write``, such rows are
    ``faults``. ``noted`` are shared znodes, by path, whose other rows are left out while they are in this state.
    """
    keys = list(keys)
    wanted = set(keys)
    paths = {layout.offset(key.topic, key.partition): key for key in keys}
    # Anchors first: a pair that changes in between then looks like an older anchor, never like a newer one.
    beside = {} if layout.shared else ensemble.get([layout.anchor(key.topic, key.partition) for key in keys])
    nodes = ensemble.get(paths)
    entries: dict[TopicPartition, tuple[PartitionText, Znode]] = {}
    faults: dict[TopicPartition, Refused] = {}
    for path, key in paths.items():
        node = nodes[path]
        if node is None:
            continue
        try:
            found = layout.entries(node.data, None if layout.shared else key.partition)
        except (NotDecimal, NotAListing) as err:
            error = damaged(ensemble, path, err)
            if to_write:
                raise error from err
            found, bad = layout.salvaged(node.data, None if layout.shared else key.partition)
            faults |= {TopicPartition(key.topic, number): error for number in bad}
        if noted and noted.get(path) == (node.czxid, node.version):
            found = {number: entry for number, entry in found.items() if TopicPartition(key.topic, number) in wanted}
        entries |= {TopicPartition(key.topic, number): (entry, node) for number, entry in found.items()}
    if layout.shared:
        beside = ensemble.get([layout.anchor(key.topic, key.partition) for key in {*keys, *entries}])
    rows = {
        key: StoredRow(entry, node, beside[layout.anchor(key.topic, key.partition)], layout.shared)
        for key, (entry, node) in entries.items()
    }
    return Snapshot(rows, {**nodes, **beside}, faults)


def write(ensemble: Ensemble, layout: Layout, changes: Sequence[Change], now_ms: int) -> WriteResult:
    """Compare-and-set each change. Raises OutcomeUnknown where only a part was written before an error."""
    written: list[TopicPartition] = []
    conflicts: list[TopicPartition] = []
    noted = Noted()
    for batch in _batches(layout, changes, now_ms):
        try:
            lost = _write_batch(ensemble, layout, batch, now_ms, noted)
        except (Unreachable, OutcomeUnknown) as err:
            if not written:
                raise
            raise OutcomeUnknown(
                f"{len(written)} of {len(changes)} rows were written, then: {err.message}", hint="Run this again."
            ) from err
        conflicts += lost
        written += [change.key for change in batch if change.key not in lost]
    return WriteResult(tuple(written), tuple(conflicts))


def _write_batch(
    ensemble: Ensemble, layout: Layout, batch: Sequence[Change], now_ms: int, noted: Noted
) -> list[TopicPartition]:
    """Write those changes whose rows are as expected, all together. The keys of the others."""
    for _ in range(ATTEMPTS):
        before = snapshot(ensemble, layout, [change.key for change in batch], noted=noted.znodes)
        versions = {key: noted.version(key, row) for key, row in before.rows.items()}
        lost = list(common.conflicts(batch, versions))
        good = [change for change in batch if change.key not in lost]
        operations, notes = _Transaction(layout, before, now_ms).operations(good)
        if notes and sum(map(_size, [*operations, *notes.values()])) > REQUEST_BYTES:
            _write_notes(ensemble, layout, before, notes, noted)
            continue  # the rows are read again, now with their notes
        operations += notes.values()
        if not operations or _commit(ensemble, layout, operations):
            noted.add(before, notes)
            if layout.shared:
                offsets = {layout.offset(change.key.topic, change.key.partition) for change in good}
                noted.znodes |= {path: state for path, state in _after(operations, before).items() if path in offsets}
            return lost
    raise Unreachable(
        f"The offsets at {ensemble.name} change faster than they can be written; nothing was written.",
        hint="Stop the job that writes them, then run this again.",
    )


def _write_notes(
    ensemble: Ensemble, layout: Layout, before: Snapshot, notes: Mapping[TopicPartition, Operation], noted: Noted
) -> None:
    """Write notes of times alone, as far as the znodes with the offsets are as they were."""
    for part in _portions(notes, lambda key: _size(notes[key])):
        offsets = {layout.offset(key.topic, key.partition) for key in part}
        checks = [Check(path, node.version) for path in sorted(offsets) if (node := before.nodes[path]) is not None]
        writes = {key: notes[key] for key in part}
        if not _commit(ensemble, layout, [*checks, *writes.values()]):
            return
        noted.add(before, writes)


def _commit(ensemble: Ensemble, layout: Layout, operations: Sequence[Operation]) -> bool:
    return ensemble.commit([*_folders(ensemble, layout, operations), *operations])


def _size(operation: Operation) -> int:
    """The bytes of an operation in a request, with room for the access list of a new znode."""
    return _OVERHEAD_BYTES + len(operation.path.encode()) + len(getattr(operation, "data", b""))


def _after(operations: Iterable[Operation], before: Snapshot) -> dict[str, State]:
    """The znodes that a transaction has set, as they are after it."""
    found = {}
    for operation in operations:
        node = before.nodes.get(operation.path)
        if isinstance(operation, Set) and node is not None:
            found[operation.path] = (node.czxid, operation.version + 1)
    return found


def _folders(ensemble: Ensemble, layout: Layout, operations: Sequence[Operation]) -> list[Operation]:
    """The operations that create the missing znodes above those to create."""
    above = {path for operation in operations if isinstance(operation, Create) for path in ancestors(operation.path)}
    existing = ensemble.existing([*above, layout.base])
    if layout.base not in existing:
        raise missing(ensemble, layout)
    return [Create(path) for path in sorted(above - existing, key=lambda path: (path.count("/"), path))]


def missing(ensemble: Ensemble, layout: Layout) -> Refused:
    """The error for an address without a store."""
    return NotCreated(
        f"There is no znode {layout.base} at {ensemble.name}.",
        hint="Correct the hosts of the store's address, and the path after them. To create a new store there, run:"
        " reconciler anchors import.",
    )


@dataclass(slots=True)
class _Transaction:
    """The operations for some changes, with the versions in ``before``."""

    layout: Layout
    before: Snapshot
    now_ms: int
    _operations: list[Operation] = field(default_factory=list)
    _notes: dict[TopicPartition, Operation] = field(default_factory=dict)

    def operations(self, changes: Sequence[Change]) -> tuple[list[Operation], dict[TopicPartition, Operation]]:
        """Those of the changes, and those that note the times of other rows, by row."""
        by_path: dict[str, list[Change]] = {}
        for change in changes:
            by_path.setdefault(self.layout.offset(change.key.topic, change.key.partition), []).append(change)
        for path, here in by_path.items():
            if any(change.new is not None or change.key in self.before.rows for change in here):
                untouched = self._write_offsets(path, here)
                self._write_anchors(here, untouched)
        return self._operations, self._notes

    def _write_offsets(self, path: str, changes: Sequence[Change]) -> Znode | None:
        """Write one znode with offsets. Returns it if it stays as it is."""
        node = self.before.nodes[path]
        partition = None if self.layout.shared else changes[0].key.partition
        edits = {change.key.partition: edit_of(self.layout, change) for change in changes}
        data = self.layout.edited(None if node is None else node.data, partition, edits)
        if node is not None and data == node.data:
            self._operations.append(Check(path, node.version))
            return node
        if node is None:
            if data is not None:
                self._operations.append(Create(path, data))
        elif data is None:
            self._operations.append(Delete(path, node.version))
        else:
            self._operations.append(Set(path, data, node.version))
            self._keep_times(changes[0].key.topic, edits)
        return None

    def _write_anchors(self, changes: Sequence[Change], untouched: Znode | None) -> None:
        for change in changes:
            stored = common.stamped(change, self.now_ms)
            if stored is not None:
                seen_zxid = untouched.mzxid if untouched and not self.layout.shared else None
                self._write_anchor(change.key, anchor_node.encode(stored, seen_zxid=seen_zxid))
            elif change.key in self.before.rows and self.before.rows[change.key].beside is not None:
                self._write_anchor(change.key, b"")

    def _keep_times(self, topic: str, edits: Mapping[int, object]) -> None:
        """W5."""
        if not self.layout.shared:
            return
        for key, row in self.before.rows.items():
            stored = row.pair.stored
            own_time = stored.anchor is None and stored.written_at_ms == row.node.mtime_ms
            if key.topic == topic and key.partition not in edits and own_time:
                note = anchor_node.encode(stored)
                if row.beside is None or row.beside.data != note:
                    self._notes[key] = self._anchor(key, note)

    def _write_anchor(self, key: TopicPartition, data: bytes) -> None:
        self._operations.append(self._anchor(key, data))

    def _anchor(self, key: TopicPartition, data: bytes) -> Operation:
        path = self.layout.anchor(key.topic, key.partition)
        node = self.before.nodes[path]
        return Create(path, data) if node is None else Set(path, data, node.version)


def _batches(layout: Layout, changes: Sequence[Change], now_ms: int) -> Iterator[list[Change]]:
    """The changes in transactions of at most ``TRANSACTION_BYTES``."""

    def size(change: Change) -> int:
        stored = common.stamped(change, now_ms)
        paths = (layout.offset(change.key.topic, 0), layout.anchor(change.key.topic, 0))
        one = _OVERHEAD_BYTES + sum(len(path.encode()) for path in paths)
        return one + (0 if stored is None else len(anchor_node.encode(stored)))

    return _portions(changes, size)


def _portions(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in lists of at most ``TRANSACTION_BYTES``, or of one item."""
    portion: list[T] = []
    size = 0
    for item in items:
        one = size_of(item)
        if portion and size + one > TRANSACTION_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(item)
        size += one
    if portion:
        yield portion
