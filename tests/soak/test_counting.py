"""What the soak's count lets come again: each record more than that fails it."""

from __future__ import annotations

from collections import Counter

from reconciler.core.anchors import Anchor
from reconciler.ports import TopicPartition
from reconciler.state.journal import StreamPartition
from reconciler.state.plans import Numbers, Planned
from reconciler.state.stored import PlanRow, Stored
from tests.soak.counting import Log, Place, again, delivered_late, not_stored, shown


def log(ids: str, topic: str = "events") -> Log:
    """A log of one partition with these records: a letter each, its copies at all places where it is."""
    return {name: [Place(topic, 0, at) for at, other in enumerate(ids) if other == name] for name in ids}


def plan(number: int, *, left_at: int, comes_again: int) -> Numbers:
    row: PlanRow[Anchor] = PlanRow(0, None, comes_again, 0, frozenset(), Stored(left_at, None, 0, 0))
    return Numbers(
        "a", 1, "b", {StreamPartition("events", "a", 0): Planned(TopicPartition("a.events", 0), row)}, None, number
    )


def test_again_counts_every_copy_but_the_first() -> None:
    assert again(Counter("abcab")) == 2


def test_what_a_mirror_sends_after_the_plan_may_come_again() -> None:
    assert delivered_late(known="abc", then=log("ab"), now=log("abcc")) == 2


def test_an_unread_record_may_come_as_often_as_it_is_there() -> None:
    assert delivered_late(known="a", then=log("abb"), now=log("abbb")) == 2


def test_copies_that_were_there_at_the_plan_are_the_plans() -> None:
    assert delivered_late(known="ab", then=log("aabb"), now=log("aabbc")) == 0


def test_only_the_plans_of_this_move_are_shown_and_a_repeated_one_once() -> None:
    plans = {
        each.number: each
        for each in (plan(1, left_at=0, comes_again=9), *(plan(n, left_at=0, comes_again=4) for n in (2, 3)))
    }
    assert shown(plans, before=1) == 4


def test_work_beyond_the_stored_number_of_its_partition_may_come_again() -> None:
    left = log("abcd", topic="a.events")
    plans = {1: plan(1, left_at=4, comes_again=0), 2: plan(2, left_at=2, comes_again=0)}
    assert not_stored("abc", plans, left, {"a": "a.events"}) == 1
