"""``hook --wait``: what it asks of the destination, and when it ends. A destination in memory, a clock that is set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked
from reconciler.failover.outside import ByHand, Outside
from reconciler.jobs.hook.starting import LONGEST_PAUSE_S, Waiting, check_or_wait
from reconciler.ports import TopicPartition
from tests.in_memory import NOW, Memory, found, stored


class CountingLog:
    """The log in memory: how often it was asked, and what it answers while it is away."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.descriptions = 0
        self.away: Unreachable | None = None

    def __getattr__(self, name: str) -> Any:
        if self.away is not None:
            raise self.away
        return getattr(self._log, name)

    def describe(self, topics: Any) -> Any:
        self.descriptions += 1
        return self.__getattr__("describe")(topics)


@dataclass
class Wait:
    """A wait in the test's hands: ``happens`` maps a pause's number to what happens in it."""

    memory: Memory
    log: CountingLog
    now: float = 0.0
    happens: dict[int, Callable[[], None]] = field(default_factory=dict)
    pauses: list[float] = field(default_factory=list)
    told: list[Waiting] = field(default_factory=list)
    deadline_over: bool = False

    def clock(self) -> float:
        self.now += 60.0 if self.deadline_over else 0.0
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        self.happens.get(len(self.pauses), lambda: None)()

    def begin(self, seconds: float, extra: str = "", by_hand: ByHand | None = None) -> Checked:
        config = self.memory.config(extra)
        outside = Outside(self.log, lambda _: self.memory.store, self.clock, lambda: NOW)
        return check_or_wait(
            config, config.jobs[0], outside, by_hand or ByHand(), seconds, pause=self.pause, tell=self.told.append
        )

    @property
    def checks(self) -> int:
        """A check describes its topics twice: before, and after."""
        return self.log.descriptions // 2


@pytest.fixture
def wait(memory: Memory) -> Wait:
    memory.deliver(range(4))
    memory.save({0: stored(6)})
    return Wait(memory, CountingLog(memory.log))


def test_a_destination_that_is_not_behind_is_checked_once(wait: Wait) -> None:
    wait.memory.deliver(range(4, 8))
    assert found(wait.begin(60).plan.jobs[0].partitions[0])[0] is Verdict.EXACT
    assert (wait.checks, wait.pauses, wait.told) == (1, [], [])


@pytest.mark.parametrize("policy", ["start", "wait", "stop"])
def test_whatever_the_policy_a_wait_ends_when_the_anchor_is_delivered(wait: Wait, policy: str) -> None:
    wait.happens = {3: lambda: wait.memory.deliver(range(4, 8))}
    checked = wait.begin(60, f'[policy]\nbehind = "{policy}"')
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.EXACT, 7)
    assert (len(wait.pauses), wait.told[-1].behind, wait.told[-1].waited_s) == (3, 0, 6.0)


def test_a_wait_ends_when_its_time_is_over_and_not_later(wait: Wait) -> None:
    assert found(wait.begin(5).plan.jobs[0].partitions[0])[0] is Verdict.BEHIND
    assert wait.pauses == [2.0, 2.0, 1.0]
    assert (wait.told[-1].behind, wait.told[-1].left_s) == (1, 0.0)


def test_a_row_that_is_corrected_meanwhile_is_seen_without_any_record(wait: Wait) -> None:
    wait.happens = {4: lambda: wait.memory.save({0: stored(2)})}
    checked = wait.begin(600)
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.EXACT, 3)


def test_the_pause_grows_with_what_a_check_takes(wait: Wait) -> None:
    """A fifth of the time is spent checking, at most; but a person's correction is seen within half a minute or so."""
    describe = wait.log.describe

    def slow(topics: Any) -> Any:
        wait.now += 1.5
        return describe(topics)

    wait.log.describe = slow  # type: ignore[method-assign]
    wait.begin(100)
    assert wait.pauses[0] == 12.0
    wait.pauses.clear()

    def very_slow(topics: Any) -> Any:
        wait.now += 60
        return describe(topics)

    wait.log.describe = very_slow  # type: ignore[method-assign]
    wait.begin(1_000)
    assert wait.pauses[0] == LONGEST_PAUSE_S


def test_how_far_the_mirror_is_behind_is_told_in_time(wait: Wait) -> None:
    wait.happens = {2: lambda: wait.memory.deliver(range(4, 6))}
    wait.begin(9)
    place = TopicPartition("a.events", 0)
    far = [(now.behind, now.partitions, now.by_ms, now.farthest) for now in wait.told]
    assert far[0] == (1, 1, 3_000, place), "record 3 is the newest there, and record 6 was the last processed"
    assert far[-1] == (1, 1, 1_000, place)
    assert [now.left_s for now in wait.told] == [9.0, 7.0, 5.0, 3.0, 1.0, 0.0]


def test_of_an_empty_partition_nothing_tells_how_far_it_is_behind(memory: Memory) -> None:
    memory.save({0: stored(6)})
    wait = Wait(memory, CountingLog(memory.log))
    wait.begin(3)
    assert (wait.told[0].behind, wait.told[0].by_ms, wait.told[0].farthest) == (1, None, None)


def test_a_partition_that_a_person_decided_about_is_not_waited_for(wait: Wait) -> None:
    wait.begin(60, by_hand=ByHand(accepted=frozenset({Verdict.BEHIND})))
    assert wait.pauses == []


def test_an_outage_during_the_wait_is_waited_out(wait: Wait) -> None:
    def goes() -> None:
        wait.log.away = Unreachable("The destination cannot be reached.")

    def is_back() -> None:
        wait.log.away = None
        wait.memory.deliver(range(4, 8))

    wait.happens = {2: goes, 5: is_back}
    checked = wait.begin(60)
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.EXACT, 7)
    assert [now.trouble is not None for now in wait.told] == [False, False, True, True, True, False]


def test_an_outage_that_outlasts_the_wait_is_its_error(wait: Wait) -> None:
    def goes() -> None:
        wait.log.away = Unreachable("The destination cannot be reached.")

    wait.happens = {2: goes}
    with pytest.raises(Unreachable, match="cannot be reached"):
        wait.begin(60)
    assert wait.now >= 60


def test_an_outage_before_anything_was_checked_is_not_waited_for(wait: Wait) -> None:
    """A wrong address shows at the deadline of the search, and the program that starts the hook starts it again."""
    wait.log.away = Unreachable("The destination cannot be reached.")
    wait.deadline_over = True
    with pytest.raises(Unreachable):
        wait.begin(60)
    assert wait.pauses == []


def test_other_partitions_verdicts_are_those_of_the_last_check(wide: Memory) -> None:
    for partition in range(3):
        wide.deliver(range(4), partition)
    wide.save({0: stored(6), 1: StoredOffset(3), 2: stored(2, 2)})
    wait = Wait(wide, CountingLog(wide.log), happens={1: lambda: wide.deliver(range(4, 8))})
    verdicts = [row.finding for row in wait.begin(60).plan.jobs[0].partitions]
    assert verdicts == [Verdict.EXACT, Verdict.UNRESOLVED, Verdict.EXACT]
