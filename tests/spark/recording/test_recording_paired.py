"""Recording into a store with no room for anchors, with an anchor store beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError
from reconciler.ports import Capabilities, ClusterInfo, Row, TopicInfo, TopicPartition
from reconciler.spark.identity_columns import BatchIdentity, LastRecord
from reconciler.spark.recording import recording
from reconciler.spark.recording.store import Recorder
from reconciler.spark.target import AnchorTarget, ClusterAccess
from reconciler.stores import registry
from reconciler.stores.memory import MemoryStore
from reconciler.stores.sqlite.store import SqliteStore

AT, GROUP = TopicPartition("events", 0), "clicks"


class Table(SqliteStore):
    """Numbers only."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, keeps_anchors=False)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        return [replace(row, stored=StoredOffset(row.stored.offset)) for row in super().read(group, topics)]


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> Table:
    return Table(address.removeprefix("table:"))


@pytest.fixture(autouse=True)
def table_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = registry.Scheme(__name__, "table:PATH")
    monkeypatch.setattr(registry, "SCHEMES", {**registry.SCHEMES, "table": scheme})


def target(folder: Path, anchors: str | None) -> AnchorTarget:
    cluster = ClusterAccess.at("nowhere:1")
    return AnchorTarget(GROUP, cluster, BatchIdentity(), f"table:{folder}/table.db", anchors, now_ms=lambda: 99)


def recorder(folder: Path) -> Recorder:
    def describe(topics: Iterable[str]) -> ClusterInfo:
        return ClusterInfo("here", {name: TopicInfo(name, "id", (0,)) for name in topics})

    return Recorder(target(folder, f"sqlite:///{folder}/anchors.db"), describe=describe)


def test_offsets_and_anchors_go_to_their_stores_which_the_first_batch_makes(tmp_path: Path) -> None:
    recording_to = recorder(tmp_path)
    recording_to.open()
    for last in (41, 47, 47, 45):  # the last two are repeated batches
        end = LastRecord(AT, last, timestamp_ms=5, append_time=False, key=b"k", value=b"v")
        recording_to.batch(3, [end])
    recording_to.close()
    expected = Anchor(47, 5, None, fingerprint(b"k", b"v"), "here", "id")
    assert [row.stored for row in Table(f"{tmp_path}/table.db").read(GROUP)] == [StoredOffset(48)]
    assert [row.stored for row in SqliteStore(f"{tmp_path}/anchors.db").read(GROUP)] == [StoredOffset(48, expected, 99)]


def test_without_an_anchor_store_the_error_names_the_argument(tmp_path: Path) -> None:
    alone = Recorder(target(tmp_path, None))
    with pytest.raises(ConfigError, match=r"cannot hold anchors.*anchors=\"sqlite:///anchors\.db\""):
        alone.open()


def test_an_anchor_store_goes_with_an_address(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Give the store as an address too"):
        recording(
            lambda batch, number: None,
            store=MemoryStore("open"),
            group=GROUP,
            bootstrap_servers="nowhere:1",
            anchors="sqlite:///anchors.db",
        )
