"""Failovers of tracked offsets, over logs and stores in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.formats.plan import PartitionPlan, parse_plan
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import Change, TopicPartition
from reconciler.stores.memory import MemoryStore
from reconciler.tracking.overwritten import OTHERS
from reconciler.tracking.track import Tracker
from tests.in_memory import BASE, BEGIN, GROUP, NOW, Memory, content, found
from tests.stores.paired.bare import BareStore, Faults, Faulty, Killed
from tests.tracking.tracked import ANCHORED, EVENTS, GroupStore, Tracked, named

ONE_NAME = '[topics]\npolicy = "identity"\n'


@pytest.fixture
def world(memory: Memory, request: pytest.FixtureRequest) -> Tracked:
    return Tracked(memory, BareStore(f"{request.node.nodeid}-bare"))


@pytest.fixture
def group(memory: Memory, request: pytest.FixtureRequest) -> Tracked:
    return Tracked(memory, GroupStore(f"{request.node.nodeid}-group"))


# ---------------------------------------------------------------- failing over


def test_a_tracked_job_fails_over_to_the_record_behind_its_last_one(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(7)
    world.track()
    world.deliver(range(3, 10))
    row = world.row()
    assert found(row) == (Verdict.MOVED, 4)
    assert (row.stored_offset, row.replay_exact, row.record_offset) == (7, 0, 3)
    world.apply()
    assert {row.key.topic: row.stored.offset for row in world.store.read(GROUP)} == {"events": 7, "a.events": 4}
    checked = world.check()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, 4)
    assert not checked.to_write


def test_a_job_that_went_on_at_the_destination_is_left_where_it_is(world: Tracked) -> None:
    """No tracker runs there: the pair lags, in the destination's own numbers."""
    world.make(range(10))
    world.job_stores(7)
    world.track()
    world.deliver(range(3, 10))
    world.apply()
    world.job_stores(6, topic="a.events")
    checked = world.check()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, 6)
    assert not checked.to_write


def test_a_job_that_was_started_at_an_empty_log_is_left_where_it_is(world: Tracked) -> None:
    """No record stands before that start, so its anchor names the numbering alone."""
    world.make(range(10))
    world.job_stores(5)
    world.track()
    assert found(world.row()) == (Verdict.BEHIND, 0)
    world.apply()
    world.deliver(range(10))
    world.job_stores(9, topic="a.events")
    checked = world.check()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, 9)
    assert not checked.to_write
    world.log.create("a.events", 1, "another")
    world.deliver(range(5, 10))
    assert found(world.row()) == (Verdict.UNRESOLVED, None)


def test_a_job_that_was_started_at_the_beginning_of_a_log_with_fewer_partitions_is_left_where_it_is(
    world: Tracked,
) -> None:
    world.source.create("events", 3)
    world.log.create("a.events", 2)
    for partition in range(3):
        world.make(range(10), partition)
    for partition in (0, 2):
        world.job_stores(5, partition)
    world.track()
    for partition in range(2):
        world.deliver(range(10), partition)
    assert [found(row) for row in world.job().partitions] == [(Verdict.REMAPPED, 0), (Verdict.REMAPPED, 0)]
    world.apply()
    for partition in range(2):
        world.job_stores(10, partition, topic="a.events")
    assert [found(row) for row in world.job().partitions] == [(Verdict.MATCH, 10), (Verdict.MATCH, 10)]
    assert not world.check().to_write


def test_the_beginning_of_the_sources_log_tells_nothing_of_what_the_job_has_read_since(world: Tracked) -> None:
    world.job_stores(0)
    world.track()
    world.make(range(10))
    world.job_stores(7)
    world.deliver(range(10))
    row = world.row()
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert "its anchor was made for offset 0, with no record before it" in row.detail
    world.trouble.comes("log", *[Unreachable("It is away.")] * 99)
    world.step = 15  # a second try is behind the deadline
    config = world.config(ANCHORED)
    side = replace(world.side(), stopping=lambda: world.seconds > 50)
    (job,) = Tracker(config, config.jobs, side).round().jobs
    assert (job.exact, dict(job.lagging), len(job.without)) == (0, {}, 1)


