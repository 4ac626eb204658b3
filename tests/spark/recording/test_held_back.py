"""Queries that hold records back in their state: which these are, and that no offset is stored for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.core.errors import ConfigError
from reconciler.identity import identity_from_spec
from reconciler.ports import ClusterInfo, TopicInfo, TopicPartition
from reconciler.spark.last_records import LastRecord
from reconciler.spark.recording import held_back
from reconciler.spark.recording.checkpoint import CheckpointRecorder
from reconciler.spark.recording.foreach_batch import Recording
from reconciler.spark.recording.held_back import Holders, holder
from reconciler.spark.recording.range_ends import PointRead, RangeEnds
from reconciler.spark.recording.store import Recorder
from reconciler.spark.target import AnchorTarget, ClusterAccess
from reconciler.stores.memory import MemoryStore
from tests.spark.recording.world import Sequenced


@pytest.mark.parametrize(
    ("operators", "mode", "found"),
    [
        ([], "Append", None),
        (["dedupe", "dedupeWithinWatermark", "globalLimit"], "Append", None),
        (["stateStoreSave"], "Update", None),
        (["sessionWindowStateStoreSaveExec"], "Complete", None),
        (["stateStoreSave"], "Append", "an aggregation in append mode"),
        (["sessionWindowStateStoreSaveExec"], "Append", "an aggregation by session in append mode"),
        (["stateStoreSave"], "SomethingNew", "an aggregation in append mode"),
        (["dedupe", "symmetricHashJoin"], "Append", "a join of two streams"),
        (["symmetricHashJoin"], "Update", "a join of two streams"),
        (["applyInPandasWithState"], "Update", 'the operator "applyInPandasWithState"'),
        (["transformWithStateExec"], "Update", 'the operator "transformWithStateExec"'),
        (["somethingNew"], "Complete", 'the operator "somethingNew"'),
    ],
)
def test_an_operator_holds_records_back_unless_it_is_known_not_to(
    operators: list[str], mode: str, found: str | None
) -> None:
    assert holder(operators, mode) == found


# ---------------------------------------------------------------- in a running batch


class Node:
    """An operator of a physical plan; those with a state have a short name."""

    looks = 0

    def __init__(self, *children: Node, state: str | None = None) -> None:
        self._state = state
        self.children = lambda: Sequenced(children)

    def metrics(self) -> Any:
        Node.looks += 1
        return SimpleNamespace(contains=lambda name: self._state is not None and name == "numTotalStateRows")

    def shortName(self) -> str:
        assert self._state is not None, "Spark has no such method here"
        return self._state


def text(value: str) -> Any:
    return SimpleNamespace(toString=lambda: value)


def query(plan: Node, mode: str = "Append", run: str = "r") -> Any:
    execution = SimpleNamespace(executedPlan=lambda: plan, outputMode=lambda: text(mode))
    return SimpleNamespace(runId=lambda: text(run), lastExecution=lambda: execution)


JOIN = Node(Node(Node(), Node(state="dedupe"), state="symmetricHashJoin"))
BATCH: Any = SimpleNamespace(_jdf=None)


def test_a_querys_operators_are_looked_up_once_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, running = Holders(), {"now": query(JOIN)}
    monkeypatch.setattr(held_back, "running_query", lambda batch: running["now"])
    assert mine.of(BATCH) == "a join of two streams"
    before = Node.looks
    assert mine.of(BATCH) == "a join of two streams"
    assert Node.looks == before
    running["now"] = query(Node(state="stateStoreSave"), "Update", run="s")
    assert mine.of(BATCH) is None


@pytest.mark.parametrize(
    ("batch", "running", "why"),
    [
        (SimpleNamespace(), lambda batch: None, "Spark Connect"),
        (BATCH, lambda batch: None, "this version of Spark"),
    ],
)
def test_a_query_that_is_not_seen_is_refused(
    monkeypatch: pytest.MonkeyPatch, batch: Any, running: Any, why: str
) -> None:
    monkeypatch.setattr(held_back, "running_query", running)
    with pytest.raises(ConfigError, match=why):
        Holders().of(batch)


def test_a_function_that_no_query_calls_is_refused() -> None:
    context = SimpleNamespace(getLocalProperty=lambda name: None)
    shared = SimpleNamespace(sharedState=lambda: SimpleNamespace(activeStreamingQueries=dict))
    frame: Any = SimpleNamespace(
        sparkSession=SimpleNamespace(sparkContext=context), _jdf=SimpleNamespace(sparkSession=lambda: shared)
    )
    with pytest.raises(ConfigError, match="not called by a streaming query"):
        Holders().of(frame)


# ---------------------------------------------------------------- recording


def describe(topics: Any) -> ClusterInfo:
    return ClusterInfo("here", {name: TopicInfo(name, "id", (0,)) for name in topics})


LAST = LastRecord(TopicPartition("events", 0), 500, timestamp_ms=5, append_time=False, key=b"k", value=b"v")


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record 500 is the last one of each batch."""
    monkeypatch.setattr(RangeEnds, "begin", lambda self, batch: lambda: PointRead([LAST]))


@pytest.fixture
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(request.node.nodeid)


def recording_in(store: MemoryStore, calls: list[int]) -> Recording:
    target = AnchorTarget("clicks", ClusterAccess.at("nowhere:1"), identity_from_spec(), store, now_ms=lambda: 99)
    return Recording(lambda batch, batch_id: calls.append(batch_id), Recorder(target, describe=describe))


def test_a_query_that_holds_records_back_fails_before_its_function_and_stores_nothing(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_back, "running_query", lambda batch: query(JOIN))
    calls: list[int] = []
    mine = recording_in(store, calls)
    with pytest.raises(ConfigError, match=r"clicks: the query has a join of two streams.*would skip") as caught:
        mine(BATCH, 7)
    assert "docs/how-to/stateful-failover.md" in str(caught.value.hint)
    assert (calls, store.read("clicks")) == ([], [])


def test_an_aggregation_in_update_mode_is_recorded(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_back, "running_query", lambda batch: query(Node(state="stateStoreSave"), "Update"))
    calls: list[int] = []
    recording_in(store, calls)(BATCH, 7)
    assert (calls, [row.stored.offset for row in store.read("clicks")]) == ([7], [501])


def test_a_checkpoints_query_may_hold_records_back(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_back, "running_query", lambda batch: query(JOIN))
    target = AnchorTarget("clicks", ClusterAccess.at("nowhere:1"), identity_from_spec(), "checkpoint:/c", store)
    recorder, kept = CheckpointRecorder(target, describe=describe), []
    monkeypatch.setattr(recorder, "batch", lambda batch_id, ends, gone=(): kept.append((batch_id, ends)))
    calls: list[int] = []
    Recording(lambda batch, batch_id: calls.append(batch_id), recorder)(BATCH, 7)
    assert (calls, kept) == ([7], [(7, [LAST])])
