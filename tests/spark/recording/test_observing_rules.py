"""Reports are stored once, in order, for one query; a failure is reported and repaired by the next report."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError, ExitCode, ReconcilerError, Unreachable
from reconciler.ports import ClusterInfo, TopicInfo, TopicPartition
from reconciler.spark.identity_columns import OWN_ID, OWN_TIME, BatchIdentity
from reconciler.spark.recording.checkpoint import CheckpointRecorder
from reconciler.spark.recording.observing import Observer
from reconciler.spark.recording.store import Recorder
from reconciler.spark.target import AnchorTarget, ClusterAccess
from reconciler.stores.memory import MemoryStore

AT, GROUP = TopicPartition("events", 0), "clicks"
METRIC = "reconciler:clicks:0"


def describe(topics: Iterable[str]) -> ClusterInfo:
    return ClusterInfo("here", {name: TopicInfo(name, "id", (0,)) for name in topics})


class Query:
    """A query with reports of its last batches."""

    def __init__(self, *reports: dict[str, Any]) -> None:
        self.recentProgress = list(reports)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(request.node.nodeid)


def observer(store: MemoryStore, tmp_path: Path, identity: BatchIdentity | None = None) -> Observer:
    named, cluster = identity or BatchIdentity(id="key"), ClusterAccess.at("nowhere:1")
    target = AnchorTarget(GROUP, cluster, named, f"checkpoint:{tmp_path}", store, now_ms=lambda: 99)
    recorder = CheckpointRecorder(target, describe=describe)
    made = Observer(None, recorder, payload=True)  # type: ignore[arg-type]
    made._units[METRIC] = "s"
    return made


def report(batch: int, start: int, end: int, *, run: str = "r", query: str = "q", **fields: Any) -> dict[str, Any]:
    """As Spark reports a batch whose last record is the one before ``end``."""
    offset = {"topic": "events", "partition": 0, "offset": end - 1, "timestamp": 5, "payload_known": True}
    payload = {"key": b64encode(b"k").decode(), "value": b64encode(b"%d" % (end - 1)).decode()}
    text = json.dumps([{**offset, **payload, **fields}])
    source = {"startOffset": f'{{"events":{{"0":{start}}}}}', "endOffset": f'{{"events":{{"0":{end}}}}}'}
    whole = {"id": query, "runId": run, "batchId": batch, "sources": [source], "observedMetrics": {METRIC: [text]}}
    return {**whole, "observedMetrics": {METRIC: [text], "the user's own": [1]}}


def stored(store: MemoryStore) -> StoredOffset:
    (row,) = store.read(GROUP)
    assert row.key == AT
    return row.stored


def test_a_report_is_stored_for_the_offset_that_it_ends_at(store: MemoryStore, tmp_path: Path) -> None:
    observer(store, tmp_path)._hear(report(0, 0, 10))
    assert stored(store) == StoredOffset(10, Anchor(9, 5, b"k", fingerprint(b"k", b"9"), "here", "id"), 99)


def test_a_repeated_or_late_report_changes_nothing(store: MemoryStore, tmp_path: Path) -> None:
    mine = observer(store, tmp_path)
    mine._hear(report(0, 0, 10))
    mine._hear(report(1, 10, 20))
    before = store.read(GROUP)
    mine._hear(report(1, 10, 20))
    mine._hear(report(0, 0, 10))
    assert store.read(GROUP) == before


def test_settle_stores_reports_that_the_listener_has_not_received(store: MemoryStore, tmp_path: Path) -> None:
    mine = observer(store, tmp_path)
    mine._hear(report(0, 0, 10))
    idle = {**report(2, 20, 20), "observedMetrics": {}}
    mine.settle(Query(report(0, 0, 10), report(1, 10, 20), idle))
    assert stored(store).offset == 20


def test_a_new_run_may_begin_with_an_earlier_batch(store: MemoryStore, tmp_path: Path) -> None:
    """After a checkpoint was restored to an earlier state the report has the query's true position."""
    mine = observer(store, tmp_path)
    mine._hear(report(7, 70, 80))
    mine._hear(report(3, 30, 40, run="another"))
    assert stored(store).offset == 40


def test_a_second_query_is_not_mixed_in(store: MemoryStore, tmp_path: Path) -> None:
    mine = observer(store, tmp_path)
    mine._hear(report(0, 0, 10))
    mine._hear(report(0, 0, 15, query="another", run="another"))
    assert stored(store).offset == 10
    assert isinstance(mine.trouble, ConfigError)
    assert "Two queries" in mine.trouble.message


def test_reports_of_other_queries_are_ignored(store: MemoryStore, tmp_path: Path) -> None:
    mine = observer(store, tmp_path)
    mine._hear({**report(0, 0, 10), "observedMetrics": {"the user's own": [1]}})
    assert (store.read(GROUP), mine.trouble) == ([], None)


def test_a_report_that_comes_after_the_end_is_not_heard(store: MemoryStore, tmp_path: Path) -> None:
    mine = observer(store, tmp_path)
    mine.close()
    mine._hear(report(0, 0, 10))
    assert (store.read(GROUP), mine.trouble) == ([], None)


