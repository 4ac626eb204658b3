"""What a read of many rows costs, beside the requests: no server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.ports import Change, TopicPartition
from reconciler.stores.zookeeper import anchor_node, writing
from reconciler.stores.zookeeper.anchor_node import Znode
from reconciler.stores.zookeeper.client import Create, Delete, Operation, Set
from reconciler.stores.zookeeper.layouts import Consumers, Layout, Single
from reconciler.stores.zookeeper.store import ZookeeperStore

ROWS = 5


class Servers:
    """The znodes of some rows of one topic, each with its anchor."""

    def __init__(self, layout: Layout) -> None:
        stored = {number: StoredOffset(number, Anchor(number - 1, 1_000)) for number in range(1, ROWS + 1)}
        offsets = {number: b"%d" % number for number in stored}
        if layout.shared:
            offsets = {0: b",".join(b"%d:%d" % (number, number) for number in stored)}
        self.znodes = {layout.offset("events", number): Znode(data, 0, 1, 1, 0) for number, data in offsets.items()}
        for number, each in stored.items():
            self.znodes[layout.anchor("events", number)] = Znode(anchor_node.encode(each), 0, 1, 1, 0)
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


def moved(store: ZookeeperStore) -> list[Change]:
    return [
        Change(row.key, row.version, replace(row.stored, offset=row.stored.offset + 100)) for row in store.read("g")
    ]


@pytest.fixture
def single(monkeypatch: pytest.MonkeyPatch) -> tuple[ZookeeperStore, Servers]:
    """A transaction a row; the row of partition 5 is a job's own, without an anchor."""
    monkeypatch.setattr(writing, "TRANSACTION_BYTES", 1)
    layout = Single("/kafka")
    store, servers = ZookeeperStore("none:1", "/kafka", "single"), Servers(layout)
    del servers.znodes[layout.anchor("events", ROWS)]
    monkeypatch.setattr(store, "_ensemble", servers)
    return store, servers


def test_the_later_transactions_of_a_write_read_their_own_rows_alone(single: tuple[ZookeeperStore, Servers]) -> None:
    store, servers = single
    changes = moved(store)[:-1]
    servers.asked = 0
    result = store.write("g", changes, reason="test", now_ms=7)
    assert (result.written, servers.transactions) == (tuple(change.key for change in changes), ROWS - 1)
    assert servers.asked == 2 * (ROWS - 1) + ROWS - 1, "a listing and an anchor each; the first one all anchors"
    rows = store.read("g")
    assert [row.stored.offset for row in rows] == [101, 102, 103, 104, 5]
    assert rows[-1].stored.written_at_ms == 0, "its time is noted, though the znode's is that of this write"


def test_a_job_that_writes_between_two_transactions_keeps_its_times(
    single: tuple[ZookeeperStore, Servers], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, servers = single
    path = "/kafka/events"
    changes = moved(store)[:2]
    real = servers.commit

    def after_the_first(write: Callable[[], None]) -> Callable[[Sequence[Operation]], bool]:
        def commit(operations: Sequence[Operation]) -> bool:
            done = real(operations)
            if servers.transactions == 1:
                write()
            return done

        return commit

    def jobs_write() -> None:
        node = servers.znodes[path]
        data = node.data.replace(b"5:5", b"5:6")
        servers.znodes[path] = replace(node, data=data, version=node.version + 1, mzxid=50, mtime_ms=1_234)

    monkeypatch.setattr(servers, "commit", after_the_first(jobs_write))
    assert len(store.write("g", changes, reason="test", now_ms=7).written) == 2
    last = store.read("g")[-1]
    assert (last.key, last.stored.offset) == (TopicPartition("events", ROWS), 6)
    assert last.stored.written_at_ms == 1_234, "the job's time, noted by the second transaction"
