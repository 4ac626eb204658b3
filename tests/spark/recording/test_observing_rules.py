"""Reports are stored once, in order, for one query; a failure is reported and repaired by the next report."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError, ExitCode, ReconcilerError, Unreachable
from reconciler.identity import identity_from_spec
from reconciler.kafka.memory import MemoryLog, MemoryRecord
from reconciler.ports import TopicPartition
from reconciler.spark.recording.checkpoint import CheckpointRecorder
from reconciler.spark.recording.observing import Observer
from reconciler.spark.recording.store import Recorder
from reconciler.spark.recording.watched import Watched
from reconciler.spark.target import AnchorTarget, ClusterAccess
from reconciler.stores.memory import MemoryStore

AT, GROUP = TopicPartition("events", 0), "clicks"
METRIC = "reconciler:clicks:0"


EVERY = Watched(frozenset({"events", "a", "b"}), committed_only=False)


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    """The cluster, whose partitions have 1,100 records each."""
    made = MemoryLog("here", {"events": 2, "a": 1, "b": 2})
    for partition in made.partitions.values():
        partition.append_batch(MemoryRecord(0, 5, b"k", b"%d" % number) for number in range(1_100))
    made.topic_ids = dict.fromkeys(made.topic_ids, "id")
    monkeypatch.setattr(ClusterAccess, "reader", lambda self, **how: made)
    return made


class Query:
    """A query with reports of its last batches."""

    def __init__(self, *reports: dict[str, Any]) -> None:
        self.recentProgress = list(reports)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(request.node.nodeid)


def watching(recorder: Recorder | CheckpointRecorder, *metrics: str) -> Observer:
    """An observer as ``watch`` leaves it."""
    made = Observer(None, recorder)  # type: ignore[arg-type]
    made._watched = dict.fromkeys(metrics or (METRIC,), EVERY)
    return made


def observer(store: MemoryStore, tmp_path: Path) -> Observer:
    identity, cluster = identity_from_spec(id="key"), ClusterAccess.at("nowhere:1")
    target = AnchorTarget(GROUP, cluster, identity, f"checkpoint:{tmp_path}", store, now_ms=lambda: 99)
    return watching(CheckpointRecorder(target))


def of_offsets(store: MemoryStore, *metrics: str) -> Observer:
    """One for a store of offsets."""
    target = AnchorTarget(GROUP, ClusterAccess.at("nowhere:1"), identity_from_spec(), store, now_ms=lambda: 99)
    mine = watching(Recorder(target), *metrics)
    mine._recorder.cluster.having({"events", "a", "b"})
    return mine


def report(batch: int, start: int, end: int, *, run: str = "r", query: str = "q") -> dict[str, Any]:
    """As Spark reports a batch whose last record is the one before ``end``."""
    source = {"startOffset": f'{{"events":{{"0":{start}}}}}', "endOffset": f'{{"events":{{"0":{end}}}}}'}
    whole = {"id": query, "runId": run, "batchId": batch, "sources": [source], "stateOperators": []}
    return {**whole, "observedMetrics": {METRIC: [end - start], "the user's own": [1]}}


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


def test_a_topic_that_was_recreated_is_not_stored_for_the_batch_in_which_that_is_found(
    store: MemoryStore, log: MemoryLog
) -> None:
    mine = of_offsets(store)
    mine._hear(report(0, 0, 10))
    log.topic_ids["events"] = "another id"
    mine._hear(report(1, 10, 20))
    assert offsets(store) == {("events", 0): (10, "id")}
    mine._hear(report(2, 20, 30))
    assert offsets(store) == {("events", 0): (30, "another id")}


Ends = dict[tuple[str, int], int]


def report_of(batch: int, ends: Ends, reached: Ends, *, run: str = "r") -> dict[str, Any]:
    """As Spark reports a batch with records of these partitions; ``reached`` are the query's offsets after it."""
    starts = {place: 0 if place in ends else end for place, end in reached.items()}
    sources = [{"startOffset": as_text(starts), "endOffset": as_text(reached)}]
    return {**report(batch, 0, 1, run=run), "sources": sources}


def as_text(ends: Ends) -> str:
    offsets: dict[str, dict[str, int]] = {}
    for (topic, at), end in ends.items():
        offsets.setdefault(topic, {})[str(at)] = end
    return json.dumps(offsets)


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


def test_a_partition_that_is_silent_after_a_failed_store_is_stored_too(store: MemoryStore) -> None:
    mine = of_offsets(store)
    hear_in_vain(mine, store, report_of(0, {B: 10}, {B: 10}), report_of(1, {B1: 5}, {B: 10, B1: 5}))
    mine._hear(report_of(2, {A: 7}, {A: 7, B: 10, B1: 5}))
    assert offsets(store) == {A: (7, "id"), B: (10, "id"), B1: (5, "id")}
    assert mine.trouble is None


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_failed_report_gives_no_old_offset_to_a_topic_that_was_recreated_before_it_came(
    store: MemoryStore, log: MemoryLog, *, is_settled: bool
) -> None:
    log.topic_ids["a"] = "old"
    mine = of_offsets(store)
    mine._hear(report_of(0, {A: 500, B: 5}, {A: 500, B: 5}))
    log.topic_ids["a"] = "new"
    failed = report_of(1, {A: 1000, B: 10}, {A: 1000, B: 10})
    hear_in_vain(mine, store, failed)
    if is_settled:
        mine.settle(Query(failed))
        mine.settle(Query(failed))
    else:
        mine._hear(report_of(2, {B: 20}, {A: 0, B: 20}))
    assert offsets(store) == {A: (500, "old"), B: (10 if is_settled else 20, "id")}
    assert mine.trouble is None


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_failed_report_of_an_earlier_run_does_not_go_ahead_of_a_query_that_was_set_back(
    store: MemoryStore, *, is_stored: bool
) -> None:
    mine = of_offsets(store)
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


def test_of_two_sources_in_one_partition_the_one_that_is_behind_decides(store: MemoryStore) -> None:
    mine = of_offsets(store, METRIC, "reconciler:clicks:1")
    ahead, behind = report(0, 0, 30), report(0, 0, 10)
    ahead["observedMetrics"]["reconciler:clicks:1"] = [10]
    mine._hear({**ahead, "sources": ahead["sources"] + behind["sources"]})
    assert [row.stored.offset for row in store.read(GROUP)] == [10]
    silent, later = report(1, 10, 10)["sources"], report(1, 30, 40)
    mine._hear({**later, "sources": later["sources"] + silent})
    assert [row.stored.offset for row in store.read(GROUP)] == [10], "it has read none of them"


# ---------------------------------------------------------------- records that wait in the state


def holding(*operators: str) -> dict[str, Any]:
    """A report of a batch that read 1000 records; operators of these names have a state."""
    states = [{"operatorName": name, "numRowsTotal": 0} for name in operators]  # RocksDB need not count
    return {**report(0, 0, 1000), "stateOperators": states}


def offsets_only(store: MemoryStore, mode: str | None = None) -> Observer:
    """One for a store of offsets, which saw the query start with this output mode."""
    mine = of_offsets(store)
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
    assert store.read(GROUP) == []


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
