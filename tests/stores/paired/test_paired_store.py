"""Pairs of real stores: each as anchor store of a plain table, and each store without anchors with an anchor store.

The behaviour suite runs on a table with its anchors in another file; that a process may die between any two writes is
tested without servers (tests/stores/paired/test_paired.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.ports import Capabilities, Change, OffsetStore, Row, TopicPartition
from reconciler.stores.paired.steps import ASIDE
from reconciler.stores.paired.store import PairedStore
from reconciler.stores.registry import open_store
from reconciler.stores.sqlite.store import SqliteStore
from tests.stores.store_cases import NOW, Case
from tests.stores.test_store_behaviour import *  # noqa: F403 - the suite itself, on the cases below


class Table(SqliteStore):
    """Another program's table: numbers only."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(keeps_anchors=False, atomic_batches=True)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        return [replace(row, stored=self._number(row.stored)) for row in super().read(group, topics)]

    @staticmethod
    def _number(stored: StoredOffset) -> StoredOffset:
        return StoredOffset(stored.offset, None, stored.written_at_ms)


@pytest.fixture(params=["sqlite", "files_local"])
def case(request, tmp_path) -> Case:
    """The pairs that the suite runs on."""
    table, anchors = str(tmp_path / "table.db"), f"{tmp_path}/anchors"
    address = f"sqlite:///{anchors}.db" if request.param == "sqlite" else f"files:{anchors}"
    open_store(address).create()
    return Case(lambda: PairedStore(Table(table), open_store(address)), ("events", "a.events"))


# ---------------------------------------------------------------- every keeper, every table

KEEPERS = ["postgresql_own", "zookeeper_consumers", "hbase_anchored", "hbase_cloudera_anchors"]
TABLES = ["hbase_cloudera"]
"""Each has a fixture ``…_case`` in its room's ``fixtures.py``. The behaviour suite pairs PostgreSQL's table itself."""


def on_servers(names: list[str]) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.system) for name in names]


@pytest.fixture(params=[*on_servers(KEEPERS), "files_memory"])
def keeper(request) -> Callable[[], OffsetStore]:
    return request.getfixturevalue(f"{request.param}_case").open


@pytest.fixture(params=on_servers(TABLES))
def table(request) -> Callable[[], OffsetStore]:
    return request.getfixturevalue(f"{request.param}_case").open


def made_for(offset: int, cluster: str = "a") -> StoredOffset:
    record = Anchor(offset - 1, NOW, b"id %d" % offset, fingerprint(b"k", b"%d" % offset), cluster, f"{cluster}/t")
    return StoredOffset(offset, record, NOW - 5)


def plays_its_part(bare: Callable[[], OffsetStore], anchors: Callable[[], OffsetStore]) -> None:
    """A row created, continued, corrected, restored and deleted; each state is read by a newly opened pair."""

    group, key = Case.group(), TopicPartition("events", 3)
    both = PairedStore(bare(), anchors())
    both.create()
    both.close()

    def row() -> Row | None:
        pair = PairedStore(bare(), anchors())
        try:
            return next((found for found in pair.read(group, [key.topic]) if found.key == key), None)
        finally:
            pair.close()

    def write(new: StoredOffset | None) -> None:
        pair, now = PairedStore(bare(), anchors()), row()
        change = Change(key, now.version if now else None, new)
        try:
            assert pair.write(group, [change], reason="test", now_ms=NOW).written == (key,)
            stale = pair.write(group, [Change(key, "stale", made_for(1))], reason="test", now_ms=NOW)
            assert stale.conflicts == (key,)
        finally:
            pair.close()

    for new in (made_for(50), made_for(30, "b"), made_for(50)):
        write(new)
        found = row()
        assert found is not None
        assert (found.stored.offset, found.stored.anchor, found.anchor_lag) == (new.offset, new.anchor, 0)
    job = bare()
    (there,) = job.read(group, [key.topic])
    assert job.write(group, [Change(key, there.version, StoredOffset(62))], reason="job", now_ms=NOW).written
    job.close()
    found = row()
    assert found is not None
    assert (found.stored.offset, found.stored.anchor, found.anchor_lag) == (62, made_for(50).anchor, 12)
    write(made_for(80))
    write(None)
    assert row() is None
    kept = anchors()
    assert kept.read(group, [key.topic, key.topic + ASIDE]) == []
    kept.close()


def test_a_store_with_anchors_keeps_those_of_a_table_too(keeper, tmp_path) -> None:
    plays_its_part(lambda: Table(str(tmp_path / "table.db")), keeper)


def test_a_store_with_no_room_for_anchors_has_them_kept_in_another(table, tmp_path) -> None:
    plays_its_part(table, lambda: open_store(f"sqlite:///{tmp_path}/anchors.db"))