def test_the_rows_time_places_what_the_job_has_read_since_the_beginning_of_the_sources_log(world: Tracked) -> None:
    """The plan keeps the anchor, which names no record: ``apply`` compares the store's row with it."""
    world.job_stores(0)
    world.track()
    world.make(range(10))
    world.job_stores(7)
    world.deliver(range(10))
    by_time = '[policy]\nno_anchor = "row-time"\n'
    plan = world.check(by_time).plan
    (row,) = plan.jobs[0].partitions
    assert (found(row), row.by_row_time) == ((Verdict.BOUNDED, 0), True)
    assert parse_plan(plan.to_text()) == plan
    world.apply(by_time)
    assert found(world.row(by_time)) == (Verdict.MATCH, 0)


@pytest.mark.parametrize("topic_id", ["another", None], ids=["recreated", "cut, or recreated where topics have no ids"])
def test_a_distance_in_two_numberings_does_not_bound_what_is_read_again(world: Tracked, topic_id: str | None) -> None:
    """The job has stored its offset, unchanged, from a log that was written again and lacks the first records."""
    world.make(range(40))
    world.job_stores(20)
    world.track()
    world.deliver(range(40))
    world.apply()
    world.job_stores(22, topic="a.events")
    assert found(world.row()) == (Verdict.MATCH, 22)
    world.log.create("a.events", 1, topic_id)
    world.deliver(range(10, 40))  # in front of 22 lies record 31
    row = world.row()
    assert row.verdict is Verdict.BOUNDED
    assert row.resume_offset is not None
    assert row.resume_offset <= 10
    assert (row.replay_at_most or 0) >= 22 - row.resume_offset


