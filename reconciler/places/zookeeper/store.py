"""Offsets that jobs keep in ZooKeeper: bare numbers.

How a write stays correct:

- W1  A write is a transaction of ZooKeeper: all its znodes change, or none. A large batch is several transactions.
- W2  Each operation names the data version that was read, and each row's version was compared with the expected one.
      So a row that another program changed in between is never overwritten: the transaction fails, and the rows are
      read again.
- W3  A version names the very change that wrote the row. In a znode that partitions share, it names the partition's
      own text instead: the others change independently.
- W4  Nothing but the number changes, and a znode whose number stays the same is not written at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import unquote

from reconciler.config.addresses import split, without_secrets
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import NotCreated, OutcomeUnknown, Refused, Unreachable
from reconciler.core.text import NotDecimal
from reconciler.places import common
from reconciler.places.parameters import ENCODED, Number, Parameters, number_in, wrong_address
from reconciler.places.zookeeper.client import (
    ANY_VERSION,
    AT_ONCE,
    PROBE,
    Check,
    Create,
    Ensemble,
    Operation,
    Set,
    Znode,
    ancestors,
)
from reconciler.places.zookeeper.layouts import (
    Consumers,
    Layout,
    NotAListing,
    PartitionText,
    Places,
    Single,
    check_name,
    damaged_znode,
    problem_of,
)
from reconciler.ports import UNKNOWN_PARTITION, Capabilities, Change, OffsetStore, Row, TopicPartition, WriteResult

EXAMPLE = "zookeeper://h1:2181,h2:2181/kafka?layout=consumers"
_wrong = partial(wrong_address, "The address of a ZooKeeper store", EXAMPLE)
TIMEOUT_S = 5.0
TRANSACTION_BYTES = 400_000
"""Bytes of changes in one transaction. A server takes requests of 1 MB (``jute.maxbuffer``)."""
ATTEMPTS = 20
"""Tries to write a batch while other programs change it between reading and transaction."""
_OVERHEAD_BYTES = 200
_ENTRY_BYTES = 32


class ZookeeperStore:
    """The offsets below ``chroot``. With ``of_group``, a caller may read a store without groups only for that group.

    Every method raises Unreachable without an answer in ``timeout_s``, and Refused where the servers refuse, where
    there is no store, and where a znode that should hold an offset holds something else.
    """

    def __init__(
        self,
        hosts: str,
        chroot: str,
        layout: str,
        *,
        credentials: str | None = None,
        of_group: str | None = None,
        number: Number = Number.NEXT,
        address: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """``layout``: ``consumers`` or ``single``. ``address`` is the address without secrets."""
        self._chroot = chroot
        self._kind = layout
        self._of_group = of_group
        self._number = number
        self.capabilities = Capabilities(keeps_anchors=False)
        self.address = address or f"zookeeper://{hosts}{chroot}?layout={layout}"
        self._ensemble = Ensemble(hosts, credentials, timeout_s=timeout_s)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows, ordered by topic and partition."""
        layout = self._layout(group)
        wanted = common.wanted_topics(topics)
        for topic in wanted or ():
            check_name("topic's name", topic)
        if wanted is not None and not wanted:
            return []
        places = self._places(layout, wanted)
        keys = [TopicPartition(topic, partition or 0) for topic, partition in places.values()]
        found = take_snapshot(self._ensemble, layout, keys, to_write=False)
        rows = [row.row(key) for key, row in found.rows.items()]
        rows += [common.unreadable_row(key, error) for key, error in found.faults.items()]
        return sorted(rows, key=lambda row: row.key)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each number, in as few transactions as their size allows. Nothing else is kept.

        Raises OutcomeUnknown without an answer, or where a part was written before an error.
        """
        common.check_changes(group, changes)
        layout = self._layout(group)
        for change in changes:
            check_name("topic's name", change.key.topic)
        return write_offsets(self._ensemble, layout, changes)

    def create(self) -> None:
        """Create the store's base znode, and those above it, unless they exist."""
        base = self._layout(self._of_group or "any").base
        paths = [*ancestors(base), base]
        while (existing := self._ensemble.existing(paths)) != set(paths):
            self._ensemble.commit([Create(path) for path in paths if path not in existing])

    def check_writable(self, group: str) -> None:
        """Raise Refused if the group has live consumers of Kafka's old client, which would overwrite its offsets, or
        if one of its znodes must not be written. Writes nothing.
        """
        layout = self._layout(group)
        if isinstance(layout, Consumers):
            self._refuse_live_members(group, layout)
        places = self._places(layout, None)
        # Nothing is written, so neither their content nor their version is read: permissions are asked of names.
        operations: list[Operation] = [Set(path, b"", ANY_VERSION) for path in places]
        operations += [Create(f"{folder}/{PROBE}") for folder in self._lowest_folders(layout, places)]
        for first in range(0, len(operations), AT_ONCE):
            self._ensemble.check_permission(operations[first : first + AT_ONCE])

    def close(self) -> None:
        self._ensemble.close()

    # ------------------------------------------------------------ reading

    def _layout(self, group: str) -> Layout:
        check_name("group's name", group)
        if self._kind == "consumers":
            return Consumers(self._chroot, group, self._number)
        common.check_group(group, self._of_group, f"the store {self.address}", why=": this layout has no groups")
        return Single(self._chroot, self._number)

    def _places(self, layout: Layout, topics: Iterable[str] | None) -> Places:
        places = layout.znodes(self._ensemble, topics)
        if places is None:
            raise no_store(self._ensemble, layout)
        return places

    def _lowest_folders(self, layout: Layout, places: Places) -> list[str]:
        """The lowest existing znodes below which a write may have to create others."""
        topics = set() if layout.shared else {topic for topic, _ in places.values()}
        folders = [layout.folder, *(f"{layout.folder}/{topic}" for topic in topics)]
        lineages = [[folder, *reversed(ancestors(folder))] for folder in folders]
        existing = self._ensemble.existing({path for lineage in lineages for path in lineage})
        found = (next((path for path in lineage if path in existing), None) for lineage in lineages)
        return sorted({path if path != "/" else "" for path in found if path is not None})

    def _refuse_live_members(self, group: str, layout: Consumers) -> None:
        members = self._ensemble.children([layout.members])[layout.members]
        if members:
            names = ", ".join(sorted(members)[:10])
            raise Refused(
                f"Group {group!r} has {len(members)} live consumer{'s' if len(members) != 1 else ''} in ZooKeeper"
                f" ({names}), which would overwrite its offsets; nothing was written.",
                hint="Stop them, wait until their sessions have ended, then run this again.",
            )


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One row's offset and its text, with its znode. ``shared`` as in its layout."""

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
    """The znodes of some rows at one moment, by path; ``rows`` have an offset."""

    rows: Mapping[TopicPartition, StoredRow]
    nodes: Mapping[str, Znode | None]
    faults: Mapping[TopicPartition, Refused] = field(default_factory=dict)


