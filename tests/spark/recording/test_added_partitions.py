"""Partitions and topics that come while a query runs: what ``watch`` saw of the source does not have them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from typing import Any

import pytest

from reconciler.core.anchors import fingerprint
from reconciler.core.errors import Refused, Unreachable
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import ClusterInfo, TopicPartition
from reconciler.spark.identity_columns import BatchIdentity
from reconciler.spark.recording.checkpoint import CheckpointRecorder
from reconciler.spark.recording.looking_up import Observed
from reconciler.spark.recording.observing import Observer
from reconciler.spark.recording.store import Recorder
from reconciler.spark.recording.watched import Matching, Watched
from reconciler.spark.target import AnchorTarget, ClusterAccess
from reconciler.stores.memory import MemoryStore
from tests.spark.recording.test_observing_rules import GROUP, METRIC, Ends, hear_in_vain, report_of

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
    def describe(topics: Iterable[str]) -> ClusterInfo:
        return log.describe(topics)

    target = AnchorTarget(GROUP, ClusterAccess.at("nowhere:1"), BatchIdentity(), store, now_ms=lambda: 99)
    mine = Observer(None, Recorder(target, describe=describe), payload=True)  # type: ignore[arg-type]
    mine._units[METRIC] = "ms"
    mine._recorder.cluster.having({"events"})
    return mine


def observing_texts(store: MemoryStore, log: MemoryLog, *, pattern: str | None = None) -> Observer:
    """One as ``watch`` leaves it where Spark looks for the last records: its text names partition 0."""
    mine = observer(store, log)
    topics: Any = frozenset({"events"}) if pattern is None else Matching(re.compile(pattern))
    mine._observed[METRIC] = Observed(topics, frozenset({OLD}))
    return mine


def reaching(batch: int, **ends: int) -> dict[str, Any]:
    """A report of a batch whose text names partition 0 only."""
    reached: Ends = {("events", 0): 10 * batch}
    reached |= {(name.replace("_", "-")[:-2], int(name[-1])): end for name, end in ends.items()}
    return report_of(batch, {("events", 0): 10 * batch}, reached)


def offsets(store: MemoryStore) -> dict[TopicPartition, int]:
    return {row.key: row.stored.offset for row in store.read(GROUP)}


def test_a_partition_that_was_added_gets_a_row_where_spark_looks_for_last_records(
    store: MemoryStore, log: MemoryLog
) -> None:
    mine = observing_texts(store, log)
    for batch in range(1, 4):
        mine._hear(reaching(batch, events_1=100 * batch))
        assert offsets(store) == {OLD: 10 * batch, NEW: 100 * batch}
    anchor = {row.key: row.stored.anchor for row in store.read(GROUP)}[NEW]
    assert anchor is not None
    assert (anchor.offset, anchor.fingerprint, anchor.cluster_id) == (299, fingerprint(b"k299", b"v299"), "here")
    assert mine.trouble is None


def test_a_silent_partition_that_was_added_is_looked_up_once(
    store: MemoryStore, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = observing_texts(store, log)
    mine._hear(reaching(1, events_1=100))
    monkeypatch.setattr(ClusterAccess, "reader", lambda self, **how: pytest.fail("it is known"))
    mine._hear(reaching(2, events_1=100))
    assert offsets(store) == {OLD: 20, NEW: 100}


def test_a_row_that_could_not_be_stored_is_looked_up_again(store: MemoryStore, log: MemoryLog) -> None:
    mine = observing_texts(store, log)
    hear_in_vain(mine, store, reaching(1, events_1=100))
    assert offsets(store) == {}
    mine._hear(reaching(2, events_1=100))
    assert offsets(store) == {OLD: 20, NEW: 100}


def test_a_recreated_topic_gives_no_old_offset_to_an_added_partition(store: MemoryStore, log: MemoryLog) -> None:
    mine = observing_texts(store, log)
    log.delete("events")
    log.create("events", 2, "another id")
    for number in range(500):
        log.partition("events", 1).append(1_000 + number, b"n%d" % number, b"w%d" % number)
    mine._hear(reaching(1, events_1=100))
    assert offsets(store) == {}


@pytest.mark.parametrize("error", [Refused("You may not read it."), Unreachable("It is away.")])
def test_an_added_partition_that_cannot_be_looked_up_is_named_once_and_hides_no_other(
    store: MemoryStore,
    log: MemoryLog,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    mine = observing_texts(store, log)
    with monkeypatch.context() as broken, caplog.at_level(logging.WARNING):
        broken.setattr(ClusterAccess, "reader", lambda self, **how: (_ for _ in ()).throw(error))
        mine._hear(reaching(1, events_1=100))
        mine._hear(reaching(2, events_1=200))
    assert offsets(store) == {OLD: 20}
    assert caplog.text.count("events-1, added since the query began, is not stored for group clicks yet") == 1
    mine._hear(reaching(3, events_1=200))
    assert offsets(store) == {OLD: 30, NEW: 200}


def test_a_topic_that_comes_later_and_fits_the_expression_gets_a_row(store: MemoryStore, log: MemoryLog) -> None:
    mine = observing_texts(store, log, pattern=r"events(-\d+)?")
    mine._hear(reaching(1, events_2_0=100, more_0=7))
    assert offsets(store) == {OLD: 10, LATER: 100}


@pytest.mark.parametrize("seen", [False, True])
def test_a_topic_that_only_another_cluster_has_is_not_taken_for_one_that_came_later(
    store: MemoryStore, log: MemoryLog, *, seen: bool
) -> None:
    """The query has a second source, on another cluster, which is not watched."""
    mine = observing_texts(store, log, pattern=r"(a\.)?events")
    if seen:
        mine._watched[METRIC] = Watched(mine._observed.pop(METRIC).topics, committed_only=False)
    mine._hear(reaching(1, **{"a.events_0": 40}))
    assert offsets(store) == {OLD: 10}
    assert mine.trouble is None


# ---------------------------------------------------------------- a checkpoint's anchors


def of_checkpoint(store: MemoryStore, log: MemoryLog, *, seen: bool) -> Observer:
    """One that keeps the anchors of a checkpoint, for a watch of the topic events."""
    target = AnchorTarget(GROUP, ClusterAccess.at("nowhere:1"), BatchIdentity(), "checkpoint:/c", store)
    mine = Observer(None, CheckpointRecorder(target, describe=log.describe), payload=True)  # type: ignore[arg-type]
    mine._units[METRIC] = "ms"
    mine._recorder.cluster.having({"events"})
    if seen:
        mine._watched[METRIC] = Watched(frozenset({"events"}), committed_only=False)
    else:
        mine._observed[METRIC] = Observed(frozenset({"events"}), frozenset({OLD}))
    return mine


def reading_on(batch: int, **steps: int) -> dict[str, Any]:
    """As ``reaching``, with the starts: every batch reads as many records of a partition."""

    def after(number: int) -> str:
        offsets: dict[str, dict[str, int]] = {}
        for name, step in {"events_0": 10, **steps}.items():
            offsets.setdefault(name.replace("_", "-")[:-2], {})[name[-1]] = number * step
        return json.dumps(offsets)

    return {**reaching(batch), "sources": [{"startOffset": after(batch - 1), "endOffset": after(batch)}]}


def anchored(store: MemoryStore) -> dict[TopicPartition, tuple[int, int | None]]:
    """By partition, the offset that the anchor was made for, and that of its record."""
    rows = {row.key: row.stored for row in store.read(GROUP)}
    return {at: (row.offset, None if row.anchor is None else row.anchor.offset) for at, row in rows.items()}


@pytest.mark.parametrize(
    ("seen", "name", "at"),
    [(False, "events_1", NEW), (True, "events_2_0", LATER)],
    ids=["an added partition", "a source that is not watched"],
)
def test_in_a_checkpoint_an_anchor_that_no_report_names_moves_with_every_batch(
    store: MemoryStore, log: MemoryLog, seen: bool, name: str, at: TopicPartition
) -> None:
    mine = of_checkpoint(store, log, seen=seen)
    for batch in range(1, 4):
        mine._hear(reading_on(batch, **{name: 50}))
        assert anchored(store) == {OLD: (10 * batch, 10 * batch - 1), at: (50 * batch, 50 * batch - 1)}


def test_an_anchor_that_cannot_be_looked_up_is_not_passed_on_to_a_later_offset(
    store: MemoryStore, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = of_checkpoint(store, log, seen=False)
    mine._hear(reading_on(1, events_1=100))
    with monkeypatch.context() as broken:
        broken.setattr(ClusterAccess, "reader", lambda self, **how: (_ for _ in ()).throw(Unreachable("It is away.")))
        mine._hear(reading_on(2, events_1=100))
    assert anchored(store) == {OLD: (20, 19), NEW: (100, 99)}, "made for 100, it lags behind the checkpoint's 200"
    mine._hear(reading_on(3, events_1=100))
    assert anchored(store)[NEW] == (300, 299)


def test_in_a_checkpoint_an_anchor_is_not_carried_over_records_that_retention_took_before_they_were_looked_up(
    store: MemoryStore, log: MemoryLog
) -> None:
    mine = of_checkpoint(store, log, seen=True)
    mine._hear(reading_on(1))
    log.partition("events", 0).delete_before(25)
    mine._hear(reading_on(2))
    assert anchored(store) == {OLD: (10, 9)}, "made for 10, it lags behind the checkpoint's 20"
    mine._hear(reading_on(3))
    assert anchored(store) == {OLD: (30, 29)}


@pytest.mark.parametrize("seen", [False, True])
def test_in_a_checkpoint_an_anchor_is_not_carried_over_a_batch_of_a_topic_that_was_recreated(
    store: MemoryStore, log: MemoryLog, *, seen: bool
) -> None:
    """The former topic's records are gone, and the new one's were not read; partition 1 may be one that was added."""
    mine = of_checkpoint(store, log, seen=seen)
    mine._hear(reading_on(1, events_1=50))
    log.delete("events")
    log.create("events", 2, "another id")
    for number in range(1_000):
        log.partition("events", number % 2).append(2_000, b"n%d" % number, b"w%d" % number)
    mine._hear(reading_on(2, events_1=50))
    assert anchored(store) == {OLD: (10, 9), NEW: (50, 49)}, "made for those, they lag behind the checkpoint"
    mine._hear(reading_on(3, events_1=50))
    assert anchored(store) == {OLD: (30, 29), NEW: (150, 149)}
