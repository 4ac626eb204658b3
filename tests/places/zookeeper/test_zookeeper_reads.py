"""Many rows: what a read costs beside the requests, and by which transactions a write reaches them. No server."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import OutcomeUnknown
from reconciler.places.zookeeper.client import Create, Operation, Set, Znode
from reconciler.places.zookeeper.layouts import Consumers, Layout, Single
from reconciler.places.zookeeper.store import ZookeeperStore
from reconciler.ports import Change

ROWS = 5
JUTE_MAXBUFFER = 1_048_575
"""Bytes of a request that ZooKeeper takes by default. It closes the connection of a client that sends more."""


class Servers:
    """The znodes of some rows of one topic."""

    def __init__(self, layout: Layout, rows: int) -> None:
        offsets = {number: b"%d" % number for number in range(1, rows + 1)}
        if layout.shared:
            offsets = {0: b",".join(b"%d:%d" % (number, number) for number in offsets)}
        self.znodes = {layout.offset("events", number): Znode(data, 0, 1, 1, 0) for number, data in offsets.items()}
        self.asked = 0
        self.tried: list[str] = []
        self.zxid, self.transactions = 1, 0

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
        if sum(bytes_of(each) for each in operations) > JUTE_MAXBUFFER:
            raise OutcomeUnknown("The connection was lost.")
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
        self.znodes = after
        self.transactions += 1
        return True


def bytes_of(operation: Operation) -> int:
    """The size of an operation in a request, with its header, and an access list of one entry where it has one."""
    listed = 9 + 4 + 31 + 4 if isinstance(operation, Create) else 9 + 4
    return listed + 4 + len(operation.path.encode()) + 4 + len(getattr(operation, "data", b""))


LAYOUTS = pytest.mark.parametrize("layout", [Consumers("/kafka", "g"), Single("/kafka")], ids=["consumers", "single"])


def opened(layout: Layout, monkeypatch: pytest.MonkeyPatch, rows: int = ROWS) -> tuple[ZookeeperStore, Servers]:
    store, servers = (
        ZookeeperStore("none:1", "/kafka", "single" if layout.shared else "consumers"),
        Servers(layout, rows),
    )
    monkeypatch.setattr(store, "_ensemble", servers)
    return store, servers


@LAYOUTS
def test_a_read_asks_for_each_znode_once(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    store, servers = opened(layout, monkeypatch)
    rows = store.read("g", ["events"])
    assert [(row.key.partition, row.stored.offset) for row in rows] == [(n, n) for n in range(1, ROWS + 1)]
    assert servers.asked == len(servers.znodes) + 1


@LAYOUTS
def test_permissions_are_asked_of_all_znodes_of_the_rows_and_none_of_them_is_read(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, servers = opened(layout, monkeypatch)
    store.check_writable("g")
    assert sorted(path for path in servers.tried if "permission-probe" not in path) == sorted(servers.znodes)
    assert servers.asked <= 5


@pytest.mark.parametrize("count", [3, None], ids=["few", "all"])
def test_in_a_listing_of_10_000_offsets_a_correction_is_one_transaction(
    count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, servers = opened(Single("/kafka"), monkeypatch, 10_000)
    rows = store.read("g")
    changes = [Change(row.key, row.version, StoredOffset(row.stored.offset + 100_000)) for row in rows[:count]]
    result = store.write("g", changes, reason="test", now_ms=7)
    assert (result.written, result.conflicts) == (tuple(change.key for change in changes), ())
    new = [row.stored.offset for row in store.read("g")]
    assert new == [row.stored.offset + 100_000 * (n < len(changes)) for n, row in enumerate(rows)]
    assert servers.transactions == 1


def test_a_large_batch_is_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    store, servers = opened(Consumers("/kafka", "g"), monkeypatch, 10_000)
    changes = [Change(row.key, row.version, StoredOffset(row.stored.offset + 1)) for row in store.read("g")]
    assert len(store.write("g", changes, reason="test", now_ms=7).written) == 10_000
    assert [row.stored.offset for row in store.read("g")] == [number + 1 for number in range(1, 10_001)]
    assert 1 < servers.transactions < 20
