"""The rate limit on requests to the watched cluster's brokers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.kafka.rate_limit import LimitedReader, RateLimit
from reconciler.kafka.reader import AT_ONCE
from reconciler.ports import ReadRequest, TopicPartition
from tests.memory_log import MemoryLog


class Time:
    """A clock that moves only during sleep."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_seconds_worth_goes_out_at_once_and_then_no_more_than_agreed() -> None:
    time = Time()
    limit = RateLimit(10, time, time.sleep)
    for _ in range(10):
        limit.take(1)
    assert time.now == pytest.approx(1_000.0)
    for _ in range(50):
        limit.take(1)
    assert time.now == pytest.approx(1_005.0)
    assert limit.taken == 60
    assert limit.waited_s == pytest.approx(5.0)


def test_a_thread_that_waits_has_taken_its_requests() -> None:
    """Another one that asks meanwhile waits behind it: together they are no faster than one."""
    time = Time()
    others: list[float] = []

    def sleep(seconds: float) -> None:
        if not others:
            others.append(seconds)
            limit.take(1)
        time.slept.append(seconds)

    limit = RateLimit(1, time, sleep)
    limit.take(1)
    limit.take(1)
    assert time.slept == [pytest.approx(2.0), pytest.approx(1.0)]
    assert limit.taken == 3


def test_a_call_of_more_than_a_seconds_worth_is_paid_for_by_the_next_one() -> None:
    time = Time()
    limit = RateLimit(1, time, time.sleep)
    limit.take(3)
    assert time.slept == []
    limit.take(1)
    assert time.now == pytest.approx(1_003.0)


def test_a_rate_limit_does_not_hold_back_a_process_that_is_to_stop() -> None:
    time = Time()
    limit = RateLimit(1, time, lambda _: None)
    for _ in range(100):
        limit.take(1)
    assert time.now == 1_000.0


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(0, 3)), max_size=60), st.integers(1, 20))
def test_no_stretch_of_time_sees_more_than_its_share_and_one_seconds_worth(
    steps: list[tuple[int, float]], rate: int
) -> None:
    time, sent = Time(), []
    limit = RateLimit(rate, time, time.sleep)
    for requests, pause in steps:
        time.now += pause
        limit.take(requests)
        sent.append((time.now, requests))
    for index, (begin, _) in enumerate(sent):
        for end, _ in sent[index:]:
            within = sum(requests for at, requests in sent if begin <= at <= end)
            assert within <= rate * (end - begin) + rate + 5 + 1e-6  # 5: one call may be larger than a second's worth


def test_a_call_counts_the_requests_that_it_sends_to_one_broker() -> None:
    time = Time()
    limit = RateLimit(1_000, time, time.sleep)
    log = MemoryLog("b", {"events": 2})
    reader = LimitedReader(log, limit)
    one, other = TopicPartition("events", 0), TopicPartition("events", 1)
    log.partition("events", 0).append(1_000, b"k", b"v")

    def cost(call: object) -> int:
        before = limit.taken
        call()  # type: ignore[operator]
        return limit.taken - before

    assert cost(lambda: reader.describe(())) == 1
    assert cost(lambda: reader.describe(["events"])) == 3
    assert cost(lambda: reader.log_starts([one, other])) == 1
    assert cost(lambda: reader.log_ends([one, other])) == 1
    assert cost(lambda: reader.offsets_for_times([(one, 5), (other, 5)])) == 1
    assert cost(lambda: reader.offsets_for_times([(one, 5), (one, 9)])) == 2
    assert cost(lambda: reader.read([ReadRequest(one, 0, 1), ReadRequest(one, 1, 1), ReadRequest(other, 0, 1)])) == 2
    assert cost(lambda: reader.read([])) == 0
    log.partitions |= {TopicPartition("events", number): log.partition("events", 0) for number in range(AT_ONCE + 1)}
    many = list(log.partitions)
    assert cost(lambda: reader.log_ends(many)) == 2
    assert cost(lambda: reader.offsets_for_times([(place, 5) for place in [*many, one]])) == 3
    reader.close()


def test_a_log_that_is_read_apart_stays_one_behind_the_limit() -> None:
    expected: list[object] = []
    log = MemoryLog("b", {"events": 1})
    time = Time()
    limited = LimitedReader(log, RateLimit(1, time, time.sleep))
    limited.expect({})
    assert not limited.reads_apart
    log.reads_apart, log.expect = True, expected.append  # type: ignore[attr-defined]
    limited.expect({})
    assert (limited.reads_apart, expected) == (True, [{}])
