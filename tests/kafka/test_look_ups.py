"""Look-ups of the offsets of many partitions: the client library's own work grows faster than they do."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from reconciler.core.errors import Unreachable
from reconciler.kafka.connection import Connection
from reconciler.kafka.reader import AT_ONCE, END, START, KafkaLogReader
from reconciler.ports import ReadRequest, TopicPartition


class Client:
    """Answers each look-up in an order of its own, with the partition's number, and beyond it by what was asked."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def offsets_for_times(self, asked: Sequence[KafkaPartition], timeout: float) -> list[KafkaPartition]:
        assert timeout > 0
        self.sizes.append(len(asked))
        return [KafkaPartition(each.topic, each.partition, each.partition + each.offset) for each in reversed(asked)]


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (0, []),
        (1, [1]),
        (AT_ONCE, [AT_ONCE]),
        (2 * AT_ONCE + 1, [AT_ONCE, AT_ONCE, 1]),
    ],
)
def test_many_partitions_are_looked_up_in_several_calls(
    count: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    monkeypatch.setattr(KafkaLogReader, "_consumer", lambda *_: client)
    reader = KafkaLogReader({"bootstrap.servers": "none"})
    places = [TopicPartition("events", number) for number in range(count)]
    for which, edges in ((START, reader.log_starts), (END, reader.log_ends)):
        client.sizes.clear()
        assert edges(places) == {place: place.partition + which for place in places}
        assert client.sizes == sizes
    client.sizes.clear()
    assert reader.offsets_for_times([(place, 10**12) for place in places]) == [10**12 + n for n in range(count)]
    assert client.sizes == sizes


def answered(content: object) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(content, Exception):
        future.set_exception(content)
    else:
        future.set_result(content)
    return future


@pytest.mark.parametrize(
    ("answer", "compacted"),
    [
        ({"cleanup.policy": SimpleNamespace(value="compact,delete")}, True),
        ({"cleanup.policy": SimpleNamespace(value="delete")}, False),
        (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), None),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), Unreachable),
    ],
)
def test_a_policy_that_nobody_told_in_time_is_not_taken_for_one_that_may_not_be_read(
    answer: object, compacted: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is not known, a gap counts as compaction, and a row beside it as right."""
    topic = SimpleNamespace(partitions=[SimpleNamespace(id=0)], topic_id="id")
    admin = SimpleNamespace(
        describe_topics=lambda *_, **__: {"events": answered(topic)},
        describe_configs=lambda asked, **_: {resource: answered(answer) for resource in asked},
    )
    monkeypatch.setattr(KafkaLogReader, "_administration", lambda _: admin)
    monkeypatch.setattr(Connection, "cluster_id", lambda *_: "c")
    reader = KafkaLogReader({"bootstrap.servers": "none"})
    if compacted is Unreachable:
        with pytest.raises(Unreachable, match='look up the settings of topic "events"'):
            reader.describe(["events"])
    else:
        assert reader.describe(["events"]).topics["events"].compacted is compacted


def test_the_leaders_of_many_topics_are_looked_up_in_several_calls() -> None:
    client, kind = Client(), (1, "read_uncommitted")
    reader = KafkaLogReader({"bootstrap.servers": "none"})
    reader._consumers[kind] = client  # type: ignore[assignment]
    reader._topics[kind] = {"topic-0"}
    reader._find_leaders(kind, [ReadRequest(TopicPartition(f"topic-{n}", 0), 0, 1) for n in range(2 * AT_ONCE + 2)])
    assert client.sizes == [AT_ONCE, AT_ONCE, 1]
