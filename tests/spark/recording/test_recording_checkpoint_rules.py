"""Anchors for a checkpoint: which are believed at every step of a batch, after kills, repetitions and losses."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.identity import identity_from_spec
from reconciler.ports import ClusterInfo, TopicInfo, TopicPartition
from reconciler.spark.last_records import LastRecord
from reconciler.spark.recording.checkpoint import CheckpointRecorder
from reconciler.spark.target import AnchorTarget, ClusterAccess
from reconciler.stores.memory import MemoryStore
from reconciler.stores.registry import open_store

A, B = TopicPartition("events", 0), TopicPartition("events", 1)
GROUP = "clicks"


class Query:
    """A checkpoint as Spark writes it, and the anchors beside it."""

    def __init__(self, place: Path, name: str) -> None:
        self.path, self.anchors = place / "checkpoint", f"memory:{name}"
        for folder in ("offsets", "commits", "sources/0"):
            (self.path / folder).mkdir(parents=True)
        (self.path / "metadata").write_text('{"id":"q"}')
        (self.path / "sources/0/0").write_bytes(b'\0v1\n{"events":{"0":0,"1":0}}')
        self.recorder = self.restarted()

    def restarted(self) -> CheckpointRecorder:
        self.recorder = CheckpointRecorder(self.target(self.anchors), describe=describe)
        self.recorder.open()
        return self.recorder

    def target(self, anchors: str | MemoryStore) -> AnchorTarget:
        store = f"checkpoint:{self.path}"
        return AnchorTarget(GROUP, ClusterAccess.at("x:1"), identity_from_spec(), store, anchors, now_ms=lambda: 99)

    def plan(self, number: int, a: int, b: int) -> None:
        text = f'v1\n{{"batchTimestampMs":5}}\n{{"events":{{"0":{a},"1":{b}}}}}'
        (self.path / f"offsets/{number}").write_text(text)

    def run(self, number: int, *ends: LastRecord, gone: Iterable[TopicPartition] = ()) -> None:
        self.recorder.batch(number, ends, gone=frozenset(gone))

    def commit(self, number: int) -> None:
        (self.path / f"commits/{number}").write_text("v1\n{}")

    def row(self, at: TopicPartition = A) -> tuple[int, int | None, int | None]:
        """Stored offset, the anchor's record and the lag, as every command reads them."""
        rows = {row.key: row for row in open_store(f"checkpoint:{self.path}", anchors=self.anchors).read(GROUP)}
        anchor = rows[at].stored.anchor
        return rows[at].stored.offset, anchor and anchor.offset, rows[at].anchor_lag


def describe(topics: Iterable[str]) -> ClusterInfo:
    return ClusterInfo("here", {name: TopicInfo(name, "id", (0, 1)) for name in topics})


def last(offset: int, at: TopicPartition = A) -> LastRecord:
    return LastRecord(at, offset, timestamp_ms=5, append_time=False, key=b"k", value=b"%d" % offset)


@pytest.fixture
def query(tmp_path: Path, request: pytest.FixtureRequest) -> Query:
    return Query(tmp_path, request.node.nodeid.replace("/", "-"))


def test_a_batch_counts_from_its_commit_on_and_not_before(query: Query) -> None:
    query.plan(0, 10, 0)
    query.run(0, last(9))
    assert query.row() == (0, None, None), "batch 0 is not committed"
    query.commit(0)
    assert query.row() == (10, 9, 0)
    query.plan(1, 20, 0)
    query.run(1, last(19))
    assert query.row() == (10, 9, 0), "batch 1 failed, or still runs: batch 0 speaks"
    query.commit(1)
    assert query.row() == (20, 19, 0)


def test_anchors_settle_without_a_read_between_batches(query: Query) -> None:
    for number in range(3):
        query.plan(number, 10 * number + 10, 0)
        query.run(number, last(10 * number + 9))
        query.commit(number)
    query.plan(3, 40, 0)
    query.run(3, last(39))
    assert query.row() == (30, 29, 0), "batch 3 is not committed"


def test_an_end_after_a_marker_has_the_record_before_it(query: Query) -> None:
    query.plan(0, 13, 0)
    query.run(0, last(9))
    query.commit(0)
    assert query.row() == (13, 9, 0), "the gap holds no record, and is no lag"


def test_a_repeated_batch_changes_nothing(query: Query) -> None:
    query.plan(0, 10, 0)
    query.run(0, last(9))
    query.commit(0)
    query.plan(1, 20, 0)
    query.run(1, last(19))
    before = query.recorder.kept({"events"})
    query.restarted()
    query.run(1, last(19))
    assert query.recorder.kept({"events"}) == before, "the same versions: nothing was written"


def test_silent_partitions_are_carried_forward(query: Query) -> None:
    query.plan(0, 10, 8)
    query.run(0, last(9), last(7, B))
    query.commit(0)
    for number, end in ((1, 20), (2, 30)):
        query.plan(number, end, 8 + number)  # markers alone move B's end
        query.run(number, last(end - 1))
        query.commit(number)
    assert (query.row(A), query.row(B)) == ((30, 29, 0), (10, 7, 0))


def test_an_anchor_is_not_carried_over_records_that_are_gone(query: Query) -> None:
    """Spark had read them, so that the anchor before them lags by them."""
    query.plan(0, 10, 8)
    query.run(0, last(9), last(7, B))
    query.commit(0)
    query.plan(1, 20, 18)
    query.run(1, last(19), gone=[B])
    assert query.row(B) == (8, 7, 0), "batch 1 still runs"
    query.commit(1)
    assert (query.row(A), query.row(B)) == ((20, 19, 0), (18, 7, 10))
    query.plan(2, 30, 28)
    query.run(2, last(29), last(27, B))
    query.commit(2)
    assert query.row(B) == (28, 27, 0)


def test_a_partition_that_never_held_a_record_has_an_empty_anchor(query: Query) -> None:
    query.plan(0, 10, 0)
    query.run(0, last(9))
    query.commit(0)
    rows = {row.key: row.stored for row in open_store(f"checkpoint:{query.path}", anchors=query.anchors).read(GROUP)}
    assert rows[B] == StoredOffset(0, Anchor(cluster_id="here", topic_id="id"), rows[B].written_at_ms)


def test_a_record_of_a_source_that_is_ahead_is_not_the_anchor(query: Query) -> None:
    text = 'v1\n{}\n{"events":{"0":10,"1":0}}\n{"events":{"0":6,"1":0}}'
    (query.path / "offsets/0").write_text(text)
    query.run(0, last(9))
    query.commit(0)
    assert query.row() == (6, None, None), "record 9 is not the last one before 6"


def test_a_recording_of_another_query_is_refused(query: Query) -> None:
    query.plan(0, 10, 0)
    with pytest.raises(ConfigError, match=r"Batch 4 runs, and the checkpoint .* is at batch 0"):
        query.run(4, last(9))
    shutil.rmtree(query.path / "offsets")
    with pytest.raises(ConfigError, match="at no batch"):
        query.run(0, last(9))
