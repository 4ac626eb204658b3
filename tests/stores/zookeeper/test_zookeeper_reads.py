"""Many rows: what a read costs beside the requests, and by which transactions a write reaches them. No server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import OutcomeUnknown
from reconciler.ports import Change
from reconciler.stores.zookeeper import anchor_node, writing
from reconciler.stores.zookeeper.anchor_node import Znode
from reconciler.stores.zookeeper.client import Create, Delete, Operation, Set
from reconciler.stores.zookeeper.layouts import Consumers, Layout, Single
from reconciler.stores.zookeeper.store import ZookeeperStore

ROWS = 5
JUTE_MAXBUFFER = 1_048_575
"""Bytes of a request that ZooKeeper takes by default. It closes the connection of a client that sends more."""


class Killed(BaseException):
    """The end of the process that writes."""


class Servers:
    """The znodes of some rows of one topic, each with its anchor unless they are ``bare``."""

    def __init__(self, layout: Layout, rows: int = ROWS, *, bare: bool = False) -> None:
        stored = {number: StoredOffset(number, Anchor(number - 1, 1_000)) for number in range(1, rows + 1)}
        offsets = {number: b"%d" % number for number in stored}
        if layout.shared:
            offsets = {0: b",".join(b"%d:%d" % (number, number) for number in stored)}
        self.znodes = {layout.offset("events", number): Znode(data, 0, 1, 1, 0) for number, data in offsets.items()}
        for number, each in () if bare else stored.items():
            self.znodes[layout.anchor("events", number)] = Znode(anchor_node.encode(each), 0, 1, 1, 0)
        self.asked = 0
        self.tried: list[str] = []
        self.zxid, self.transactions = 1, 0
        self.takes_bytes = JUTE_MAXBUFFER
        self.kills_after = -1

    def get(self, paths: Collection[str]) -> dict[str, Znode | None]:
        self.asked += len(paths)
        return {path: self.znodes.get(path) for path in paths}

    def children(self, paths: Collection[str]) -> dict[str, list[str] | None]:
        self.asked += len(paths)
        below = {path: [each[len(path) + 1 :] for each in self.znodes if each.startswith(f"{path}/")] for path in paths}
        return {path: sorted({each.partition("/")[0] for each in names}) for path, names in below.items()}

    def existing(self, paths: Collection[str]) -> set[str]:
        return {path for path in paths if any(each == path or each.startswith(f"{path}/") for each in self.znodes)}

    def check_permission(self, operations: Sequence[Operation]) -> None:
        self.tried = [operation.path for operation in operations]

    def commit(self, operations: Sequence[Operation]) -> bool:
        """All operations or none, by the versions of data, as the servers do it."""
        if sum(bytes_of(each) for each in operations) > self.takes_bytes:
            raise OutcomeUnknown("The connection was lost.")
        if self.transactions == self.kills_after:
            raise Killed
        self.zxid += 1
        after = dict(self.znodes)
        for each in operations:
            node = after.get(each.path)
            if (node is None) != isinstance(each, Create) or (node and node.version != getattr(each, "version", None)):
                return False
            if isinstance(each, Create):
                after[each.path] = Znode(each.data, 0, self.zxid, self.zxid, self.zxid)
            elif isinstance(each, Set) and node:
                after[each.path] = replace(
                    node, data=each.data, version=node.version + 1, mzxid=self.zxid, mtime_ms=self.zxid
                )
            elif isinstance(each, Delete):
                del after[each.path]
        self.znodes = after
        self.transactions += 1
        return True


def bytes_of(operation: Operation) -> int:
    """The size of an operation in a request, with its header, and an access list of one entry where it has one."""
    listed = 9 + 4 + 31 + 4 if isinstance(operation, Create) else 9 + 4
    return listed + 4 + len(operation.path.encode()) + 4 + len(getattr(operation, "data", b""))


@pytest.mark.parametrize(
    ("layout", "others"), [(Consumers("/kafka", "g"), 1), (Single("/kafka"), 3)], ids=["consumers", "single"]
)
def test_a_read_asks_for_each_znode_once_and_parses_each_anchor_once(
    layout: Layout, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    decode = anchor_node.decode
    monkeypatch.setattr(anchor_node, "decode", lambda data: parsed.append(data) or decode(data))  # type: ignore[func-returns-value]
    store = ZookeeperStore("none:1", "/kafka", "single" if layout.shared else "consumers")
    servers = Servers(layout)
    monkeypatch.setattr(store, "_ensemble", servers)
    rows = store.read("g", ["events"])
    assert [(row.key.partition, row.stored.offset, row.anchor_lag) for row in rows] == [
        (number, number, None) for number in range(1, ROWS + 1)
    ]
    assert all(row.stored.anchor is not None for row in rows)
    assert len(parsed) == ROWS
    assert servers.asked == others + (ROWS if layout.shared else 2 * ROWS)


@pytest.mark.parametrize("layout", [Consumers("/kafka", "g"), Single("/kafka")], ids=["consumers", "single"])
def test_permissions_are_asked_of_all_znodes_of_the_rows_and_none_of_them_is_read(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ZookeeperStore("none:1", "/kafka", "single" if layout.shared else "consumers")
    servers = Servers(layout)
    of_rows = sorted(servers.znodes)
    if not layout.shared:
        servers.znodes[layout.anchor("events", 99)] = Znode(b"", 1, 1, 1, 0)  # of a deleted row
    servers.znodes[f"{layout.anchors}/events/another-programs"] = Znode(b"", 1, 1, 1, 0)
    monkeypatch.setattr(store, "_ensemble", servers)
    store.check_writable("g")
    assert sorted(path for path in servers.tried if "permission-probe" not in path) == of_rows
    assert servers.asked <= 5


# ---------------------------------------------------------------- bare offsets in a znode that they share


def bare(rows: int, monkeypatch: pytest.MonkeyPatch) -> tuple[ZookeeperStore, Servers]:
    """A job's listing of so many offsets, with nothing beside it, and a store that keeps anchors elsewhere."""
    servers = Servers(Single("/kafka"), rows, bare=True)
    return reopened(servers, monkeypatch), servers


