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
from reconciler.spark.identity_columns import BatchIdentity
from reconciler.spark.recording.checkpoint import CheckpointRecorder
from reconciler.spark.recording.looking_up import Observed
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
    made._observed[METRIC] = Observed(frozenset({AT.topic}), frozenset({AT}))  # else its records are looked up
    return made


def report(batch: int, start: int, end: int, *, run: str = "r", query: str = "q", **fields: Any) -> dict[str, Any]:
    """As Spark reports a batch whose last record is the one before ``end``."""
    offset = {"topic": "events", "partition": 0, "offset": end - 1, "timestamp": 5, "payload_known": True}
    payload = {"key": b64encode(b"k").decode(), "value": b64encode(b"%d" % (end - 1)).decode()}
    text = json.dumps([{**offset, **payload, **fields}])
    source = {"startOffset": f'{{"events":{{"0":{start}}}}}', "endOffset": f'{{"events":{{"0":{end}}}}}'}
    whole = {"id": query, "runId": run, "batchId": batch, "sources": [source], "stateOperators": []}
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


Ends = dict[tuple[str, int], int]


def report_of(batch: int, ends: Ends, reached: Ends, *, run: str = "r") -> dict[str, Any]:
    """As Spark reports a batch with these partitions' last records; ``reached`` are the query's offsets after it."""
    fields = {"timestamp": 5, "payload_known": True, "key": None, "value": None}
    records = [{"topic": topic, "partition": at, "offset": end - 1, **fields} for (topic, at), end in ends.items()]
    offsets: dict[str, dict[str, int]] = {}
    for (topic, at), end in reached.items():
        offsets.setdefault(topic, {})[str(at)] = end
    sources = [{"startOffset": None, "endOffset": json.dumps(offsets)}]
    return {**report(batch, 0, 1, run=run), "sources": sources, "observedMetrics": {METRIC: [json.dumps(records)]}}


def of_offsets(store: MemoryStore, ids: dict[str, str]) -> Observer:
    """One for a store of offsets, of topics that have these ids, and as ``watch`` leaves it."""

    def describe(topics: Iterable[str]) -> ClusterInfo:
        return ClusterInfo("here", {name: TopicInfo(name, ids[name], (0, 1)) for name in topics})

    target = AnchorTarget(GROUP, ClusterAccess.at("nowhere:1"), BatchIdentity(), store, now_ms=lambda: 99)
    mine = Observer(None, Recorder(target, describe=describe), payload=True)  # type: ignore[arg-type]
    mine._units[METRIC] = "ms"
    mine._recorder.cluster.having(set(ids))
    return mine


def hear_in_vain(mine: Observer, store: MemoryStore, *reports: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(store, "write", lambda *_, **__: (_ for _ in ()).throw(Unreachable("The store is away.")))
        for each in reports:
            mine._hear(each)


def offsets(store: MemoryStore) -> dict[tuple[str, int], tuple[int, str | None]]:
    found = store.read(GROUP)
    return {
        (row.key.topic, row.key.partition): (row.stored.offset, row.stored.anchor and row.stored.anchor.topic_id)
        for row in found
    }


A, B, B1 = ("a", 0), ("b", 0), ("b", 1)


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_failed_report_gives_no_old_offset_to_a_topic_that_was_recreated_before_it_came(
    store: MemoryStore, *, is_settled: bool
) -> None:
    ids = {"a": "old", "b": "id"}
    mine = of_offsets(store, ids)
    mine._hear(report_of(0, {A: 500, B: 5}, {A: 500, B: 5}))
    ids["a"] = "new"
    failed = report_of(1, {A: 1000, B: 10}, {A: 1000, B: 10})
    hear_in_vain(mine, store, failed)
    if is_settled:
        mine.settle(Query(failed))
        mine.settle(Query(failed))
    else:
        mine._hear(report_of(2, {B: 20}, {A: 0, B: 20}))
    assert offsets(store) == {A: (500, "old"), B: (10 if is_settled else 20, "id")}
    assert (mine.trouble, len(mine._unstored)) == (None, 0)


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_failed_report_of_an_earlier_run_does_not_go_ahead_of_a_query_that_was_set_back(
    store: MemoryStore, *, is_stored: bool
) -> None:
    mine = of_offsets(store, {"b": "id"})
    mine._hear(report_of(3, {B: 30, B1: 30}, {B: 30, B1: 30}))
    earlier, later = report_of(4, {B: 60}, {B: 60, B1: 30}), report_of(4, {B1: 40}, {B: 30, B1: 40}, run="s")
    if is_stored:
        hear_in_vain(mine, store, earlier)
        mine._hear(later)
    else:
        hear_in_vain(mine, store, earlier, later)
        mine.settle(Query(later))
    assert offsets(store) == {B: (30, "id"), B1: (40, "id")}


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


# ---------------------------------------------------------------- records that wait in the state


def holding(*operators: str) -> dict[str, Any]:
    """A report of a batch that read 1000 records; operators of these names have a state."""
    states = [{"operatorName": name, "numRowsTotal": 0} for name in operators]  # RocksDB need not count
    return {**report(0, 0, 1000), "stateOperators": states}


def offsets_only(store: MemoryStore, mode: str | None = None) -> Observer:
    """One for a store of offsets, which saw the query start with this output mode."""
    target = AnchorTarget(GROUP, ClusterAccess.at("nowhere:1"), BatchIdentity(id="key"), store, now_ms=lambda: 99)
    mine = Observer(None, Recorder(target, describe=describe), payload=True)  # type: ignore[arg-type]
    mine._units[METRIC] = "s"
    mine._modes["r"] = mode
    return mine


@pytest.mark.parametrize(
    ("operators", "mode", "held_by"),
    [
        (["stateStoreSave"], "Append", "an aggregation in append mode"),
        (["dedupe", "symmetricHashJoin"], "Update", "a join of two streams"),
        (["stateStoreSave"], None, "an aggregation, whose output mode could not be seen and may be append"),
    ],
)
def test_no_offset_is_stored_while_records_may_wait_in_the_state(
    store: MemoryStore, caplog: pytest.LogCaptureFixture, operators: list[str], mode: str | None, held_by: str
) -> None:
    mine = offsets_only(store, mode)
    mine._hear(holding(*operators))
    assert store.read(GROUP) == []
    assert f"batch 0 of group clicks is not stored: No offset is stored for group clicks: the query has {held_by}," in (
        caplog.text
    )
    with pytest.raises(ConfigError, match=r"store=\"checkpoint:PATH\".*docs/how-to/stateful-failover\.md"):
        mine.settle(Query(holding(*operators)))
    assert (store.read(GROUP), len(mine._unstored)) == ([], 0)


@pytest.mark.parametrize(
    ("operators", "mode"),
    [(["stateStoreSave"], "Update"), (["stateStoreSave"], "Complete"), (["dedupe"], "Append"), ([], None)],
)
def test_an_offset_is_stored_if_all_records_before_it_were_put_out(
    store: MemoryStore, operators: list[str], mode: str | None
) -> None:
    mine = offsets_only(store, mode)
    mine._hear(holding(*operators))
    assert (stored(store).offset, mine.trouble) == (1000, None)


def test_a_checkpoints_anchors_are_stored_since_its_state_goes_along(store: MemoryStore, tmp_path: Path) -> None:
    mine = observer(store, tmp_path)
    mine._hear(holding("stateStoreSave", "symmetricHashJoin"))
    assert (stored(store).offset, mine.trouble) == (1000, None)
