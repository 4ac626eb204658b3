"""Reads and changes of znodes that hold offsets.

Theory of operation:

- W1  A write is a transaction of ZooKeeper: all its znodes change, or none. A large batch is several transactions.
- W2  Each operation names the data version that was read, and each row's version was compared with what was read. So a
      row that another program changed in between is never overwritten: the transaction fails, and the rows are read
      again.
- W3  A version names the very change that wrote the row. In a znode that partitions share, it names the partition's
      own text instead: the others change independently.
- W4  Nothing but the number changes, and a znode whose number stays the same is not written at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import NotCreated, OutcomeUnknown, Refused, Unreachable
from reconciler.core.text import NotDecimal
from reconciler.places import common
from reconciler.places.zookeeper.client import Check, Create, Ensemble, Operation, Set, Znode, ancestors
from reconciler.places.zookeeper.layouts import Layout, damaged
from reconciler.places.zookeeper.single_text import NotAListing, PartitionText
from reconciler.ports import Change, Row, TopicPartition, WriteResult

TRANSACTION_BYTES = 400_000
"""Bytes of changes in one transaction. A server takes requests of 1 MB (``jute.maxbuffer``)."""
ATTEMPTS = 20
"""Tries to write a batch while other programs change it between reading and transaction."""
_OVERHEAD_BYTES = 200
_ENTRY_BYTES = 32


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One row's offset as it is written, with its znode. ``shared`` as in its layout."""

    entry: PartitionText
    node: Znode
    shared: bool

    def row(self, key: TopicPartition) -> Row:
        stored = StoredOffset(self.entry.offset, None, self.node.mtime_ms)
        return Row(key, stored, self.version)

    @property
    def version(self) -> str:
        """W3."""
        if self.shared:
            return f"{self.node.czxid:x}.{self.entry.text}"
        return f"{self.node.mzxid:x}.{self.entry.partition}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The znodes of some rows at one moment, by path; ``rows`` are those that have an offset."""

    rows: Mapping[TopicPartition, StoredRow]
    nodes: Mapping[str, Znode | None]
    faults: Mapping[TopicPartition, Refused] = field(default_factory=dict)


def snapshot(ensemble: Ensemble, layout: Layout, keys: Iterable[TopicPartition], *, to_write: bool = True) -> Snapshot:
    """The rows as they are now, and with them all other rows in the same shared znodes.

    Raises Refused where a znode should hold an offset and holds something else; without ``to_write``, such rows are
    ``faults``.
    """
    paths = {layout.offset(key.topic, key.partition): key for key in keys}
    nodes = ensemble.get(paths)
    rows: dict[TopicPartition, StoredRow] = {}
    faults: dict[TopicPartition, Refused] = {}
    for path, key in paths.items():
        node = nodes[path]
        if node is None:
            continue
        partition = None if layout.shared else key.partition
        try:
            found = layout.entries(node.data, partition)
        except (NotDecimal, NotAListing) as err:
            error = damaged(ensemble, path, err)
            if to_write:
                raise error from err
            found, bad = layout.salvaged(node.data, partition)
            faults |= {TopicPartition(key.topic, number): error for number in bad}
        rows |= {TopicPartition(key.topic, n): StoredRow(entry, node, layout.shared) for n, entry in found.items()}
    return Snapshot(rows, nodes, faults)


def write(ensemble: Ensemble, layout: Layout, changes: Sequence[Change]) -> WriteResult:
    """Compare-and-set each change. Raises OutcomeUnknown where only a part was written before an error."""
    lost: list[TopicPartition] = []
    done = 0
    for batch in _batches(layout, changes):
        try:
            conflicts = _write_batch(ensemble, layout, batch)
        except (Unreachable, OutcomeUnknown) as err:
            if not done:
                raise
            raise OutcomeUnknown(
                f"{done} of {len(changes)} rows were written, then: {err.message}", hint="Run this again."
            ) from err
        lost += conflicts
        done += len(batch) - len(conflicts)
    return common.written(changes, lost)


def _write_batch(ensemble: Ensemble, layout: Layout, batch: Sequence[Change]) -> Sequence[TopicPartition]:
    """Write those changes whose rows are as expected, all together. The keys of the others."""
    for _ in range(ATTEMPTS):
        before = snapshot(ensemble, layout, [change.key for change in batch])
        lost = common.conflicts(batch, {key: row.version for key, row in before.rows.items()})
        operations = _operations(layout, before, [change for change in batch if change.key not in lost])
        if not operations or ensemble.commit([*_folders(ensemble, layout, operations), *operations]):
            return lost
    raise Unreachable(
        f"The offsets at {ensemble.name} change faster than they can be written; nothing was written.",
        hint="Stop the job that writes them, then run this again.",
    )


def _operations(layout: Layout, before: Snapshot, changes: Sequence[Change]) -> list[Operation]:
    """The operations for some changes, with the versions in ``before``."""
    operations: list[Operation] = []
    for path, here in _by_path(layout, changes).items():
        node = before.nodes[path]
        edits = {change.key.partition: change.new.offset for change in here}
        data = layout.edited(
            None if node is None else node.data, None if layout.shared else here[0].key.partition, edits
        )
        if node is None:
            operations.append(Create(path, data))
        elif data == node.data:
            operations.append(Check(path, node.version))
        else:
            operations.append(Set(path, data, node.version))
    return operations


def _by_path(layout: Layout, changes: Iterable[Change]) -> dict[str, list[Change]]:
    found: dict[str, list[Change]] = {}
    for change in changes:
        found.setdefault(layout.offset(change.key.topic, change.key.partition), []).append(change)
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


def _batches(layout: Layout, changes: Sequence[Change]) -> Iterator[list[Change]]:
    """The changes in transactions of at most ``TRANSACTION_BYTES``, or of one znode."""
    portion: list[Change] = []
    size = 0
    for path, here in _by_path(layout, changes).items():
        one = _OVERHEAD_BYTES + len(path.encode()) + _ENTRY_BYTES * len(here)
        if portion and size + one > TRANSACTION_BYTES:
            yield portion
            portion, size = [], 0
        portion += here
        size += one
    if portion:
        yield portion
