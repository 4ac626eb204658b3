"""A job's location, plans and journals over a store: what is refused, and what is found again."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.core.anchors import Anchor
from reconciler.core.errors import Changed, OutcomeUnknown, Refused
from reconciler.ports import TopicPartition
from reconciler.state import journal, locations
from reconciler.state.jobs import JobState
from reconciler.state.journal import KEPT, Entry, StreamPartition
from reconciler.state.locations import Phase, Stamp
from reconciler.state.plans import Numbers, Planned
from reconciler.state.store import open_state
from reconciler.state.stored import Known, PlanRow, Stored

ANA, BEN = Stamp("ana", lambda: 1), Stamp("ben", lambda: 2)
AT = StreamPartition("events", "a", 0)
HOUR_MS = 3600 * 1000


@pytest.fixture
def job() -> JobState:
    store = open_state(f"memory:{uuid.uuid4().hex}")
    store.create()
    return JobState(store, "clicks/eu")


def test_of_two_operators_one_moves_the_job(job: JobState) -> None:
    home = job.move_on(None, locations.first("a", ANA))
    moving = job.move_on(home, locations.moving(home, "b", ANA))
    with pytest.raises(Changed, match=r"clicks/eu"):
        job.move_on(home, locations.moving(home, "c", BEN))
    assert job.location() == moving
    assert [each.phase for each in job.history()] == [Phase.LIVES, Phase.MOVING]
    with pytest.raises(Changed):
        job.move_on(None, locations.first("a", BEN))


def test_plans_are_numbered_and_found_again(job: JobState) -> None:
    row = PlanRow(7, Anchor(6), 0, 0, frozenset({None}), Stored(12, Anchor(11), 0, 0))
    plan = Numbers("a", 1, "b", {AT: Planned(TopicPartition("a.events", 0), row)})
    assert [job.add_plan(plan), job.add_plan(plan)] == [1, 2]
    assert job.plan(2).rows == plan.rows
    with pytest.raises(Refused, match="lost plan 3"):
        job.plan(3)


def test_a_journal_knows_its_days_after_it_was_pruned(job: JobState) -> None:
    recorder = journal.Recorder("run")
    for hour in range(24 * 20):
        recorder.note({AT: Known(hour + 1, Anchor(hour))})
        entry = recorder.next_entry(hour * HOUR_MS)
        assert entry is not None
        assert job.append_journal(2, hour + 1, entry)
        recorder.appended(entry)
    entries = job.journal(2)
    assert journal.latest(job.newest(2))[AT].number == 24 * 20
    assert len(entries) <= KEPT + journal.KEPT_DAYS + journal.FULL_EVERY
    days = {each.at_ms // (24 * HOUR_MS) for each in entries}
    assert len(days) >= journal.KEPT_DAYS
    assert job.journal(1) == []


def test_a_second_recorder_is_refused(job: JobState) -> None:
    assert job.append_journal(1, 1, Entry("first", 0, {}, full=True))
    assert not job.append_journal(1, 1, Entry("second", 0, {}))
    assert [each.run for each in job.newest(1)] == ["first"]


def test_a_journal_that_a_recorder_extends_each_time_is_not_closed(job: JobState) -> None:
    append = job.store.append

    def too_late(log: str, number: int, fields: Mapping[str, Any]) -> bool:
        append(log, number, journal.dump(Entry("zombie", 0, {})))
        return append(log, number, fields)

    job.store.append = too_late  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown, match="a driver records it"):
        job.close_journal(1, 2, "plan 1", 0)
    assert {each.run for each in job.newest(1)} == {"zombie"}


def test_an_entry_of_another_format_is_named(job: JobState) -> None:
    job.store.append("location/clicks%2Feu", 1, {"format": "reconciler.location/2"})
    with pytest.raises(Refused, match=r"Entry 1 of location/clicks%2Feu"):
        job.location()
