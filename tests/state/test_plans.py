"""The numbers of a move: read back as written, and undone exactly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import Anchor
from reconciler.core.json_fields import FieldError
from reconciler.ports import TopicPartition
from reconciler.state import plans
from reconciler.state.journal import StreamPartition
from reconciler.state.plans import Numbers, Planned
from reconciler.state.stored import PlanRow, Stored

SMALL = st.integers(0, 9)
ANCHORS = st.none() | st.builds(Anchor, offset=SMALL, timestamp_ms=SMALL)
LEFT = st.builds(
    lambda number, record, again, older: Stored(number, record, again, again + older), SMALL, ANCHORS, SMALL, SMALL
)
ROWS = st.builds(PlanRow, SMALL, ANCHORS, SMALL, SMALL, st.frozensets(st.none() | SMALL), LEFT)
AT = [StreamPartition("events", "a", 0), StreamPartition("events", "b", 0)]
ON_A = {AT[0]: TopicPartition("events", 0), AT[1]: TopicPartition("b.events", 0)}
ON_B = {AT[0]: TopicPartition("a.events", 0), AT[1]: TopicPartition("events", 0)}
PLANS = st.builds(
    lambda one, two: Numbers("a", 1, "b", {at: Planned(ON_B[at], row) for at, row in zip(AT, (one, two), strict=True)}),
    ROWS,
    ROWS,
)


@given(PLANS)
def test_a_plan_reads_back_as_it_was_written(plan: Numbers) -> None:
    fields = json.loads(json.dumps(plans.dump(plan)))
    assert plans.load(0, {**fields, "nonce": "n"}) == plan


@given(PLANS, st.dictionaries(st.sampled_from(list(ON_A.values())), SMALL))
def test_giving_back_gives_exactly_what_was_left(plan: Numbers, held: dict[TopicPartition, int]) -> None:
    back = plans.give_back(plan, 2, ON_A, held)
    assert (back.leaves, back.to, back.stay) == ("b", "a", 2)
    for at, planned in back.rows.items():
        left = plan.rows[at].row.left
        assert (planned.key, planned.row.number, planned.row.record) == (ON_A[at], left.number, left.record)
        assert (planned.row.again, planned.row.older) == (left.again, left.older)
        assert held.get(planned.key) in planned.row.replaced
    exchanged = back.rows[AT[0]].row.replaced
    assert plan.rows[AT[1]].row.number in exchanged  # b's number of its own topic, which a's topic has the name of


@given(PLANS)
def test_a_move_knows_where_the_job_left(plan: Numbers) -> None:
    assert plans.left_at({1: plan}, "a", AT[0]) == [plan.rows[AT[0]].row.left]
    assert plans.left_at({1: plan}, "b", AT[0]) == []


@pytest.mark.parametrize(
    "change", [{"format": "numbers"}, {"rows": {}}, {"rows": [1]}, {"to": ""}, {"stay": -1}, {"x": 1}], ids=str
)
def test_what_is_not_a_plan_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(FieldError):
        plans.load(1, {**plans.dump(Numbers("a", 1, "b", {})), **change})
