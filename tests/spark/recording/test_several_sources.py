"""Two Kafka sources of one query that read the same partition: the one that is behind decides, or nothing is stored.

Both formats of Spark's offset log: v2, which named sources need (4.2), has no sequence of offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.core.errors import ConfigError, ExitCode
from reconciler.ports import ClusterInfo, TopicInfo, TopicPartition
from reconciler.spark.identity_columns import BatchIdentity, LastRecord
from reconciler.spark.recording import batch_range, foreach_batch, held_back
from reconciler.spark.recording.checkpoint import CheckpointRecorder
from reconciler.spark.recording.foreach_batch import Recording
from reconciler.spark.recording.store import Recorder
from reconciler.spark.target import AnchorTarget, ClusterAccess
from reconciler.stores.memory import MemoryStore
from tests.spark.recording.test_held_back import Node, query
from tests.spark.recording.world import Sequenced

AT = TopicPartition("events", 0)
BATCH: Any = SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: None))


class Unsupported(Exception):
    """What Py4J raises where Spark throws an UnsupportedOperationException."""


def kind(name: str) -> Any:
    return lambda: SimpleNamespace(getSimpleName=lambda: name)


def some(value: Any) -> Any:
    return SimpleNamespace(isDefined=lambda: True, isEmpty=lambda: False, get=lambda: value)


def source(end: int) -> Any:
    return some(SimpleNamespace(json=lambda: f'{{"events":{{"0":{end}}}}}'))


def offset_seq(*ends: int) -> Any:
    """As in format v1 (``OffsetSeq``)."""
    return SimpleNamespace(getClass=kind("OffsetSeq"), offsets=lambda: Sequenced(source(end) for end in ends))


def offset_map(*ends: int) -> Any:
    """As in format v2 (``OffsetMap``, by javap and in a running query of 4.2.1): ``values`` have no order."""

    def offsets() -> Any:
        raise Unsupported("OffsetMap does not support sequence-based offsets access. Use offsetsMap directly.")

    values = SimpleNamespace(toSeq=lambda: Sequenced(source(end) for end in ends))
    return SimpleNamespace(
        getClass=kind("OffsetMap"), offsets=offsets, offsetsMap=lambda: SimpleNamespace(values=lambda: values)
    )


def running(planned: Any, *, sources: int = 2, logged: int = 7) -> Any:
    """A query in its batch 7, whose offset log is at batch ``logged``."""
    made, leaf = query(Node()), SimpleNamespace(isStreaming=lambda: True)
    table = SimpleNamespace(isStreaming=lambda: False)
    made.lastExecution().currentBatchId = lambda: 7
    made.lastExecution().logical = lambda: SimpleNamespace(collectLeaves=lambda: Sequenced([leaf] * sources + [table]))
    entry = SimpleNamespace(_1=lambda: logged, _2=lambda: planned)
    made.offsetLog = lambda: SimpleNamespace(getLatest=lambda: some(entry))
    return made


class Read(BatchIdentity):
    """The batch has records 0 to 9 of one source, and 0 to 2 of another."""

    def check(self, batch: Any) -> None: ...

    def last_records(self, batch: Any) -> list[LastRecord]:
        last = min(10, *batch.ends.values(), 10) - 1
        return [LastRecord(AT, last, timestamp_ms=5, append_time=False, key=b"k", value=b"v")]


@pytest.fixture
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    def up_to(batch: Any, ends: Mapping[tuple[str, int], int]) -> Any:
        return SimpleNamespace(ends=ends)

    monkeypatch.setattr(foreach_batch, "up_to", up_to)
    return MemoryStore(request.node.nodeid)


def runs(monkeypatch: pytest.MonkeyPatch, now: Any) -> None:
    for module in (batch_range, held_back):
        monkeypatch.setattr(module, "running_query", lambda batch: now)


def recording_in(store: Any, calls: list[int], *, processed: Any = "received") -> Recording:
    def describe(topics: Any) -> ClusterInfo:
        return ClusterInfo("here", {name: TopicInfo(name, "id", (0,)) for name in topics})

    target = AnchorTarget("clicks", ClusterAccess.at("nowhere:1"), Read(), store, now_ms=lambda: 99)
    recorder = Recorder(target, describe=describe)
    return Recording(lambda batch, number: calls.append(number), recorder, cache=False, processed=processed)


@pytest.mark.parametrize("planned", [offset_seq, offset_map])
@pytest.mark.parametrize("processed", ["read", "received"])
def test_of_two_sources_in_one_partition_the_one_that_is_behind_is_stored(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, planned: Any, processed: str
) -> None:
    runs(monkeypatch, running(planned(10, 3)))
    recording_in(store, [], processed=processed)(BATCH, 7)
    assert [row.stored.offset for row in store.read("clicks")] == [3]


LATE = running(offset_map(10, 3), logged=6)
UNKNOWN = running(SimpleNamespace(getClass=kind("SomethingNew")))


@pytest.mark.parametrize("now", [LATE, UNKNOWN])
@pytest.mark.parametrize("processed", ["read", "received"])
def test_nothing_is_done_or_stored_while_the_ends_of_several_sources_are_unknown(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, now: Any, processed: str
) -> None:
    runs(monkeypatch, now)
    calls: list[int] = []
    with pytest.raises(ConfigError, match=r"clicks: the query has several sources, and .*could skip") as caught:
        recording_in(store, calls, processed=processed)(BATCH, 7)
    assert caught.value.exit_code is ExitCode.USAGE
    assert 'store="checkpoint:PATH"' in str(caught.value.hint)
    assert (calls, store.read("clicks")) == ([], [])


@pytest.mark.parametrize("planned", [offset_seq(10), SimpleNamespace(getClass=kind("SomethingNew"))])
def test_a_query_of_one_source_is_stored_without_a_look_into_the_offset_log(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, planned: Any
) -> None:
    runs(monkeypatch, running(planned, sources=1, logged=6))
    recording_in(store, [])(BATCH, 7)
    assert [row.stored.offset for row in store.read("clicks")] == [10]


def test_a_checkpoint_has_each_sources_own_offset_and_needs_no_common_one(monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, LATE)
    target = AnchorTarget("clicks", ClusterAccess.at("nowhere:1"), Read(), "checkpoint:/c", MemoryStore("mine"))
    mine = Recording(lambda batch, number: None, CheckpointRecorder(target), processed="received")
    assert mine._shared_ends(BATCH) == {}
