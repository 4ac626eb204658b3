"""A store that only its job writes to, with the [anchors] store: corrections are handed over, and anchors kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import Refused
from reconciler.ports import Change, HandsOver, OffsetStore, TopicPartition
from reconciler.stores.registry import open_store
from tests.stores.store_cases import NOW

pytest.importorskip("deltalake")
pytest.importorskip("pyarrow")

from tests.stores.sink_job import append_delta

HERE, THERE = TopicPartition("events", 0), TopicPartition("a.events", 0)
OLD = Anchor(41, 5, fingerprint=fingerprint(b"k", b"v"), cluster_id="source")
NEW = Anchor(31, 5, fingerprint=fingerprint(b"k", b"v"), cluster_id="destination")
HANDED = [Change(THERE, None, StoredOffset(32, NEW))]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Append one transaction with the job's offsets."""

    def append(offsets: dict[str, dict[str, int]]) -> None:
        append_delta(tmp_path / "t", [("x", 0, 0, "id")], {"userMetadata": json.dumps(offsets)})

    return append


@pytest.fixture
def store(tmp_path: Path, table: Any) -> OffsetStore:
    table({"events": {"0": 42}})
    return open_store(f"delta:{tmp_path}/t?layout=commit&number=next", anchors=f"sqlite:///{tmp_path}/anchors.db")


def rows(store: OffsetStore) -> dict[TopicPartition, tuple[int, Anchor | None, int | None]]:
    return {row.key: (row.stored.offset, row.stored.anchor, row.anchor_lag) for row in store.read("g")}


def test_what_is_handed_over_counts_from_the_jobs_next_transaction_on(store: Any, table: Any) -> None:
    assert isinstance(store, HandsOver)
    assert store.unkept("g", HANDED) == HANDED
    assert store.hand_over("g", HANDED, reason="hook", now_ms=NOW).written == (THERE,)
    assert rows(store) == {HERE: (42, None, None)}, "the job has not started yet"
    assert (store.unkept("g", HANDED), store.hand_over("g", HANDED, reason="hook", now_ms=NOW).written) == ([], ())
    table({"a.events": {"0": 32}})
    assert rows(store) == {HERE: (42, None, None), THERE: (32, NEW, 0)}
    table({"a.events": {"0": 40}})
    assert rows(store)[THERE] == (40, NEW, 8)
    table({"a.events": {"0": 20}})
    assert rows(store)[THERE] == (20, None, None), "the job did not start where it was to"


def test_an_anchor_is_written_for_the_stored_offset_and_for_no_other(store: Any) -> None:
    (row,) = store.read("g")
    for new in (StoredOffset(43, OLD), None):
        with pytest.raises(Refused, match="is the job's own, and read-only here"):
            store.write("g", [Change(HERE, row.version, new)], reason="import", now_ms=NOW)
    with pytest.raises(Refused, match="is the job's own, and read-only here"):
        store.write("g", HANDED, reason="apply", now_ms=NOW)
    stale = [Change(HERE, "stale", StoredOffset(42, OLD))]
    assert store.write("g", stale, reason="import", now_ms=NOW).conflicts == (HERE,)
    assert rows(store) == {HERE: (42, None, None)}
    kept = [Change(HERE, row.version, StoredOffset(42, OLD))]
    assert store.write("g", kept, reason="import", now_ms=NOW).written == (HERE,)
    assert rows(store) == {HERE: (42, OLD, 0)}
    with pytest.raises(Refused):
        store.check_writable("g")