def test_a_source_that_is_tracked_late_does_not_pull_the_job_back(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(5)
    world.track()
    world.job_stores(7)
    world.deliver(range(10))
    world.apply()
    world.job_stores(9, topic="a.events")
    assert world.track().saved == 1
    assert found(world.row()) == (Verdict.MATCH, 9)


def test_a_job_that_went_back_to_the_source_and_is_tracked_there_speaks_from_there(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(5)
    world.track()
    world.deliver(range(3, 10))
    world.apply()
    later = NOW + 1_000
    world.source.partition("events", 0).append(later, b"k", b"v")
    world.log.partition("a.events", 0).append(later, b"k", b"v")
    world.job_stores(11)
    side = replace(world.side(), now_ms=lambda: later + 5)
    config = world.config(ANCHORED)
    assert Tracker(config, config.jobs, side).round().jobs[0].saved == 1
    world.moved = False
    assert found(world.row()) == (Verdict.MOVED, 8)


def test_a_lagging_pair_resumes_behind_its_record_and_counts_the_rest_as_replay(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(5)
    world.track()
    world.job_stores(8)
    world.deliver(range(10))
    row = world.row()
    assert found(row) == (Verdict.BOUNDED, 5)
    assert row.replay_at_most == 3


def test_a_store_that_was_reset_is_not_given_the_anchor_of_where_it_was(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(8)
    world.track()
    world.job_stores(3)
    world.deliver(range(10))
    row = world.row()
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert "stored without an anchor" in row.detail
    assert row.detail.endswith("its anchor was made for the later offset 8: the stored offset went back since")


def test_a_row_from_before_tracking_goes_by_its_own_time_where_that_is_allowed(memory: Memory) -> None:
    world = Tracked(memory, BareStore(f"{memory.folder}-dated", dated=True))
    world.deliver(range(10))
    key = TopicPartition("events", 0)
    legacy = StoredOffset(BASE + 6, None, content(5)[0])
    world.store.write(GROUP, [Change(key, None, legacy)], reason="job", now_ms=NOW)
    assert found(world.row()) == (Verdict.UNRESOLVED, None)
    assert found(world.row('[policy]\nno_anchor = "row-time"')) == (Verdict.BOUNDED, 5)


def test_an_offset_that_is_right_as_it_is_gets_the_destinations_anchor_too(world: Tracked) -> None:
    """With one name on both sides, the job's next number would be taken for one of the source."""
    world.make(range(10))
    world.job_stores(5)
    world.track()
    world.log.create("events", 1)
    world.deliver(range(10), topic="events")
    checked = world.check(ONE_NAME)
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, 5)
    assert checked.to_write == {("clicks", EVENTS)}
    world.apply(ONE_NAME)
    kept = world.kept()
    assert kept is not None
    assert (kept.offset, kept.cluster_id) == (5, "b")
    assert not world.check(ONE_NAME).to_write
    world.job_stores(9)
    checked = world.check(ONE_NAME)
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, 9)
    assert not checked.to_write


# ---------------------------------------------------------------- groups


def test_what_was_copied_of_the_sources_group_leads_to_the_exact_offset(group: Tracked) -> None:
    """The source's group is gone with it: the destination's has only what the mirror translated, or nothing."""
    group.make(range(10))
    group.job_stores(7)
    group.track()
    at_the_destination = Tracked(group, GroupStore(f"{group.folder}-destination"))
    at_the_destination.anchors = group.anchors
    at_the_destination.deliver(range(3, 10))
    assert found(at_the_destination.row()) == (Verdict.MOVED, 4)
    at_the_destination.job_stores(2, topic="a.events")  # as the mirror translated it: never ahead
    row = at_the_destination.row()
    assert (found(row), row.stored_offset) == ((Verdict.MOVED, 4), 7)
    at_the_destination.apply()
    assert found(at_the_destination.row()) == (Verdict.MATCH, 4)
    at_the_destination.job_stores(6, topic="a.events")  # the consumer commits as ever, and no anchor
    checked = at_the_destination.check()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, 6)
    assert not checked.to_write


def under_one_name(group: Tracked, *, stored: int, delivered: range) -> Tracked:
    """The destination, with a group of its own; ``track`` has kept the anchor of the offset stored at the source."""
    group.make(range(10))
    group.job_stores(stored)
    group.track()
    there = Tracked(group, GroupStore(f"{group.folder}-destination"))
    there.anchors = group.anchors
    there.log.create("events", 1)
    there.deliver(delivered, topic="events")
    return there


def test_with_one_name_on_both_sides_the_copy_leads_to_the_exact_offset_too(group: Tracked) -> None:
    there = under_one_name(group, stored=7, delivered=range(3, 10))
    there.job_stores(2)
    row = there.row(ONE_NAME)
    assert (found(row), row.stored_offset) == ((Verdict.MOVED, 4), 2)
    there.apply(ONE_NAME)
    there.job_stores(6)
    assert found(there.row(ONE_NAME)) == (Verdict.MATCH, 6)
    assert group.track().elsewhere == (EVENTS,)


@pytest.mark.parametrize(
    "committed",
    [StoredOffset(5), StoredOffset(5, named(4)), None],
    ids=["synced", "rolled back", "without a commit there"],
)
def test_a_groups_offset_that_is_right_as_it_is_is_committed_too(
    group: Tracked, committed: StoredOffset | None
) -> None:
    """Without a commit a consumer starts at the log's end; and its next one would be taken for one of the source."""
    there = under_one_name(group, stored=5, delivered=range(10))
    if committed is not None:
        there.store.write(GROUP, [Change(EVENTS, None, committed)], reason="test", now_ms=NOW)
    assert found(there.row(ONE_NAME)) == (Verdict.MATCH, 5)
    there.apply(ONE_NAME)
    assert {row.key: row.stored.offset for row in there.store.read(GROUP)} == {EVENTS: 5}
    there.job_stores(9)
    checked = there.check(ONE_NAME)
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, 9)
    assert not checked.to_write


