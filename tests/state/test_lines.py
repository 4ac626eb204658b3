"""What is recorded of a job, as lines: out of one state store and into another one."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from reconciler.core.anchors import Anchor
from reconciler.core.errors import Changed, ConfigError
from reconciler.ports import TopicPartition
from reconciler.state import journal, locations, moving
from reconciler.state.jobs import JobState
from reconciler.state.journal import OUTSIDE, Entry, StreamPartition
from reconciler.state.lines import JobLines, append, dump, load, missing, newest
from reconciler.state.locations import Stamp
from reconciler.state.memory import MemoryState
from reconciler.state.plans import Numbers, Planned
from reconciler.state.store import StateStore
from reconciler.state.stored import Known, PlanRow, Stored
from tests.jobs.tracking.tracked import named

ANA, NOW = Stamp("ana", lambda: 1), 1_800_000_000_000
AT, OTHER = StreamPartition("events", "a", 0), StreamPartition("events", "a", 1)
KEY = TopicPartition("a.events", 0)


def empty() -> JobState:
    numbers = count()
    store = StateStore(MemoryState("memory:"), new_nonce=lambda: f"n{next(numbers)}")
    store.create()
    return JobState(store, "clicks")


@pytest.fixture
def job() -> JobState:
    """It was moved to b, has gone on there from 4 to 9, and is moving back."""
    job = empty()
    here = job.move_on(None, locations.first("a", ANA))
    record = Anchor(3, 5, b"id", None, "b", "b/events")
    row = PlanRow(4, record, 2, 1, frozenset({None}), Stored(7, named(6), 0, 0))
    here = job.move_on(here, locations.moving(here, "b", ANA))
    here = job.move_on(here, locations.writing(here, job.add_plan(Numbers("a", 1, "b", {AT: Planned(KEY, row)})), ANA))
    assert job.append_journal(2, 1, journal.opening({AT: row.first()}, "plan 1", NOW))
    here = job.move_on(here, locations.lives(here, "/checkpoint-2", ANA))
    known = {AT: Known(9, replace(record, offset=8)), OTHER: Known(3, None, again=1)}
    assert job.append_journal(2, 2, Entry("driver 1", NOW, known))
    job.move_on(here, locations.moving(here, "a", ANA))
    return job


def lines(job: JobState) -> list[str]:
    return list(dump(job.job, newest(job)))


def put(job: JobState, texts: list[str]) -> int:
    found = missing(job, load(texts)["clicks"])
    append(job, found, NOW)
    return found.count


def test_another_state_store_gets_all_that_counts(job: JobState) -> None:
    other, texts = empty(), lines(job)
    assert put(other, texts) == len(texts) == 1 + 2 + 2
    assert other.location() == job.location()
    assert other.plans() == job.plans()
    assert journal.latest(other.newest(2)) == journal.latest(job.newest(2))
    assert lines(other) == texts
    assert put(other, texts) == 0, "again, nothing is missing"
    here = other.location()
    assert here is not None
    back = moving.cancel(other, here, {}, lambda _: pytest.fail("no place is written"), ANA)
    assert (back.cluster, back.stay, back.plan, back.checkpoint) == ("b", 2, 1, "/checkpoint-2")


def test_a_kill_at_any_append_is_finished_by_the_next_import(job: JobState, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, most, append_one = lines(job), 0, StateStore.append
    for step in range(9):
        other, left = empty(), step

        def dies(self: StateStore, log: str, number: int, fields: object) -> bool:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            return append_one(self, log, number, fields)  # type: ignore[arg-type]

        with monkeypatch.context() as killed:
            killed.setattr(StateStore, "append", dies)
            try:
                put(other, texts)
            except KeyboardInterrupt:
                most = step
        here = other.location()
        assert here is None or here == job.location(), "no hook finds an earlier one"
        put(other, texts)
        assert lines(other) == texts
    assert most >= 4


def test_numbers_alone_go_into_the_journal_of_the_stay_and_end_no_driver(job: JobState) -> None:
    later = Known(12, Anchor(11, 9, None, None, "b", "b/events"))
    earlier = Known(6, Anchor(5, 6, None, None, "b", "b/events"))
    for known in (later, earlier):
        assert put(job, list(dump("clicks", JobLines(numbers={(2, AT): known})))) == 1
    entries = job.newest(2)
    assert {each.run for each in entries[1:]} == {"driver 1"}
    assert journal.latest(entries)[AT] == later, "the newest number stays the newest"
    known_now = {each.number: each for each in journal.known_of(entries, AT)}
    assert (known_now[6], known_now[12]) == (earlier, later)


def test_a_job_without_a_location_gets_the_journal_of_its_home() -> None:
    job, known = empty(), Known(5, named(4))
    assert put(job, list(dump("clicks", JobLines(numbers={(1, AT): known})))) == 1
    (entry,) = job.newest(1)
    assert (entry.run, entry.numbers) == (OUTSIDE, {AT: known})


@pytest.mark.parametrize(
    "wrong",
    [
        lambda found: replace_in(found.plans, 1, lambda each: replace(each, to="c")),
        lambda found: replace_in(found.locations, 5, lambda each: replace(each, by="bob")),
        lambda found: found.locations.update({6: replace(found.locations[5], number=6)}) or found.locations.pop(4),
        lambda found: replace_in(found.numbers, (2, AT), lambda each: replace(each, record=named(1))),
        lambda found: found.numbers.update({(1, AT): Known(7, named(6))}),
    ],
)
def test_what_contradicts_the_store_is_refused(job: JobState, wrong: object) -> None:
    found = newest(job)
    wrong(found)  # type: ignore[operator]
    with pytest.raises(Changed, match=r"Nothing was imported|differs from the lines"):
        missing(job, found)


def replace_in(table: dict, key: object, change: object) -> None:
    table[key] = change(table[key])  # type: ignore[operator]


def test_a_stay_that_has_ended_gets_no_number(job: JobState) -> None:
    job.close_journal(2, 6, "plan 2", NOW)
    with pytest.raises(Changed, match=r"Stay 2 .* has ended"):
        missing(job, JobLines(numbers={(2, AT): Known(12, None)}))
    assert put(job, lines(job)) == 0, "nothing is missing"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"format": "reconciler.anchors/2", "job": "clicks"}', "format is not"),
        ('{"format": "reconciler.anchors/1", "job": "clicks", "plan": 0, "entry": {}}', "plan"),
        ('{"format": "reconciler.anchors/1", "job": "clicks", "plan": 1, "entry": {}, "of": 1}', "of is not a field"),
        ('{"format": "reconciler.anchors/1", "job": "clicks", "location": 1, "entry": 3}', "entry is not"),
        ('{"format": "reconciler.anchors/1", "job": "clicks", "stay": 1, "stream": "x", "partition": 0}', "stream"),
    ],
)
def test_a_line_that_export_does_not_write_is_refused_by_its_number(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"Line 2 of the anchor lines: .*{problem}"):
        load(["", text])


def test_a_line_that_repeats_another_is_refused(job: JobState) -> None:
    texts = lines(job)
    with pytest.raises(ConfigError, match="is in a line before this one"):
        load([*texts, texts[-1]])
