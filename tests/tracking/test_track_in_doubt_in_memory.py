"""Tracking a job whose number may be either cluster's: one topic name, and a write that was killed half way."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.verdicts import Verdict
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import prepare, write
from reconciler.failover.writing.rollback import prepare_rollback, write_rollback
from reconciler.ports import Change, WriteResult
from reconciler.stores.paired.steps import aside_of
from reconciler.stores.paired.store import PairedStore
from reconciler.tracking.job import IN_DOUBT
from tests.in_memory import GROUP, NOW, Memory, content, found, on_disk
from tests.stores.paired.bare import BareStore, Killed
from tests.tracking.tracked import EVENTS, GroupStore, Tracked, named

IDENTITY = '[topics]\npolicy = "identity"\n'
AHEAD = 100
"""The destination's number of a record, less the source's."""


def killed(store: BareStore, moment: str) -> BareStore:
    class Last(BareStore):
        def write(self, *given: Any, **more: Any) -> WriteResult:
            if moment == "after":
                super().write(*given, **more)
            raise Killed

    return Last(store.address.removeprefix("memory:"))


@pytest.fixture
def world(memory: Memory, request: pytest.FixtureRequest) -> Tracked:
    """The job has stored 300 at the source and is tracked; one name, and the destination's numbers are ahead."""
    world = Tracked(memory, BareStore(f"{request.node.nodeid}-bare"))
    world.log.create("events", 1)
    for number in range(AHEAD):
        world.log.partition("events", 0).append(content(0)[0] - 10_000_000 + number, b"old%d" % number, b"old")
    world.make(range(600))
    world.deliver(range(600), topic="events")
    world.job_stores(300)
    world.track(world.tracker(IDENTITY))
    return world


def apply_killed(world: Tracked, moment: str = "after", resume: int = 400) -> None:
    checked, config, path = world.check(IDENTITY), world.config(IDENTITY), world.folder / "killed.plan.json"
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MOVED, resume)
    store = world.store
    assert isinstance(store, BareStore)
    dying = PairedStore(killed(store, moment), world.anchors)
    outside = Outside(world.log, lambda _: dying, lambda: 0.0, lambda: NOW)
    with suppress(Killed):
        write(prepare(checked.plan, config, outside), checked.plan, on_disk(checked.plan, path), outside)


def rolled_back(world: Tracked) -> None:
    config, checked = world.config(IDENTITY), world.check(IDENTITY)
    path = world.folder / f"{checked.plan.sha256}.plan.json"
    write(prepare(checked.plan, config, world.outside), checked.plan, on_disk(checked.plan, path), world.outside)
    returns = prepare_rollback(checked.plan, path, config, world.outside)
    write_rollback(returns, checked.plan, path, config, world.outside)


def nothing(world: Tracked) -> None:
    """The killed write alone."""


@pytest.mark.parametrize("then", [nothing, rolled_back])
def test_a_number_that_may_be_the_destinations_is_not_looked_up_at_the_source(
    world: Tracked, then: Callable[[Tracked], None]
) -> None:
    apply_killed(world)
    world.job_stores(410)  # at the destination: the source's record 309 was the last
    then(world)
    for number in (410, 415):
        world.job_stores(number)
        kept = world.anchors.read(GROUP)
        report = world.track(world.tracker(IDENTITY))
        assert (report.without, report.saved) == ({EVENTS: IN_DOUBT}, 0)
        assert world.anchors.read(GROUP) == kept
        row = world.row(IDENTITY)
        assert row.resume_offset is not None
        assert row.resume_offset <= number
        assert row.replay_at_most is not None
        assert row.replay_at_most >= number - row.resume_offset


def test_a_row_laid_aside_for_a_number_without_an_anchor_keeps_it_from_being_looked_up(world: Tracked) -> None:
    """Nothing was kept: only the mirror's pairs placed the row that the write was to replace."""
    (main,) = world.anchors.read(GROUP)
    laid = StoredOffset(400, Anchor(399, 5, None, None, "b", "b/events"), NOW)
    changes = [Change(EVENTS, main.version, None), Change(aside_of(EVENTS), None, laid)]
    assert world.anchors.write(GROUP, changes, reason="apply", now_ms=NOW).written
    world.job_stores(410)
    assert world.track(world.tracker(IDENTITY)).without == {EVENTS: IN_DOUBT}


def test_the_same_number_in_both_numberings_is_not_looked_up(world: Tracked) -> None:
    """A failback that was killed: the number may be the source's, or still the destination's."""
    (main,) = world.anchors.read(GROUP)
    there = StoredOffset(300, Anchor(299, 5, None, None, "b", "b/events"), NOW - 9)
    laid = StoredOffset(300, named(299), NOW)
    changes = [Change(EVENTS, main.version, there), Change(aside_of(EVENTS), None, laid)]
    assert world.anchors.write(GROUP, changes, reason="apply", now_ms=NOW).written
    report = world.track(world.tracker(IDENTITY))
    assert (report.saved, report.exact, report.elsewhere) == (0, 0, (EVENTS,))
    world.job_stores(310)
    assert world.track(world.tracker(IDENTITY)).without == {EVENTS: IN_DOUBT}


