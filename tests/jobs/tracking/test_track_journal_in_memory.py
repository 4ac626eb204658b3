"""The journal that tracking from outside keeps of a job with a location, over logs and stores in memory."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.config.streams import Stream
from reconciler.core.anchors import RECORD_TIME_ONLY, Anchor, StoredOffset
from reconciler.core.errors import NeedsPerson, Unreachable
from reconciler.jobs.tracking.beside import WAITS_S, OutsideRecorder
from reconciler.jobs.tracking.journals import ELSEWHERE
from reconciler.jobs.tracking.recorder import Moved, Position, StayRecorder
from reconciler.jobs.tracking.source import SourceLog
from reconciler.jobs.tracking.track import Tracker
from reconciler.kafka.mirror.reading import NAMED
from reconciler.places.memory import MemoryStore
from reconciler.places.registry import open_store
from reconciler.ports import UNKNOWN_PARTITION, Change, Malformed, Row, TopicPartition
from reconciler.state import journal
from reconciler.state.journal import FULL_EVERY, OUTSIDE
from reconciler.state.locations import Phase, first
from reconciler.state.plans import Numbers, Planned
from reconciler.state.stored import Known, PlanRow, Stored
from tests.failover.checkpoint.checkpoint_files import Files
from tests.in_memory import GROUP, NOW, Memory
from tests.jobs.tracking.tracked import EVENTS, STREAM, GroupStore, Tracked, named
from tests.kafka.mirror.written import CHECKPOINTS, write_checkpoints
from tests.places.bare_memory import BareStore

STREAMS = {"events": Stream("events", "a")}
ONE_NAME = '[topics]\npolicy = "identity"\n'


def driver_of(world: Tracked, run: str = "driver 1") -> StayRecorder:
    source = SourceLog(lambda _: world.source, lambda _: False, RECORD_TIME_ONLY)
    return StayRecorder(world.job_state, world.here.stay, STREAMS, source, run)


def numbers(world: Tracked) -> list[int]:
    """The job's numbers in the journal, entry by entry."""
    return [each.numbers[STREAM].number for each in world.entries()]


def records(recorder: StayRecorder, number: int) -> None:
    """The driver is at that number, and appends it."""
    recorder.look({EVENTS: Position(number)})
    recorder.append(NOW)


@pytest.fixture
def world(memory: Memory, request: pytest.FixtureRequest) -> Tracked:
    world = Tracked(memory, BareStore(f"{request.node.nodeid}-bare"))
    world.make(range(20))
    return world


# ---------------------------------------------------------------- what is recorded


def test_a_job_is_followed(world: Tracked) -> None:
    tracker = world.tracker()
    for number in (3, 3, 8):
        world.job_stores(number)
        report = world.track(tracker)
        assert (report.exact, report.lagging, report.without, report.driver) == (1, {}, {}, "")
    assert numbers(world) == [3, 8]
    assert [each.numbers[STREAM].record for each in world.entries()] == [named(2), named(7)]
    assert {each.run for each in world.entries()} == {OUTSIDE}


def test_the_journal_of_a_job_that_has_no_location_counts_once_it_has_one(world: Tracked) -> None:
    world.here, here = first("a"), world.here
    world.job_stores(8)
    assert world.track().exact == 1
    world.here = here
    world.source.partition("events", 0).delete_before(9)
    assert (world.track().exact, world.kept()) == (1, Known(8, named(7)))


def test_a_journal_of_another_home_stops_a_job_world_a_location(world: Tracked) -> None:
    known = Known(5, replace(named(4), cluster_id="b", topic_id="b/events"))
    assert world.job_state.append_journal(1, 1, journal.opening({STREAM: known}, OUTSIDE, NOW))
    world.here = first("a")
    world.job_stores(8)
    (trouble,) = world.look().troubles.values()
    assert isinstance(trouble, NeedsPerson)
    assert "move --to a --job clicks" in (trouble.hint or "")
    assert numbers(world) == [5]


@pytest.mark.parametrize(
    ("elsewhere", "why"),
    [
        ({"phase": Phase.WRITING, "to": "b", "plan": 1}, "it is being moved to b now"),
        ({"cluster": "b"}, "it lives on b"),
    ],
)
def test_a_job_that_lives_elsewhere_gets_no_entry(world: Tracked, elsewhere: Mapping[str, Any], why: str) -> None:
    world.here = replace(world.here, **elsewhere)
    world.job_stores(8)
    tracker = world.tracker()
    assert world.look(tracker).jobs == ()
    assert (tracker.left_out, world.entries()) == ({"clicks": why}, [])


