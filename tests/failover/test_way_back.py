"""What comes again on a cluster where the job has been before, and what nobody has processed there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import Anchor
from reconciler.failover import way_back
from reconciler.ports import TopicPartition
from reconciler.state import plans
from reconciler.state.journal import StreamPartition
from reconciler.state.plans import Numbers, Planned
from reconciler.state.stored import PlanRow, Stored

AT = StreamPartition("events", "a", 0)


def left(number: int, again: int = 0, record: Anchor | None = None) -> Stored[Anchor]:
    return Stored(number, record, again, again)


def test_without_an_earlier_stay_only_what_is_ahead_of_the_anchor_comes_again() -> None:
    assert way_back.again([], 70, 70, 3) == 3
    assert list(way_back.unread_before([], 70)) == []


def test_what_an_earlier_stay_had_processed_beyond_the_resume_point_comes_again() -> None:
    """The job left a at 100 and ``behind`` was accepted on b, which had its records up to 70."""
    assert way_back.again([left(100)], 70, 70, 0) == 30
    assert way_back.again([left(100, again=4)], 70, 70, 2) == 36
    assert way_back.again([left(40), left(100), left(60)], 70, 70, 0) == 30


def test_records_that_an_earlier_stay_had_not_read_are_looked_at() -> None:
    assert way_back.unread_before([left(40), left(60)], 70) == range(60, 70)
    assert list(way_back.unread_before([left(100)], 70)) == []


def test_a_job_that_resumes_before_its_proven_offset_reads_what_lies_between_again() -> None:
    assert way_back.again([left(60)], 70, 62, 1) == 9


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5))), st.integers(0, 30), st.integers(0, 5))
def test_no_record_that_any_stay_can_have_processed_is_left_out(
    stays: list[tuple[int, int]], proven: int, ahead: int
) -> None:
    """Each stay had processed the offsets before where it was, and this one those before the proven offset."""
    lefts = [left(number, again) for number, again in stays]
    unread = way_back.unread_before(lefts, proven)
    for resume in {proven, *unread}:
        processed = {each for one in lefts for each in range(one.furthest)} | set(range(proven + ahead))
        assert len({each for each in processed if each >= resume}) <= way_back.again(lefts, proven, resume, ahead)
    assert all(each >= one.number for one in lefts for each in unread)


def test_a_topic_that_was_made_anew_has_numbers_of_its_own() -> None:
    before, now = (left(9, record=Anchor(8, cluster_id="A", topic_id=topic)) for topic in ("old", "new"))
    elsewhere, nothing = left(9, record=Anchor(8, cluster_id="B", topic_id="old")), left(0)
    lefts = [before, now, elsewhere, nothing]
    assert way_back.in_this_log(lefts, "A", "new") == [now, elsewhere, nothing]
    assert way_back.in_this_log(lefts, "A", None) == lefts


def test_the_plans_say_where_the_job_was_when_it_left() -> None:
    """a to b, and back: on a, the job had been at 100; b's plan resumed at 31."""

    def plan(leaves: str, to: str, number: int, was: Stored[Anchor]) -> Numbers:
        row = PlanRow(number, None, 0, 0, frozenset({None}), was)
        return Numbers(leaves, 1, to, {AT: Planned(TopicPartition("events", 0), row)})

    made = {1: plan("a", "b", 31, left(100)), 2: plan("b", "a", 70, left(35))}
    assert way_back.again(plans.left_at(made, "a", AT), 70, 70, 0) == 30
    assert way_back.again(plans.left_at(made, "b", AT), 33, 33, 0) == 2
