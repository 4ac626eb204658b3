"""When a read is answered: late by a busy cluster, whose silence says nothing about the size of a fetch; and at once by
topics that the client has not read before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer

from reconciler.kafka import reader as module
from reconciler.kafka.connection import Connection
from reconciler.kafka.reader import FETCH_BYTES, KafkaLogReader
from reconciler.kafka.records import DRIP_S, STALL, STALL_S, FetchWait
from reconciler.ports import ReadRequest
from tests.kafka.mock_cluster import OTHERS, PLACE, mock_cluster


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with mock_cluster() as address:
        yield address


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The fetch sizes that were tried. Each look at the reader's clock finds it later than a stall may last."""
    tried: list[int] = []
    consumer_of = Connection.consumer

    def consumer(self: Connection, properties: Mapping[str, Any]) -> Consumer:
        tried.append(properties["max.partition.fetch.bytes"])
        return consumer_of(self, properties)

    monkeypatch.setattr(Connection, "consumer", consumer)
    monkeypatch.setattr(module, "monotonic", count(step=2 * STALL_S).__next__)
    return tried


def test_a_broker_that_answers_late_is_read_with_one_client(bootstrap: str, sizes: list[int]) -> None:
    """A far broker needs longer than a stall for its connection alone."""
    with closing(KafkaLogReader({"bootstrap.servers": bootstrap, "log_level": 0}, timeout_s=100_000)) as reader:
        (chunk,) = reader.read([ReadRequest(PLACE, 3, 1)])
    assert [record.value for record in chunk.records] == [b"value 3"]
    assert sizes == [FETCH_BYTES[1]]


def test_further_topics_are_read_without_waiting_for_the_clients_timer(bootstrap: str) -> None:
    """By itself the client looks for their leaders once a second, so each of these reads took that second."""
    took_s = []
    with closing(KafkaLogReader({"bootstrap.servers": bootstrap, "log_level": 0})) as reader:
        for place in (PLACE, *OTHERS):
            began = monotonic()
            (chunk,) = reader.read([ReadRequest(place, 3, 1)])
            took_s.append(monotonic() - began)
            assert [record.value for record in chunk.records] == [b"value 3"]
    assert min(took_s[1:]) < STALL_S


# ---------------------------------------------------------------- how long a fetch waits, by a clock that is set

WAIT_S = 10.0


@dataclass
class Fetch:
    """A fetch of 100 partitions; ``answered`` have a record or an end."""

    last: bool = False
    now_s: float = 0.0
    answered: int = 0
    wait: FetchWait = field(init=False)

    def __post_init__(self) -> None:
        self.wait = FetchWait(100, WAIT_S, last=self.last, clock=lambda: self.now_s)

    def news(self, at_s: float, answered: int) -> bool:
        self.now_s, self.answered = at_s, answered
        return self.wait.on_news(lambda: self.answered)

    def is_over(self, at_s: float) -> bool:
        self.now_s = at_s
        return self.wait.is_over(lambda: self.answered < 100)


def test_silence_from_the_start_lasts_as_long_as_any_answer_may() -> None:
    fetch = Fetch()
    assert not fetch.is_over(WAIT_S)
    assert fetch.is_over(WAIT_S + 0.1)


def test_after_an_answer_silence_is_short() -> None:
    fetch = Fetch()
    assert not fetch.news(0.01, 40)
    assert not fetch.is_over(0.01 + STALL_S)
    assert fetch.is_over(0.02 + STALL_S)


def test_over_a_slow_link_it_is_as_many_times_longer_as_the_first_answer_was_and_never_longer_than_any_may() -> None:
    for first_s, stall_s in ((2.0, STALL * 2.0), (8.0, WAIT_S)):
        fetch = Fetch()
        fetch.news(first_s, 40)
        assert not fetch.is_over(first_s + stall_s)
        assert fetch.is_over(first_s + stall_s + 0.1)


def test_without_a_larger_fetch_partitions_that_have_not_answered_are_waited_for() -> None:
    fetch = Fetch(last=True)
    fetch.news(0.01, 99)
    assert not fetch.is_over(WAIT_S)
    fetch.answered = 100
    assert fetch.is_over(0.02 + STALL_S)


@pytest.mark.parametrize(
    ("answered", "drips"),
    [([10, 11], True), ([10, 20], False), ([10, 10], False)],
    ids=["one in a while", "many", "none more"],
)
def test_answers_that_only_drip_in_need_a_larger_fetch(answered: list[int], drips: bool) -> None:
    fetch, at_s = Fetch(), 0.0
    fetch.news(at_s, answered[0])
    assert not fetch.news(at_s + DRIP_S + 0.01, answered[0]), "the first count has none to compare with"
    assert fetch.news(at_s + 2 * (DRIP_S + 0.01), answered[1]) is drips


def test_without_a_larger_fetch_they_are_waited_for() -> None:
    fetch = Fetch(last=True)
    fetch.news(0.0, 10)
    assert not any(fetch.news(number * (DRIP_S + 0.01), 10 + number) for number in range(1, 9))
