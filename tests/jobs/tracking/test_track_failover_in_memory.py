"""Failovers of tracked offsets, over logs and stores in memory."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.core.verdicts import Verdict
from reconciler.places.memory import MemoryStore
from reconciler.plan.document import PartitionPlan
from tests.in_memory import BEGIN, Memory, found
from tests.jobs.tracking.tracked import GroupStore, Tracked
from tests.memory_log import MemoryLog
from tests.places.bare_memory import BareStore

ONE_NAME = '[topics]\npolicy = "identity"\n'


@pytest.fixture
def world(memory: Memory, request: pytest.FixtureRequest) -> Tracked:
    return Tracked(memory, BareStore(f"{request.node.nodeid}-bare"))


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