def take_snapshot(
    ensemble: Ensemble, layout: Layout, keys: Iterable[TopicPartition], *, to_write: bool = True
) -> Snapshot:
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
            error = damaged_znode(ensemble, path, err)
            if to_write:
                raise error from err
            faults[TopicPartition(key.topic, UNKNOWN_PARTITION if partition is None else partition)] = error
            continue
        rows |= {TopicPartition(key.topic, n): StoredRow(entry, node, layout.shared) for n, entry in found.items()}
    return Snapshot(rows, nodes, faults)


def write_offsets(ensemble: Ensemble, layout: Layout, changes: Sequence[Change]) -> WriteResult:
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
    return common.result_of(changes, lost)


def _write_batch(ensemble: Ensemble, layout: Layout, batch: Sequence[Change]) -> Sequence[TopicPartition]:
    """Write the changes whose rows are as expected, all together. Returns the keys of the others."""
    for _ in range(ATTEMPTS):
        before = take_snapshot(ensemble, layout, [change.key for change in batch])
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
        raise no_store(ensemble, layout)
    return [Create(path) for path in sorted(above - existing, key=lambda path: (path.count("/"), path))]


def no_store(ensemble: Ensemble, layout: Layout) -> Refused:
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


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``zookeeper://[USER:PASSWORD@]HOSTS[/CHROOT]?layout=consumers|single`` and, if need be,
    ``&number=next|last|first``, ``&timeout=SECONDS`` and, with ``single``, ``&of_group=GROUP``.

    Raises ConfigError for any other address. Nothing is contacted yet.
    """
    parts = split(address)
    if parts.fragment:
        raise _wrong("it has a # in it, which must be written as %23")
    if parts.query and not all("=" in each for each in parts.query.split("&")):
        raise _wrong("its parameters are not NAME=VALUE&NAME=VALUE")
    if "@" in parts.path:  # the end of a password would be taken for a znode, and be shown
        raise _wrong(f"it has an @ behind its hosts (write one of the path as %40; in a login, {ENCODED})")
    parameters = Parameters(parts.query, _wrong)
    layout = parameters.choice("layout", "consumers", "single", required=True)
    number = number_in(parameters)
    of_group = parameters.text("of_group")
    timeout_s = parameters.timeout_s(TIMEOUT_S)
    parameters.check_all_known()
    if of_group is not None:
        check_name("group in of_group", of_group)
        if layout != "single":
            raise _wrong("of_group goes with layout=single only: the other layout has groups")
    return ZookeeperStore(
        _checked_hosts(parts.hosts),
        _chroot(parts.path),
        layout,
        credentials=_credentials(parts.user),
        of_group=of_group,
        number=number,
        address=without_secrets(address),
        timeout_s=timeout_s,
    )


def _checked_hosts(hosts: str) -> str:
    from kazoo.hosts import collect_hosts

    if not hosts.strip(",") or any(not host or host.startswith(":") for host in hosts.split(",")):
        raise _wrong("it names no host")
    try:
        collect_hosts(hosts)
    except ValueError:
        raise _wrong("its hosts are not HOST:PORT,HOST:PORT") from None
    return hosts


def _credentials(user_part: str) -> str | None:
    if not user_part:
        return None
    user, colon, password = user_part.partition(":")
    if not user or not colon:
        raise _wrong("its credentials are not USER:PASSWORD")
    return f"{unquote(user)}:{unquote(password)}"


def _chroot(path: str) -> str:
    names = [unquote(name) for name in path.strip("/").split("/")] if path.strip("/") else []
    for name in names:
        if problem := problem_of(name):
            raise _wrong(f"the znode {name!a} in its path {problem}")
    return "".join(f"/{name}" for name in names)