def test_a_group_with_the_same_number_whose_correction_was_killed_before_its_anchor_was_kept(group: Tracked) -> None:
    there = under_one_name(group, stored=5, delivered=range(10))
    store, anchors = there.store, there.anchors
    faults = Faults(at=3, before=_kill)
    there.store, there.anchors = Faulty(store, "group", faults), Faulty(anchors, "anchors", faults)  # type: ignore[assignment]
    with pytest.raises(Killed):
        there.apply(ONE_NAME)
    there.store, there.anchors = store, anchors
    there.apply(ONE_NAME)
    there.job_stores(9)
    assert found(there.row(ONE_NAME)) == (Verdict.MATCH, 9)


def _kill() -> None:
    raise Killed


def test_an_anchor_that_a_commit_brings_is_kept_as_it_is(group: Tracked) -> None:
    group.make(range(10))
    own = StoredOffset(7, replace(named(6), id=b"from the job"), NOW - 5)
    group.store.write(GROUP, [Change(EVENTS, None, own)], reason="job", now_ms=NOW)
    group.trouble.comes("log", AssertionError("nothing needs to be read"))
    assert group.track().exact == 1
    assert group.kept() == own


def test_a_groups_number_with_another_clusters_anchor_is_not_looked_up(group: Tracked) -> None:
    """It was imported for a failback: the number is the other cluster's, until apply has corrected it."""
    group.make(range(10))
    there = replace(named(3, 6), cluster_id="b", topic_id="b/events")
    group.store.write(GROUP, [Change(EVENTS, None, StoredOffset(7, there))], reason="import", now_ms=NOW)
    report = group.track()
    assert (report.saved, report.without) == (0, {EVENTS: OTHERS})


# ---------------------------------------------------------------- whatever the logs look like


@dataclass(frozen=True)
class Story:
    """The history: per slot of the source's log a record (True) or a marker; what retention and the mirror did."""

    slots: list[bool]
    deleted: int
    missing: int
    tracked: int
    stored: int


def stories() -> st.SearchStrategy[Story]:
    def with_slots(slots: list[bool]) -> st.SearchStrategy[Story]:
        place = st.integers(0, len(slots))
        return st.builds(Story, st.just(slots), place, place, place, place)

    return st.lists(st.booleans(), min_size=1, max_size=24).flatmap(with_slots)


def played(story: Story, folder: Memory) -> tuple[PartitionPlan, Tracked]:
    log = MemoryLog("b", {"a.events": 1})
    world = Tracked(Memory(log, folder.store, folder.folder), BareStore(f"{id(story)}-{id(log)}"))
    part = world.source.partition("events", 0)
    for number, is_record in enumerate(story.slots):
        if is_record:
            part.append(BEGIN + 10 * number, b"k", b"%d" % number)
        else:
            part.append_marker(BEGIN + 10 * number)
    for record in part.records:
        if record.offset >= story.missing:
            log.partition("a.events", 0).append(record.timestamp_ms, record.key, record.value)
    first, last = sorted((story.tracked, story.stored))
    world.job_stores(first)
    world.track()
    world.job_stores(last)
    part.delete_before(story.deleted)
    world.look()
    return world.row(), world


@settings(max_examples=200, deadline=None)
@given(story=stories())
def test_no_story_of_source_mirror_and_tracker_skips_a_record_or_replays_more_than_it_says(
    story: Story, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Memory(MemoryLog("unused"), MemoryStore("unused"), tmp_path_factory.getbasetemp())
    row, world = played(story, folder)
    if row.resume_offset is None:
        return
    stored = max(story.tracked, story.stored)
    records = world.log.partition("a.events", 0).records
    numbers = {record.offset: int(record.value or b"") for record in records}
    skipped = [number for offset, number in numbers.items() if offset < row.resume_offset and number >= stored]
    again = [number for offset, number in numbers.items() if offset >= row.resume_offset and number < stored]
    assert not skipped
    assert row.replay_at_most is not None
    assert len(again) <= row.replay_at_most
    assert row.replay_exact in (None, len(again))
