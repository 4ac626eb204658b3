"""The source of a watched frame, and what the offsets in a report say of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reconciler.core.errors import ConfigError
from reconciler.ports import TopicPartition
from reconciler.spark.last_records import OffsetSpan
from reconciler.spark.recording.batch_range import SourceRange
from reconciler.spark.recording.range_ends import spans
from reconciler.spark.recording.watched import Matching, Watched, ranges_of, source_of


class Leaf:
    """A source in a plan, as the JVM shows it."""

    def __init__(
        self, kind: str = "StreamingRelationV2", name: str = "kafka", streams: bool = True, **options: str
    ) -> None:
        self.kind, self.name, self.streams = kind, name, streams
        self.options = {"kafka.bootstrap.servers": "kafka-2:9092", **options}

    def isStreaming(self) -> bool:
        return self.streams

    def getClass(self) -> Any:
        return self

    def getSimpleName(self) -> str:
        return self.kind

    def sourceName(self) -> str:
        return self.name

    def extraOptions(self) -> dict[str, str]:
        return self.options


class Frame:
    """A frame with these sources."""

    def __init__(self, *leaves: Leaf) -> None:
        self.leaves = leaves
        self._jdf = self

    def queryExecution(self) -> Any:
        return self

    analyzed = collectLeaves = queryExecution

    def size(self) -> int:
        return len(self.leaves)

    def apply(self, number: int) -> Leaf:
        return self.leaves[number]


def test_a_kafka_source_is_seen() -> None:
    table = Leaf("LocalRelation", streams=False)
    ends = {("o", 0): 0}
    assert source_of(Frame(Leaf(), table), ["o"]) == SourceRange({}, ends, "kafka-2:9092", committed_only=False)
    committed = Leaf(**{"kafka.isolation.level": "read_committed"})
    assert source_of(Frame(committed), ["o"]) == SourceRange({}, ends, "kafka-2:9092", committed_only=True)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (object(), "Spark Connect"),
        (Frame(Leaf(), Leaf()), "not that of one Kafka source"),
        (Frame(Leaf(name="rate")), "not that of one Kafka source"),
        (Frame(Leaf("StreamingRelation")), "not that of one Kafka source"),
        (Frame(None), "this version of Spark"),  # type: ignore[arg-type]
    ],
)
def test_any_other_source_is_refused(frame: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        source_of(frame, ["o"])


def test_a_reports_offsets_are_those_of_the_watched_topics() -> None:
    watched = [Watched(frozenset({"o"}), False), Watched(frozenset({"p"}), True)]
    both = {("o", 0): 5, ("p", 0): 7, ("q", 0): 9}
    behind = ({("o", 0): 1}, {("o", 0): 3})
    found = ranges_of([({("o", 0): 1, ("p", 0): 7}, both), behind, (None, None)], watched)
    assert spans(found) == {TopicPartition("o", 0): OffsetSpan(1, 3)}
    fresh = ranges_of([(None, both)], watched)
    assert spans(fresh) == {
        TopicPartition("o", 0): OffsetSpan(0, 5),
        TopicPartition("p", 0): OffsetSpan(0, 7, committed_only=True),
    }


def test_an_expression_names_every_topic_in_whose_name_spark_finds_it() -> None:
    watched = [Watched(Matching(re.compile("events$")), committed_only=False)]
    ends = {("events", 0): 5, ("a.events", 0): 6, ("events-dlq", 0): 7}
    assert spans(ranges_of([({}, ends)], watched)) == {
        TopicPartition("events", 0): OffsetSpan(0, 5),
        TopicPartition("a.events", 0): OffsetSpan(0, 6),
    }


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_sources_on_one_topic_only_what_both_have_read_is_named(order: int) -> None:
    """A record of an aborted transaction, which one of them leaves out, is in no mirror that leaves it out, too."""
    both = [Watched(frozenset({"o"}), committed_only=True), Watched(frozenset({"o"}), committed_only=False)]
    reported = [({("o", 0): 1}, {("o", 0): 5})] * 2
    assert spans(ranges_of(reported, both[::order])) == {TopicPartition("o", 0): OffsetSpan(1, 5, committed_only=True)}
