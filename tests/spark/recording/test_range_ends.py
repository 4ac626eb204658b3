"""Which offsets a batch's range has, the last record in it, and which batches are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.core.anchors import fingerprint
from reconciler.core.errors import ConfigError, Refused, Unreachable
from reconciler.identity import identity_from_spec
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import ReadRequest, TopicPartition
from reconciler.spark.last_records import LastRecord, OffsetSpan
from reconciler.spark.recording import range_ends
from reconciler.spark.recording.batch_range import SourceRange, source_ranges
from reconciler.spark.recording.range_ends import PointRead, RangeEnds, spans
from reconciler.spark.recording.store import SourceCluster
from reconciler.spark.target import AnchorTarget, ClusterAccess

HERE = "kafka-1:9092,kafka-2:9092"
AT = TopicPartition("events", 0)


def source(
    ends: dict[int, int], starts: dict[int, int] | None = None, topic: str = "events", **how: Any
) -> SourceRange:
    def numbered(offsets: dict[int, int]) -> dict[tuple[str, int], int]:
        return {(topic, number): offset for number, offset in offsets.items()}

    settings = {"servers": "kafka-2:9092", "committed_only": False, **how}
    return SourceRange(numbered(dict.fromkeys(ends, 0) if starts is None else starts), numbered(ends), **settings)


# ---------------------------------------------------------------- spans


def test_a_partition_without_new_offsets_has_no_span():
    assert spans([source({0: 5, 1: 9}, {0: 5, 1: 7})]) == {TopicPartition("events", 1): OffsetSpan(7, 9)}


def test_a_partition_that_is_new_to_the_query_begins_wherever_its_log_does():
    assert spans([source({0: 5}, {})]) == {AT: OffsetSpan(0, 5)}


def test_of_two_sources_in_one_partition_the_lower_end_counts():
    two = [source({0: 30}, {0: 20}), source({0: 10}, committed_only=True)]
    assert spans(two) == spans(reversed(two)) == {AT: OffsetSpan(0, 10, committed_only=True)}


def test_a_source_that_has_nothing_new_holds_the_others_back():
    """It has not read what they have: its records come in a later batch."""
    assert spans([source({0: 30, 1: 9}, {0: 20, 1: 7}), source({0: 10}, {0: 10})]) == {
        TopicPartition("events", 1): OffsetSpan(7, 9)
    }
    assert spans([source({0: 30}, {0: 20}), source({0: 25}, {0: 25})]) == {AT: OffsetSpan(20, 25)}


def test_only_the_topics_asked_for_have_spans():
    assert spans([source({0: 5}), source({0: 5}, topic="more")], frozenset({"events"})) == {AT: OffsetSpan(0, 5)}


# ---------------------------------------------------------------- the last record


@dataclass
class Lookup:
    """A recording's look-ups in a log in memory."""

    ends: RangeEnds
    asked: list[Any]

    def read(self) -> PointRead:
        return self.ends.begin(SimpleNamespace())()

    def last(self) -> Sequence[LastRecord]:
        return self.read().ends

    def offsets(self) -> dict[TopicPartition, int]:
        return {each.at: each.offset for each in self.last()}


@pytest.fixture
def lookup(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Lookup]:
    def made(log: MemoryLog, *sources: SourceRange, servers: str = HERE) -> Lookup:
        access = ClusterAccess.at(servers)
        asked: list[Any] = []
        monkeypatch.setattr(range_ends, "source_ranges", lambda batch: sources)
        monkeypatch.setattr(ClusterAccess, "reader", lambda self, **how: asked.append(how) or log)
        target = AnchorTarget("g", access, identity_from_spec(), "memory:")
        cluster = SourceCluster(access, describe=log.describe)
        return Lookup(RangeEnds(target, cluster, topics=None), asked)

    return made


def log_of(count: int, partitions: int = 1) -> MemoryLog:
    log = MemoryLog("a", {"events": partitions})
    for number in range(partitions):
        for n in range(count):
            log.partition("events", number).append(1_000 + n, b"k%d" % n, b"v%d" % n, (("id", b"h%d" % n),))
    return log


def test_the_last_record_of_the_range_is_read_whatever_came_after_it(lookup):
    (last,) = lookup(log_of(50), source({0: 20})).last()
    assert (last.at, last.offset, last.timestamp_ms, last.key, last.value) == (AT, 19, 1_019, b"k19", b"v19")
    assert last.headers == (("id", b"h19"),)
    anchor = identity_from_spec(id="header:id").anchor_of(last, cluster_id="a", topic_id="t")
    assert (anchor.id, anchor.fingerprint) == (b"h19", fingerprint(b"k19", b"v19"))


def test_a_frame_is_left_out_of_what_is_recorded_if_the_job_says_so(lookup):
    log = MemoryLog("a", {"events": 1})
    log.partition("events", 0).append(1_000, b"k", b"\0\0\0\0\7v")
    (last,) = lookup(log, source({0: 1})).last()
    anchors = [
        identity_from_spec(frame=frame).anchor_of(last, cluster_id="a", topic_id="t") for frame in ("none", "confluent")
    ]
    assert [anchor.fingerprint for anchor in anchors] == [fingerprint(b"k", last.value), fingerprint(b"k", b"v")]


