"""A group whose offset was corrected at the destination, and what MirrorMaker or the group commits over it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Refused
from reconciler.core.verdicts import Verdict
from reconciler.failover.outside import ByHand
from reconciler.mirror.commits import NAMED, UNKNOWN
from reconciler.ports import ReadRequest, Row, TopicPartition
from reconciler.tracking.job import JobReport
from tests.in_memory import GROUP, Memory, content, found
from tests.mirror.written import CHECKPOINTS, limit_reading, write_checkpoints
from tests.tracking.tracked import ANCHORED, GroupStore, Tracked

CORRECTED, SYNCED = 4, 10


class Commits(GroupStore):
    """A commit without metadata has no time of its own."""

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        rows = super().read(group, topics)
        return [row if row.stored.anchor else replace(row, stored=StoredOffset(row.stored.offset)) for row in rows]


@pytest.fixture
def group(memory: Memory, request: pytest.FixtureRequest) -> Tracked:
    """A tracked consumer of the source that was corrected to 4; the mirror had translated its offset to 10.

    The destination holds records 0 to 7, and then 2 and 3 again.
    """
    made = Tracked(memory, Commits(f"{request.node.nodeid}-group"))
    made.make(range(8))
    made.job_stores(4)
    made.track()
    made.deliver(range(8))
    made.deliver(range(2, 4))
    write_checkpoints(made.log, (4, SYNCED), group=GROUP)
    made.job_stores(SYNCED, topic="a.events")
    made.apply(ANCHORED)
    assert stored(made) == CORRECTED
    return made


def stored(group: Tracked) -> int:
    (offset,) = [row.stored.offset for row in group.store.read(GROUP) if row.key.topic == "a.events"]
    return offset


def refuse_checkpoints(group: Tracked, monkeypatch: pytest.MonkeyPatch) -> None:
    read = group.log.read

    def refused(requests: list[ReadRequest]) -> object:
        if any(each.partition.topic == CHECKPOINTS for each in requests):
            raise Refused("not authorized.")
        return read(requests)

    monkeypatch.setattr(group.log, "read", refused)


def others_go_on(monkeypatch: pytest.MonkeyPatch, group: Tracked, records: int) -> None:
    """Since this group has stopped, the mirror wrote so many checkpoints of others, which are read in small pieces."""
    limit_reading(monkeypatch, least=20)
    write_checkpoints(group.log, *((number, 7) for number in range(records)), group="another group")


def delivered(group: Tracked, *numbers: int) -> None:
    for number in numbers:
        group.log.partition("a.events", 0).append(*content(number))


def test_a_number_that_the_mirror_commits_over_a_correction_skips_nothing(group: Tracked) -> None:
    group.job_stores(SYNCED, topic="a.events")
    row = group.row(ANCHORED)
    assert found(row) == (Verdict.BOUNDED, CORRECTED)
    assert (row.stored_offset, row.replay_at_most, row.replay_exact) == (SYNCED, SYNCED - CORRECTED, None)
    assert "MirrorMaker's checkpoint 4→10" in row.detail


def test_a_number_whose_checkpoint_lies_too_far_back_is_unresolved(
    group: Tracked, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_go_on(monkeypatch, group, 1000)
    group.job_stores(SYNCED, topic="a.events")
    row = group.row(ANCHORED)
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert f"none of the newest 100 records of MirrorMaker's checkpoints is of group {GROUP}" in row.detail
    assert f"At {CORRECTED} nothing is skipped" in row.detail
    group.apply(ANCHORED, ByHand(offsets={("a.events", 0): CORRECTED}, skips=True))
    assert stored(group) == CORRECTED


def test_an_apply_writes_the_correction_again(group: Tracked) -> None:
    for _ in range(2):
        group.job_stores(SYNCED, topic="a.events")
        group.apply(ANCHORED)
        assert stored(group) == CORRECTED
        assert found(group.row(ANCHORED)) == (Verdict.MATCH, CORRECTED)


def test_a_later_translation_is_the_mirrors_too(group: Tracked) -> None:
    delivered(group, 8, 9)
    write_checkpoints(group.log, (8, 11), group=GROUP)
    for number in (SYNCED, 11):
        group.job_stores(number, topic="a.events")
        assert found(group.row(ANCHORED)) == (Verdict.BOUNDED, CORRECTED)


def test_a_group_that_has_gone_on_from_its_correction_is_left_where_it_is(group: Tracked) -> None:
    write_checkpoints(group.log, (6, 7), group="another group")
    for number in (5, 7, 9):
        group.job_stores(number, topic="a.events")
        checked = group.check(ANCHORED)
        assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, number)
        assert not checked.to_write


def test_a_group_of_which_the_mirror_has_written_no_checkpoint_is_left_where_it_is(group: Tracked) -> None:
    group.log.create(CHECKPOINTS, 1)
    write_checkpoints(group.log, (6, 7), group="another group")
    group.job_stores(SYNCED, topic="a.events")
    assert found(group.row(ANCHORED)) == (Verdict.MATCH, SYNCED)


def test_a_number_behind_a_correction_is_undecided_where_the_checkpoints_cannot_be_read(
    group: Tracked, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_checkpoints(group, monkeypatch)
    assert found(group.row(ANCHORED)) == (Verdict.MATCH, CORRECTED)
    group.job_stores(7, topic="a.events")
    row = group.row(ANCHORED)
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert f'"{CHECKPOINTS}" could not be read: not authorized. At {CORRECTED} nothing is skipped' in row.detail


def test_an_offset_set_by_hand_ends_the_doubt(group: Tracked) -> None:
    group.job_stores(SYNCED, topic="a.events")
    group.apply(ANCHORED, ByHand(offsets={("a.events", 0): SYNCED}, skips=True))
    assert found(group.row(ANCHORED)) == (Verdict.MATCH, SYNCED)


def test_a_correction_whose_next_record_is_gone_is_lost(group: Tracked) -> None:
    group.job_stores(SYNCED, topic="a.events")
    group.log.partition("a.events", 0).delete_before(CORRECTED + 2)
    row = group.row(ANCHORED)
    assert found(row) == (Verdict.LOST, CORRECTED + 2)
    assert (row.replay_at_most, row.replay_exact) == (SYNCED - CORRECTED - 2, None)


def test_only_a_row_behind_its_correction_asks_for_the_checkpoints(group: Tracked) -> None:
    asked = []
    read = group.log.read
    group.log.read = lambda requests: asked.extend(each.partition.topic for each in requests) or read(requests)  # type: ignore[method-assign]
    group.check(ANCHORED)
    assert CHECKPOINTS not in asked
    group.job_stores(7, topic="a.events")
    group.check(ANCHORED)
    assert CHECKPOINTS in asked


# ---------------------------------------------------------------- tracked where it was corrected


BACK = '[topics]\nseparator = "."\n[topics.names.a]\n"a.events@b" = "events"\n'
JOB = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["a.events"]\noffsets = "memory:"\n'


def tracked_here(group: Tracked) -> JobReport:
    """A round of tracking with the configuration of the way back: the destination is its source."""
    group.source, source = group.log, group.source  # type: ignore[assignment]
    try:
        return group.track(group.tracker(BACK, JOB))
    finally:
        group.source = source


def test_tracking_proves_no_number_that_the_mirror_commits_over_a_correction(group: Tracked) -> None:
    group.job_stores(SYNCED, topic="a.events")
    report = tracked_here(group)
    assert (report.saved, dict(report.lagging)) == (0, {TopicPartition("a.events", 0): NAMED})
    assert found(group.row(ANCHORED)) == (Verdict.BOUNDED, CORRECTED)


def test_tracking_follows_a_group_that_has_gone_on_from_its_correction(group: Tracked) -> None:
    for number in (7, SYNCED):
        group.job_stores(number, topic="a.events")
        assert (tracked_here(group).saved, found(group.row(ANCHORED))) == (1, (Verdict.MATCH, number))


def test_tracking_proves_no_number_over_a_correction_where_the_checkpoints_cannot_be_read(
    group: Tracked, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_checkpoints(group, monkeypatch)
    group.job_stores(7, topic="a.events")
    (why,) = tracked_here(group).lagging.values()
    assert why == f'{UNKNOWN}: "{CHECKPOINTS}" could not be read: not authorized'