def test_a_failed_store_is_reported_and_the_next_report_repairs_it(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine = observer(store, tmp_path)
    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(store, "write", lambda *_, **__: (_ for _ in ()).throw(Unreachable("The store is away.")))
        mine._hear(report(0, 0, 10))
    assert "batch 0 of group clicks is not stored: The store is away." in caplog.text
    with pytest.raises(Unreachable):
        mine.settle(Query())
    mine._hear(report(1, 10, 20))
    assert (stored(store).offset, mine.trouble) == (20, None)


def test_a_topic_that_was_recreated_is_not_stored_for_the_batch_in_which_that_is_found(store: MemoryStore) -> None:
    ids = iter(["id", "another id", "another id"])

    def described(topics: Iterable[str]) -> ClusterInfo:
        topic_id = next(ids)
        return ClusterInfo("here", {name: TopicInfo(name, topic_id, (0,)) for name in topics})

    target = AnchorTarget(GROUP, ClusterAccess.at("nowhere:1"), BatchIdentity(), store, now_ms=lambda: 99)
    mine = Observer(None, Recorder(target, describe=described), payload=True)  # type: ignore[arg-type]
    mine._units[METRIC] = "ms"
    mine._hear(report(0, 0, 10))
    mine._hear(report(1, 10, 20))
    assert (stored(store).offset, stored(store).anchor.topic_id) == (10, "id")
    mine._hear(report(2, 20, 30))
    assert (stored(store).offset, stored(store).anchor.topic_id) == (30, "another id")


def test_a_partition_that_is_silent_after_a_failed_store_is_stored_too(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = AnchorTarget(GROUP, ClusterAccess.at("nowhere:1"), BatchIdentity(), store, now_ms=lambda: 99)
    mine = Observer(None, Recorder(target, describe=describe), payload=True)  # type: ignore[arg-type]
    mine._units[METRIC] = "ms"
    other = report(1, 0, 7)
    text = other["observedMetrics"][METRIC][0].replace('"partition": 0', '"partition": 1')
    ends = {"startOffset": '{"events":{"0":10,"1":0}}', "endOffset": '{"events":{"0":10,"1":7}}'}
    other |= {"sources": [ends], "observedMetrics": {METRIC: [text]}}
    with monkeypatch.context() as broken:
        broken.setattr(store, "write", lambda *_, **__: (_ for _ in ()).throw(Unreachable("The store is away.")))
        mine._hear(report(0, 0, 10))
        mine._hear(report(0, 0, 10))
    mine._hear(other)
    assert {row.key.partition: row.stored.offset for row in store.read(GROUP)} == {0: 10, 1: 7}
    assert (mine.trouble, len(mine._unstored)) == (None, 0)


def test_a_failed_report_is_not_stored_once_its_topic_was_recreated(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = AnchorTarget(GROUP, ClusterAccess.at("nowhere:1"), BatchIdentity(), store, now_ms=lambda: 99)
    mine = Observer(None, Recorder(target, describe=describe), payload=True)  # type: ignore[arg-type]
    mine._units[METRIC] = "ms"
    with monkeypatch.context() as broken:
        broken.setattr(store, "write", lambda *_, **__: (_ for _ in ()).throw(Unreachable("The store is away.")))
        mine._hear(report(0, 0, 10))
    mine._recorder.cluster.learn(ClusterInfo("here", {"events": TopicInfo("events", "another id", (0,))}))
    with pytest.raises(Unreachable):
        mine.settle(Query())
    assert store.read(GROUP) == []


def test_a_bug_leaves_the_listener_alive_and_is_the_trouble(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine = observer(store, tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(store, "write", lambda *_, **__: {}["a key"])
        mine._hear(report(0, 0, 10))
    with pytest.raises(ReconcilerError, match="This is a bug in reconciler: KeyError: 'a key'") as caught:
        mine.settle(Query())
    assert caught.value.exit_code is ExitCode.BUG
    assert "Traceback" in caplog.text
    mine._hear(report(1, 10, 20))
    assert (stored(store).offset, mine.trouble) == (20, None)


@pytest.mark.parametrize(
    ("own", "expected"),
    [({"bytes": "AP8="}, b"\x00\xff"), ({"value": "text"}, b"text"), ({"value": 17}, b"17"), ({}, None), (None, None)],
)
def test_the_users_columns_are_decoded_unchanged(
    store: MemoryStore, tmp_path: Path, own: dict[str, Any] | None, expected: bytes | None
) -> None:
    mine = observer(store, tmp_path, BatchIdentity(id=object(), timestamp=object(), unit="s"))
    mine._hear(report(0, 0, 10, **{OWN_ID: own, OWN_TIME: {"value": 1_780_000_000}}))
    assert (stored(store).anchor.id, stored(store).anchor.timestamp_ms) == (expected, 1_780_000_000_000)


def test_null_and_empty_payloads_are_distinguished(store: MemoryStore, tmp_path: Path) -> None:
    mine = observer(store, tmp_path)
    mine._hear(report(0, 0, 10, key=None, value=""))
    assert stored(store).anchor.fingerprint == fingerprint(None, b"")
    mine._hear(report(1, 10, 20, key=None, value=None, payload_known=False))
    assert stored(store).anchor.fingerprint is None


def test_of_two_sources_in_one_partition_the_one_that_is_behind_decides(store: MemoryStore) -> None:
    target = AnchorTarget(GROUP, ClusterAccess.at("nowhere:1"), BatchIdentity(id="key"), store, now_ms=lambda: 99)
    mine = Observer(None, Recorder(target, describe=describe), payload=True)  # type: ignore[arg-type]
    mine._units = {METRIC: "s", "reconciler:clicks:1": "s"}
    ahead, behind = report(0, 0, 30), report(0, 0, 10)
    metrics = {METRIC: ahead["observedMetrics"][METRIC], "reconciler:clicks:1": behind["observedMetrics"][METRIC]}
    mine._hear({**ahead, "sources": ahead["sources"] + behind["sources"], "observedMetrics": metrics})
    assert [row.stored.offset for row in store.read(GROUP)] == [10]
    silent = report(1, 10, 10)["sources"]
    later = report(1, 30, 40)
    mine._hear({**later, "sources": later["sources"] + silent})
    assert [row.stored.offset for row in store.read(GROUP)] == [10], "it has read none of them"
