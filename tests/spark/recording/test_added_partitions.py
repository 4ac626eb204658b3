"""Topics that come while a query runs, and sources that are not watched."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reconciler.core.errors import Unreachable
from reconciler.identity import identity_from_spec
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import TopicPartition
from reconciler.spark.recording.checkpoint import CheckpointRecorder
from reconciler.spark.recording.observing import Observer
from reconciler.spark.recording.store import Recorder
from reconciler.spark.recording.watched import Matching, Watched
from reconciler.spark.target import AnchorTarget, ClusterAccess
from reconciler.stores.memory import MemoryStore
from tests.spark.recording.test_observing_rules import GROUP, METRIC, as_text, report

OLD, NEW, LATER = TopicPartition("events", 0), TopicPartition("events", 1), TopicPartition("events-2", 0)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    """The cluster after ``watch``: partition 1 and the topic events-2 were added."""
    made = MemoryLog("here", {"events": 2, "events-2": 1})
    for at in (OLD, NEW, LATER):
        for number in range(500):
            made.partition(at.topic, at.partition).append(1_000 + number, b"k%d" % number, b"v%d" % number)
    monkeypatch.setattr(ClusterAccess, "reader", lambda self, **how: made)
    return made


@pytest.fixture
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(request.node.nodeid)


def observer(store: MemoryStore, log: MemoryLog) -> Observer:
    """One for a store of rows, which watches a source by an expression."""
    target = AnchorTarget(GROUP, ClusterAccess.at("nowhere:1"), identity_from_spec(), store, now_ms=lambda: 99)
    mine = Observer(None, Recorder(target, describe=log.describe))  # type: ignore[arg-type]
    mine._watched[METRIC] = Watched(Matching(re.compile(r"(a\.)?events(-\d+)?")), committed_only=False)
    mine._recorder.cluster.having({"events"})
    return mine


def reading_on(batch: int, **steps: int) -> dict[str, Any]:
    """The report of a batch: every batch reads as many records of a partition, and ten of partition 0."""

    def after(number: int) -> str:
        reached = {"events_0": 10, **steps}
        return as_text({(name[:-2].replace("_", "-"), int(name[-1])): number * step for name, step in reached.items()})

    return {**report(batch, 0, 1), "sources": [{"startOffset": after(batch - 1), "endOffset": after(batch)}]}


def offsets(store: MemoryStore) -> dict[TopicPartition, int]:
    return {row.key: row.stored.offset for row in store.read(GROUP)}


def test_a_topic_that_comes_later_gets_a_row(store: MemoryStore, log: MemoryLog) -> None:
    mine = observer(store, log)
    mine._hear(reading_on(1, events_1=100, events_2_0=50, more_0=7))
    assert offsets(store) == {OLD: 10, NEW: 100, LATER: 50}
    assert mine.trouble is None


def test_a_topic_that_only_another_cluster_has_is_not_taken_for_one_that_came_later(
    store: MemoryStore, log: MemoryLog
) -> None:
    """The query has a second source, on another cluster, which is not watched."""
    mine = observer(store, log)
    mine._hear(reading_on(1, **{"a.events_0": 40}))
    assert offsets(store) == {OLD: 10}
    assert mine.trouble is None


# ---------------------------------------------------------------- a checkpoint's anchors


def of_checkpoint(store: MemoryStore, log: MemoryLog) -> Observer:
    """One that keeps the anchors of a checkpoint, for a watch of the topic events."""
    target = AnchorTarget(GROUP, ClusterAccess.at("nowhere:1"), identity_from_spec(), "checkpoint:/c", store)
    mine = Observer(None, CheckpointRecorder(target, describe=log.describe))  # type: ignore[arg-type]
    mine._recorder.cluster.having({"events"})
    mine._watched[METRIC] = Watched(frozenset({"events"}), committed_only=False)
    return mine


def anchored(store: MemoryStore) -> dict[TopicPartition, tuple[int, int | None]]:
    """By partition, the offset that the anchor was made for, and that of its record."""
    rows = {row.key: row.stored for row in store.read(GROUP)}
    return {at: (row.offset, None if row.anchor is None else row.anchor.offset) for at, row in rows.items()}


def test_in_a_checkpoint_an_anchor_of_a_source_that_is_not_watched_moves_with_every_batch(
    store: MemoryStore, log: MemoryLog
) -> None:
    mine = of_checkpoint(store, log)
    for batch in range(1, 4):
        mine._hear(reading_on(batch, events_2_0=50))
        assert anchored(store) == {OLD: (10 * batch, 10 * batch - 1), LATER: (50 * batch, 50 * batch - 1)}


def test_an_anchor_that_cannot_be_looked_up_is_not_passed_on_to_a_later_offset(
    store: MemoryStore, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = of_checkpoint(store, log)
    mine._hear(reading_on(1, events_2_0=100))
    with monkeypatch.context() as broken:
        broken.setattr(mine, "_last_before", lambda places: {})
        mine._hear(reading_on(2, events_2_0=100))
    assert anchored(store) == {OLD: (20, 19), LATER: (100, 99)}, "made for 100, it lags behind the checkpoint's 200"
    mine._hear(reading_on(3, events_2_0=100))
    assert anchored(store)[LATER] == (300, 299)


def test_a_cluster_that_is_away_leaves_the_anchors_of_a_source_that_is_not_watched(
    store: MemoryStore, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(cluster: ClusterAccess, **how: Any) -> MemoryLog:
        raise Unreachable("It is away.")

    monkeypatch.setattr(ClusterAccess, "reader", away)
    assert of_checkpoint(store, log)._last_before({OLD: 10}) == {}


def test_in_a_checkpoint_an_anchor_is_not_carried_over_records_that_retention_took_before_they_were_looked_up(
    store: MemoryStore, log: MemoryLog
) -> None:
    mine = of_checkpoint(store, log)
    mine._hear(reading_on(1))
    log.partition("events", 0).delete_before(25)
    mine._hear(reading_on(2))
    assert anchored(store) == {OLD: (10, 9)}, "made for 10, it lags behind the checkpoint's 20"
    mine._hear(reading_on(3))
    assert anchored(store) == {OLD: (30, 29)}


def test_in_a_checkpoint_an_anchor_is_not_carried_over_a_batch_of_a_topic_that_was_recreated(
    store: MemoryStore, log: MemoryLog
) -> None:
    """The former topic's records are gone, and the new one's were not read."""
    mine = of_checkpoint(store, log)
    mine._hear(reading_on(1, events_1=50))
    log.delete("events")
    log.create("events", 2, "another id")
    for number in range(1_000):
        log.partition("events", number % 2).append(2_000, b"n%d" % number, b"w%d" % number)
    mine._hear(reading_on(2, events_1=50))
    assert anchored(store) == {OLD: (10, 9), NEW: (50, 49)}, "made for those, they lag behind the checkpoint"
    mine._hear(reading_on(3, events_1=50))
    assert anchored(store) == {OLD: (30, 29), NEW: (150, 149)}