def test_a_number_whose_row_names_its_record_is_not_looked_up(memory: Memory) -> None:
    world = Tracked(memory, MemoryStore("rows with anchors"))
    world.save({0: StoredOffset(8, named(7))})
    assert world.track().exact == 1, "the log is empty"
    assert world.entries()[-1].numbers[STREAM] == Known(8, named(7))
    world.save({0: StoredOffset(9, replace(named(8), cluster_id="b"))})
    assert EVENTS in world.track().without
    assert numbers(world) == [8]


@pytest.mark.parametrize("partition", [1, UNKNOWN_PARTITION])
def test_a_row_that_cannot_be_read_hides_no_other(
    world: Tracked, monkeypatch: pytest.MonkeyPatch, partition: int
) -> None:
    world.job_stores(5)
    at = TopicPartition("events", partition)
    bad = Row(at, Malformed("It is not a number.", "Correct it."), "v")
    sound = world.store.read(GROUP)
    monkeypatch.setattr(world.store, "read", lambda *_: [bad, *sound, replace(sound[0], stored=StoredOffset(8))])
    report = world.track()
    assert "It is not a number." in report.without[at]
    assert (report.exact, numbers(world)) == (1, [5]), "of two positions, the lower one"


def test_the_end_of_a_batch_that_has_begun_is_beside_the_numbers(world: Tracked, tmp_path: Path) -> None:
    files = Files(tmp_path / "checkpoint")
    files.batch(0, {"events": {0: 4}})
    files.planned(1, {"events": {0: 9}})
    jobs = f'[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = ["events"]\noffsets = "checkpoint:{files.path}"\n'
    config = world.config(jobs=jobs)
    tracker = Tracker(config, config.jobs, replace(world.side(config), open_store=open_store))
    world.track(tracker)
    entry = world.entries()[-1]
    assert (entry.numbers[STREAM].record, entry.begun[STREAM].record) == (named(3), named(8))
    assert not entry.begun[STREAM].processed
    files.done(1)
    assert world.track(tracker).exact == 1
    assert numbers(world) == [4, 9]
    assert world.entries()[-1].numbers[STREAM].processed


# ---------------------------------------------------------------- whose number it is


def test_a_number_that_may_be_another_clusters_is_not_recorded(world: Tracked) -> None:
    """One name on both clusters, and rows world a stay: a driver that was not stopped may have written it."""
    world.came_back(6, replaced=2)
    tracker = world.tracker(ONE_NAME)
    world.job_stores(2)
    assert world.track(tracker).exact == 1, "it means the plan's number"
    world.job_stores(9)
    assert world.track(tracker).lagging == {EVENTS: ELSEWHERE}
    assert numbers(world) == [6]


def test_a_record_of_which_a_plan_knows_only_the_place_is_looked_up_once(world: Tracked) -> None:
    world.came_back(6, replaced=6)
    plan = world.job_state.add_plan(Numbers("b", 2, "a", {}))
    thin = Known(6, Anchor(5, cluster_id="a"), again=2)
    assert world.job_state.append_journal(3, 1, journal.opening({STREAM: thin}, f"plan {plan}", NOW))
    world.here = replace(world.here, stay=3, plan=plan)
    world.job_stores(6)
    for _ in range(2):
        world.track(tracker := world.tracker())
        world.track(tracker)
        assert [each.numbers[STREAM] for each in world.entries()] == [thin, Known(6, named(5), again=2)]


def test_the_record_of_a_plan_may_be_one_of_the_cluster_that_was_left(world: Tracked) -> None:
    row = PlanRow(
        6, replace(named(5), cluster_id="b", topic_id="b/events"), 0, 0, frozenset({6}), Stored(3, None, 0, 0)
    )
    world.came_back(6, replaced=6)
    plan = world.job_state.add_plan(Numbers("b", 2, "a", {STREAM: Planned(EVENTS, row)}))
    assert world.job_state.append_journal(3, 1, journal.opening({STREAM: row.first()}, f"plan {plan}", NOW))
    world.here = replace(world.here, stay=3, plan=plan)
    for number in (9, 12):
        world.job_stores(number)
        world.track()
        assert world.entries()[-1].numbers[STREAM] == Known(number, named(number - 1))