def reopened(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> ZookeeperStore:
    store = ZookeeperStore("none:1", "/kafka", "single", anchors_beside=False)
    monkeypatch.setattr(store, "_ensemble", servers)
    return store


def corrected(store: ZookeeperStore, count: int | None = None) -> list[Change]:
    """The first rows, or all, at new offsets."""
    return [Change(row.key, row.version, StoredOffset(row.stored.offset + 100_000)) for row in store.read("g")[:count]]


def offsets_and_times(store: ZookeeperStore) -> list[tuple[int, int | None]]:
    return [(row.stored.offset, row.stored.written_at_ms) for row in store.read("g")]


@pytest.mark.parametrize("count", [3, None], ids=["few", "all"])
def test_in_a_listing_of_10_000_bare_offsets_a_correction_fits_into_the_servers_requests(
    count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = bare(10_000, monkeypatch)
    changes = corrected(store, count)
    result = store.write("g", changes, reason="test", now_ms=7)
    assert (result.written, result.conflicts) == (tuple(change.key for change in changes), ())
    whole = len(changes)
    assert offsets_and_times(store) == [
        *((100_000 + number, 7) for number in range(1, whole + 1)),
        *((number, 0) for number in range(whole + 1, 10_001)),
    ], "the others keep the times that they had, though the znode's is that of this write"


def test_rows_whose_times_a_write_has_noted_itself_are_no_conflict_in_its_later_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "TRANSACTION_BYTES", 1)
    store, servers = bare(ROWS, monkeypatch)
    changes = corrected(store)
    result = store.write("g", changes, reason="test", now_ms=7)
    assert (result.written, result.conflicts) == (tuple(change.key for change in changes), ())
    assert servers.transactions == ROWS
    again = store.write("g", changes, reason="test", now_ms=8)
    assert (again.written, again.conflicts) == ((), tuple(change.key for change in changes))


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[ZookeeperStore, Servers]]:
    """Opens twelve bare offsets, on servers that take about four rows in a request."""
    monkeypatch.setattr(writing, "TRANSACTION_BYTES", 700)
    monkeypatch.setattr(writing, "REQUEST_BYTES", 1_000)

    def opened() -> tuple[ZookeeperStore, Servers]:
        store, servers = bare(12, monkeypatch)
        servers.takes_bytes = 1_000
        return store, servers

    return opened


def test_a_write_that_is_killed_between_any_two_transactions_leaves_each_row_its_offset_and_its_time(
    tight: Callable[[], tuple[ZookeeperStore, Servers]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [(number, 0) for number in range(1, 13)]
    after = [(100_000 + number, 7) for number in range(1, 13)]
    written: list[int] = []
    while len(after) not in written:
        store, servers = tight()
        servers.kills_after = len(written)
        with suppress(Killed):
            store.write("g", corrected(store), reason="test", now_ms=7)
        servers.kills_after = -1
        store = reopened(servers, monkeypatch)
        found = offsets_and_times(store)
        assert all(row in (old, new) for row, old, new in zip(found, before, after, strict=True))
        written.append(sum(row in after for row in found))
        rest = [change for change, row in zip(corrected(store), found, strict=True) if row not in after]
        assert len(store.write("g", rest, reason="test", now_ms=7).written) == len(rest)
        assert offsets_and_times(store) == after, "a second write completes it"
    assert written[:3] == [0, 0, 0], "the notes come before the first offset"
    assert written == sorted(written)


def test_a_job_that_writes_after_the_notes_and_before_the_correction_keeps_its_offset_and_its_time(
    tight: Callable[[], tuple[ZookeeperStore, Servers]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, servers = tight()
    changes = corrected(store, 2)
    real = servers.commit
    path = "/kafka/events"

    def commit(operations: Sequence[Operation]) -> bool:
        node = servers.znodes[path]
        if node.version == 0 and any(isinstance(each, Set) and each.path == path for each in operations):
            data = node.data.replace(b"2:2,", b"2:20,").replace(b"12:12", b"12:13")
            servers.znodes[path] = replace(node, data=data, version=1, mzxid=50, mtime_ms=1_234)
        return real(operations)

    monkeypatch.setattr(servers, "commit", commit)
    result = store.write("g", changes, reason="test", now_ms=7)
    assert (result.written, result.conflicts) == ((changes[0].key,), (changes[1].key,))
    others = [(number, 0) for number in range(3, 12)]
    assert offsets_and_times(store) == [(100_001, 7), (20, 1_234), *others, (13, 1_234)]
