"""What a read of many rows costs, beside the requests: no server."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.stores.zookeeper import anchor_node
from reconciler.stores.zookeeper.anchor_node import Znode
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

    def get(self, paths: Collection[str]) -> dict[str, Znode | None]:
        self.asked += len(paths)
        return {path: self.znodes.get(path) for path in paths}

    def children(self, paths: Collection[str]) -> dict[str, list[str] | None]:
        self.asked += len(paths)
        below = {path: [each[len(path) + 1 :] for each in self.znodes if each.startswith(f"{path}/")] for path in paths}
        return {path: sorted({each.partition("/")[0] for each in names}) for path, names in below.items()}


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