@pytest.mark.parametrize("anew", [{"cluster": "a2"}, {"topic": "another-id"}], ids=str)
def test_a_number_of_a_cluster_or_topic_that_was_made_anew_is_not_looked_up(
    world: Tracked, anew: Mapping[str, str]
) -> None:
    """The job is not moved by hand yet: its number may be one of before, at which another record is now."""
    world.job_stores(7)
    world.track()
    world.job_stores(12)
    if "cluster" in anew:
        world.source.cluster_id = anew["cluster"]
    else:
        world.source.create("events", 1, topic_id=anew["topic"])
        world.make(range(20, 40))
    assert world.track().lagging == {EVENTS: "the topic was recreated"}
    world.job_stores(13)
    world.track()
    assert world.entries()[-1].numbers[STREAM] == Known(13, named(6), older=6)


def test_a_number_whose_row_names_the_stay_is_recorded(memory: Memory) -> None:
    world = Tracked(memory, MemoryStore("rows with stays"))
    world.make(range(20))
    world.came_back(6, replaced=None)
    for number, stay, recorded in ((9, 2, [6, 9]), (4, 1, [6, 9])):
        there = {row.key: row.version for row in world.store.read(GROUP)}
        change = Change(EVENTS, there.get(EVENTS), StoredOffset(number), stay=stay)
        assert world.store.write(GROUP, [change], reason="job", now_ms=NOW).written
        world.track(world.tracker(ONE_NAME))
        assert numbers(world) == recorded


def test_a_row_of_a_later_stay_shows_an_old_copy_of_the_state_store(memory: Memory) -> None:
    world = Tracked(memory, MemoryStore("rows of a later stay"))
    tracker = world.tracker()
    assert not world.look(tracker).troubles
    assert world.store.write(GROUP, [Change(EVENTS, None, StoredOffset(9), stay=3)], reason="job", now_ms=NOW).written
    for each in (tracker, world.tracker()):
        (trouble,) = world.look(each).troubles.values()
        assert isinstance(trouble, NeedsPerson)


def test_a_number_that_a_mirror_has_committed_is_not_recorded(memory: Memory) -> None:
    world = Tracked(memory, GroupStore("group of a later stay"))
    world.make(range(20))
    world.came_back(6, replaced=6)
    write_checkpoints(world.source, (50, 9), group=GROUP, topic="events")
    jobs = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "kafka-group:"\n'
    tracker = world.tracker(f'[mirror]\ncheckpoints_topic = "{CHECKPOINTS}"\n', jobs)
    world.job_stores(9)
    assert world.track(tracker).lagging == {EVENTS: NAMED}
    assert numbers(world) == [6]
    world.job_stores(12)
    assert world.track(tracker).exact == 1
    assert numbers(world) == [6, 12]


def test_a_group_that_is_lost_with_its_cluster_keeps_its_journal(memory: Memory) -> None:
    """Its cluster does not answer, or comes back empty."""
    world = Tracked(memory, GroupStore("group of a lost cluster"))
    world.make(range(20))
    world.step = 15.0  # no call is made twice
    jobs = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "kafka-group:"\n'
    tracker = world.tracker(jobs=jobs)
    world.job_stores(5)
    world.track(tracker)
    for trouble in ("read kafka-group:", "describe"):
        world.job_stores(8)
        world.trouble.comes(trouble, *[Unreachable("It does not answer.")] * 100)
        assert world.look(tracker).troubles
        assert numbers(world) == [5]
        world.trouble.comes(trouble)
    world.job_stores(None)
    world.track(tracker)
    assert numbers(world) == [5]
    world.job_stores(9)
    assert world.track(tracker).exact == 1
    assert numbers(world) == [5, 9]


# ---------------------------------------------------------------- beside a driver


def test_a_driver_that_records_is_left_alone(world: Tracked) -> None:
    driver, tracker = driver_of(world), world.tracker()
    for number in (3, 5, 7):
        records(driver, number)
        world.job_stores(number)
        report = world.track(tracker)
        assert (report.exact, report.driver) == (1, "driver 1")
    world.job_stores(9)  # its entry comes in a moment
    assert world.track(tracker).lagging == {EVENTS: ""}
    assert {each.run for each in world.entries()} == {"driver 1"}
    assert numbers(world) == [3, 5, 7]