def test_compacted_offsets_and_markers_at_the_end_are_stepped_over(lookup):
    log = log_of(40)
    log.partition("events", 0).compact(range(5, 38))
    log.partition("events", 0).append_marker(9_999)
    assert lookup(log, source({0: 41})).offsets() == {AT: 39}
    assert lookup(log, source({0: 38})).offsets() == {AT: 4}


def test_a_range_without_a_record_leaves_the_row_as_it_is(lookup):
    log = log_of(40)
    log.partition("events", 0).compact(range(10, 20))
    assert lookup(log, source({0: 20}, {0: 10})).offsets() == {}


def test_a_range_without_a_record_is_told_from_one_whose_records_are_gone(lookup):
    """Spark has read those: the anchor before the range is not that of its end."""
    log = log_of(40, 2)
    for number in range(2):
        log.partition("events", number).compact(range(12, 20))
    mine = lookup(log, source({0: 20, 1: 20}, {0: 10, 1: 12}))
    assert mine.read().gone == frozenset()
    for number in range(2):
        log.partition("events", number).delete_before(12)
    assert mine.read() == PointRead([], frozenset({AT}))


def test_a_log_that_was_cut_before_the_end_of_the_range_stores_nothing(lookup):
    assert lookup(log_of(10), source({0: 20})).offsets() == {}


def test_a_source_that_reads_committed_records_only_is_looked_up_so(lookup):
    log = log_of(5, 2)
    mine = lookup(log, source({0: 5}, committed_only=True), source({1: 5}))
    assert mine.offsets() == {AT: 4, TopicPartition("events", 1): 4}
    assert sorted(how["committed_only"] for how in mine.asked) == [False, True]


def test_records_of_a_recreated_topic_never_count_as_read(lookup, caplog):
    """The batch was planned in the former topic's numbers; the query has read none of the new topic's first 20."""
    log = log_of(20)
    log.create("more", 1, "more-0")
    log.partition("more", 0).append(1, b"k", b"v")
    batch = source({0: 20}), source({0: 1}, topic="more")
    mine = lookup(log, *batch)
    mine.ends._cluster.having({"events", "more"})
    log.delete("events")
    log.create("events", 1, "again")
    for n in range(40):
        log.partition("events", 0).append(5_000 + n, b"other", b"record")
    found = mine.read()
    assert ([end.at.topic for end in found.ends], found.gone) == (["more"], {AT})
    assert "events was deleted and recreated: this batch is not stored" in caplog.text
    assert mine.offsets() == {AT: 19, TopicPartition("more", 0): 0}, "the next batch is of the new topic"


class Recreating(MemoryLog):
    """A log whose topic is deleted and made again, with other records, during the first read."""

    recreated = False

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Any]:
        if not self.recreated:
            self.recreated = True
            self.delete("events")
            self.create("events", 1, "again")
            for n in range(20):
                self.partition("events", 0).append(5_000 + n, b"other", b"record")
        return super().read(requests)


def test_a_topic_that_is_recreated_during_the_look_up_stores_nothing(lookup):
    log = Recreating("a", {"events": 1})
    for n in range(20):
        log.partition("events", 0).append(1_000 + n, b"k", b"v")
    mine = lookup(log, source({0: 20}))
    mine.ends._cluster.having({"events"})
    assert mine.offsets() == {}
    assert mine.ends._cluster.having({"events"}).topics["events"].topic_id == "again"


# ---------------------------------------------------------------- batches that are refused


def test_other_addresses_must_lead_to_the_same_cluster(lookup, monkeypatch):
    said = iter([None, "b", "a"])
    monkeypatch.setattr(range_ends, "cluster_id", lambda batch, each: next(said))
    mine = lookup(log_of(5), source({0: 5}, servers="10.0.0.1:9092"))
    with pytest.raises(Unreachable, match=r"10\.0\.0\.1:9092 did not say its id"):
        mine.last()
    with pytest.raises(ConfigError, match=r"reads from 10\.0\.0\.1:9092, which is not the cluster at"):
        mine.last()
    assert mine.offsets() == mine.offsets() == {AT: 4}, "known from then on"


@pytest.mark.parametrize("servers", ["other:1, A", "PLAINTEXT://a:9092/", "A:9092"])
def test_one_address_in_two_spellings_is_one_cluster_without_a_question(lookup, monkeypatch, servers):
    monkeypatch.setattr(range_ends, "cluster_id", lambda batch, each: pytest.fail("it was asked"))
    assert lookup(log_of(5), source({0: 5}, servers=servers), servers="a:9092").offsets() == {AT: 4}


class Closed(MemoryLog):
    """A log that this user may describe and not read."""

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Any]:
        raise Refused("not allowed to read events")


def test_a_cluster_that_this_user_may_not_read_fails_the_batch(lookup):
    mine = lookup(Closed("a", {"events": 1}), source({0: 5}))
    with pytest.raises(Refused, match="not allowed to read events"):
        mine.last()


@pytest.mark.parametrize(
    ("batch", "why"), [(SimpleNamespace(), "Spark Connect"), (SimpleNamespace(_jdf=None), "this version of Spark")]
)
def test_a_range_that_is_not_seen_is_refused(batch, why):
    with pytest.raises(ConfigError, match=rf"cannot be learned.*{why}.*reconciler track"):
        source_ranges(batch)