def test_a_rollback_to_a_number_in_doubt_shows_as_much_replay_as_before(
    memory: Memory, request: pytest.FixtureRequest
) -> None:
    """The destination's numbers are behind: if the job's number is one of them, it has processed 210 records more."""
    world = Tracked(memory, BareStore(f"{request.node.nodeid}-behind"))
    world.log.create("events", 1)
    world.make(range(600))
    world.deliver(range(200, 600), topic="events")
    world.job_stores(300)
    world.track(world.tracker(IDENTITY))
    apply_killed(world, resume=100)
    for number in (310, 315):
        world.job_stores(number)
        before = world.row(IDENTITY)
        assert (found(before), before.replay_at_most) == ((Verdict.BOUNDED, 100), number - 100)
        rolled_back(world)
        row = world.row(IDENTITY)
        assert (found(row), row.replay_at_most) == (found(before), before.replay_at_most)
        assert world.track(world.tracker(IDENTITY)).without == {EVENTS: IN_DOUBT}
    world.apply(IDENTITY)
    assert found(world.row(IDENTITY)) == (Verdict.MATCH, 100)


def test_until_the_job_goes_on_nothing_is_in_doubt(world: Tracked) -> None:
    apply_killed(world, "before")
    assert world.track(world.tracker(IDENTITY)).exact == 1
    apply_killed(world)
    assert world.track(world.tracker(IDENTITY)).elsewhere == (EVENTS,)


def test_applying_at_the_destination_ends_the_doubt(world: Tracked) -> None:
    apply_killed(world)
    world.job_stores(410)
    world.apply(IDENTITY)
    world.job_stores(415)
    report = world.track(world.tracker(IDENTITY))
    assert (report.elsewhere, report.saved) == ((EVENTS,), 0)
    assert found(world.row(IDENTITY)) == (Verdict.MATCH, 415)


@pytest.mark.parametrize("then", [nothing, rolled_back])
def test_importing_the_row_of_a_job_that_never_left_the_source_without_an_anchor_ends_the_doubt(
    world: Tracked, then: Callable[[Tracked], None]
) -> None:
    apply_killed(world, "before")
    world.job_stores(310)
    then(world)
    assert world.track(world.tracker(IDENTITY)).without == {EVENTS: IN_DOUBT}
    store = PairedStore(world.store, world.anchors)
    (row,) = store.read(GROUP)
    changes = [Change(EVENTS, row.version, StoredOffset(row.stored.offset))]
    assert store.write(GROUP, changes, reason="import", now_ms=NOW).written
    assert world.anchors.read(GROUP) == []
    report = world.track(world.tracker(IDENTITY))
    assert (report.exact, report.saved, report.without) == (1, 1, {})
    assert found(world.row(IDENTITY)) == (Verdict.MOVED, 410)


@pytest.mark.parametrize("further", [0, 10])
def test_an_empty_anchor_that_a_rollback_put_back_keeps_the_number_in_doubt(world: Tracked, further: int) -> None:
    """Neither numbering was proven, and a person chose an offset; then the row went back."""
    (main,) = world.anchors.read(GROUP)
    back = StoredOffset(300, Anchor(), NOW)
    assert world.anchors.write(GROUP, [Change(EVENTS, main.version, back)], reason="rollback", now_ms=NOW).written
    world.job_stores(300 + further)
    assert world.track(world.tracker(IDENTITY)).without == {EVENTS: IN_DOUBT}


def test_an_imported_anchor_without_a_cluster_is_replaced_by_the_sources_before_the_job_goes_on(world: Tracked) -> None:
    (main,) = world.anchors.read(GROUP)
    imported = StoredOffset(300, Anchor(299, 5), NOW)
    assert world.anchors.write(GROUP, [Change(EVENTS, main.version, imported)], reason="import", now_ms=NOW).written
    assert world.track(world.tracker(IDENTITY)).saved == 1
    assert world.kept() == StoredOffset(300, named(299), content(299)[0])


def test_an_imported_anchor_without_a_cluster_lags_like_others_where_the_names_differ(world: Tracked) -> None:
    (main,) = world.anchors.read(GROUP)
    imported = StoredOffset(300, Anchor(299, 5), NOW)
    assert world.anchors.write(GROUP, [Change(EVENTS, main.version, imported)], reason="import", now_ms=NOW).written
    world.job_stores(310)
    assert world.track(world.tracker(IDENTITY)).without == {EVENTS: IN_DOUBT}
    assert world.track().exact == 1


def test_the_number_of_a_groups_commit_at_the_source_is_never_in_doubt(
    memory: Memory, request: pytest.FixtureRequest
) -> None:
    group = Tracked(memory, GroupStore(f"{request.node.nodeid}-group"))
    group.make(range(10))
    group.job_stores(7)
    group.track(group.tracker(IDENTITY))
    laid = StoredOffset(4, Anchor(3, 5, None, None, "b", "b/events"))
    group.anchors.write(GROUP, [Change(aside_of(EVENTS), None, laid)], reason="apply", now_ms=NOW)
    group.job_stores(8)
    assert group.track(group.tracker(IDENTITY)).exact == 1
