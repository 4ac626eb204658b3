"""Failovers of tracked offsets, over logs and stores in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.core.anchors import StoredOffset
from reconciler.core.verdicts import Verdict
from reconciler.jobs.tracking.journals import OTHERS
from reconciler.places.memory import MemoryStore
from reconciler.plan.document import PartitionPlan
from reconciler.ports import Change
from reconciler.state.stored import Known
from tests.in_memory import BASE, BEGIN, GROUP, NOW, Memory, content, found
from tests.jobs.tracking.tracked import EVENTS, BareStore, GroupStore, Tracked, named
from tests.memory_log import MemoryLog

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
    assert found(row) == (Verdict.EXACT, 4)
    assert (row.stored_offset, row.replay_exact, row.record_offset) == (7, 0, 3)


def test_a_job_that_had_processed_nothing_when_it_was_tracked_starts_at_the_beginning(world: Tracked) -> None:
    world.job_stores(0)
    world.track()
    world.make(range(10))
    world.job_stores(7)
    world.deliver(range(10))
    row = world.row()
    assert found(row) == (Verdict.EARLY, 0)
    assert (row.replay_at_most or 0) >= 7


def test_a_lagging_pair_resumes_behind_its_record_and_counts_the_rest_as_replay(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(5)
    world.track()
    world.job_stores(8)
    world.deliver(range(10))
    row = world.row()
    assert found(row) == (Verdict.EARLY, 5)
    assert row.replay_at_most == 3


def test_a_store_that_was_reset_is_not_given_the_anchor_of_where_it_was(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(8)
    world.track()
    world.job_stores(3)
    world.deliver(range(10))
    row = world.row()
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert "holds offset 3 for events-0. The journal of stay 1 on a has offset 8 of it" in row.detail


def test_a_row_from_before_tracking_goes_by_its_own_time_where_that_is_allowed(memory: Memory) -> None:
    world = Tracked(memory, MemoryStore(f"{memory.folder}-dated"))
    world.deliver(range(10))
    legacy = StoredOffset(BASE + 6, None, content(5)[0])
    world.store.write(GROUP, [Change(EVENTS, None, legacy)], reason="job", now_ms=NOW)
    assert found(world.row()) == (Verdict.UNRESOLVED, None)
    assert found(world.row('[policy]\nno_anchor = "row-time"')) == (Verdict.EARLY, 5)


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize("synced", [2, 9, None])
def test_a_group_that_is_lost_with_its_cluster_fails_over_by_its_journal(
    memory: Memory, synced: int | None, request: pytest.FixtureRequest
) -> None:
    """The group at the destination has only what the mirror translated, or nothing."""
    group = Tracked(memory, GroupStore(f"{request.node.nodeid}-group"))
    group.place = "kafka-group:"
    group.make(range(10))
    group.job_stores(7)
    group.track()
    group.store = GroupStore(f"{request.node.nodeid}-destination")
    group.deliver(range(3, 10))
    if synced is not None:
        group.job_stores(synced, topic="a.events")
    row = group.row()
    assert (found(row), row.stored_offset, row.replay_exact) == ((Verdict.EXACT, 4), 7, 0)


def test_an_anchor_that_a_commit_brings_is_kept_as_it_is(group: Tracked) -> None:
    group.make(range(10))
    own = StoredOffset(7, replace(named(6), id=b"from the job"), NOW - 5)
    group.store.write(GROUP, [Change(EVENTS, None, own)], reason="job", now_ms=NOW)
    group.trouble.comes("log", AssertionError("nothing needs to be read"))
    assert group.track().exact == 1
    assert group.kept() == Known(7, own.anchor)


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
