"""How long a fetch waits for partitions that have not answered, at a clock that the test sets."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from reconciler.kafka.waiting import DRIP_S, STALL, STALL_S, FetchWait

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