def test_what_a_driver_leaves_is_taken_over_and_ends_no_driver(world: Tracked) -> None:
    driver, tracker = driver_of(world), world.tracker()
    records(driver, 3)
    world.job_stores(5)
    world.track(tracker)
    world.seconds += WAITS_S
    assert world.track(tracker).driver == ""
    world.job_stores(6)
    world.track(tracker)
    assert numbers(world) == [3, 5, 6], "the next one is not waited for"
    records(driver, 8)  # it was only slow
    world.job_stores(9)
    assert world.track(tracker).driver == "driver 1"
    assert numbers(world) == [3, 5, 6, 8]
    records(driver_of(world, "driver 2"), 9)
    with pytest.raises(Moved):
        records(driver, 11)


def test_once_nothing_is_waited_for(world: Tracked) -> None:
    records(driver_of(world), 3)
    world.job_stores(5)
    config = world.config()
    assert world.track(Tracker(config, config.jobs, replace(world.side(config), waits_s=0.0))).exact == 1
    assert numbers(world) == [3, 5]


def test_a_number_that_was_read_before_the_drivers_entry_is_dropped(world: Tracked) -> None:
    driver, tracker = driver_of(world), outside(world)
    records(driver, 3)
    tracker.begin(world.job_state.journal(1))
    records(driver, 7)
    assert not tracker.may_note(0.0, lacks=tracker.lacks(EVENTS, Position(5)))
    assert tracker.may_note(1.0, lacks=tracker.lacks(EVENTS, Position(8)))


def outside(world: Tracked) -> OutsideRecorder:
    source = SourceLog(lambda _: world.source, lambda _: False, RECORD_TIME_ONLY)
    return OutsideRecorder(world.job_state, 1, STREAMS, source, waits_s=0.0)


class Beside:
    """Drivers and trackers of one stay, in any order; the place has the newest number of the newest driver."""

    def __init__(self, folder: Path) -> None:
        world = Memory(None, MemoryStore(uuid.uuid4().hex), folder)  # type: ignore[arg-type]
        self.world = Tracked(world, BareStore(uuid.uuid4().hex))
        self.world.make(range(60))
        self.drivers: list[StayRecorder] = []
        self.trackers = [outside(self.world), outside(self.world)]
        self.number, self.seconds = 1, 0.0
        for each in self.trackers:
            each.begin([])

    def starts(self) -> None:
        self.drivers.append(driver_of(self.world, f"driver {len(self.drivers)}"))
        self.records(len(self.drivers) - 1)

    def records(self, driver: int) -> None:
        self.number += 1
        is_newest = driver >= len(self.drivers) - 1
        try:
            if self.drivers:
                records(self.drivers[min(driver, len(self.drivers) - 1)], self.number)
        except Moved:
            assert not is_newest, "no tracker ends a driver"

    def tracks(self, tracker: int) -> None:
        self.number, self.seconds = self.number + 1, self.seconds + 1
        recorder, now = self.trackers[tracker], {EVENTS: Position(self.number)}
        if recorder.may_note(self.seconds, lacks=recorder.lacks(EVENTS, now[EVENTS])):
            recorder.look(now)
        recorder.append_at(self.seconds, NOW)


@example(["starts", *["tracks 0"] * 3, *["records 0"] * 9])
@example(["tracks 0", "tracks 0", "tracks 1", "tracks 1"] * 9)
@given(
    st.lists(st.sampled_from(["starts", "records 0", "records 1", "records 9", "tracks 0", "tracks 1"]), max_size=40)
)
def test_in_whatever_order_drivers_and_trackers_append_no_tracker_ends_a_driver(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    found = Beside(tmp_path_factory.getbasetemp())
    ended: set[str] = set()
    for step in steps:
        name, _, which = step.partition(" ")
        getattr(found, name)(*([int(which)] if which else []))
    entries = found.world.job_state.journal(1)
    for at in range(len(entries)):
        window = entries[at : at + FULL_EVERY]
        assert len(window) < FULL_EVERY or any(each.full for each in window), "J1"
        ended |= {each.run for each in entries[:at]} - {entries[at].run}
        assert entries[at].run not in ended, "a run that has ended comes back"
    for each in entries:
        known = each.numbers.get(STREAM)
        assert known is None or known.record == named(known.number - 1)
