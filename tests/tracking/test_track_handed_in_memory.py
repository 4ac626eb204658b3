"""A job that keeps its offsets in its table: what was laid aside at a hand-over does not stop tracking."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.ports import Change, TopicPartition, WriteResult
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired import HandedPair, aside_of
from tests.in_memory import GROUP, NOW, Memory, memory
from tests.stores.paired.bare import BareStore
from tests.tracking.tracked import Tracked, named

__all__ = ["memory"]

KEY = TopicPartition("events", 0)
TABLE = (
    f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\n'
    f'topics = ["events"]\noffsets = "delta:/t?layout=commit&number=next"\n'
)


@pytest.fixture
def world(memory: Memory, request: pytest.FixtureRequest) -> Tracked:
    """The table says 7. 4 was handed to the job in place of it, at the cluster that is tracked."""
    world = Tracked(memory, BareStore(f"{request.node.nodeid}-table"))
    world.make(range(10))
    world.job_stores(7)
    handed = StoredOffset(4, named(3), NOW)
    laid = [(KEY, handed), (aside_of(KEY), StoredOffset(7, None, None))]
    changes = [Change(key, None, row, restores=row.written_at_ms is None) for key, row in laid]
    assert world.anchors.write(GROUP, changes, reason="hook", now_ms=NOW).written
    return world


def rows(store: MemoryStore) -> dict[TopicPartition, int]:
    return {row.key: row.stored.offset for row in store.read(GROUP)}


def test_a_hand_over_stays_until_the_job_has_stored_a_row(world: Tracked) -> None:
    before = rows(world.anchors)
    job = world.track(world.tracker(jobs=TABLE))
    assert (job.elsewhere, job.exact, job.saved) == ((KEY,), 0, 0)
    assert rows(world.anchors) == before


def test_from_the_jobs_next_row_on_it_is_tracked(world: Tracked) -> None:
    world.job_stores(9)
    job = world.track(world.tracker(jobs=TABLE))
    assert (job.elsewhere, job.exact, job.saved, dict(job.without)) == ((), 1, 1, {})
    kept = world.kept()
    assert kept is not None
    assert (kept.offset, kept.anchor) == (9, named(8))


def test_the_table_may_be_set_back_to_the_hand_over_once_it_is_tracked(world: Tracked) -> None:
    """Records 4 to 9 were skipped: it read as the job's latest anchor, handed over in place of that very row."""
    pair = HandedPair(world.store, world.anchors)
    world.job_stores(9)
    world.track(world.tracker(jobs=TABLE))
    world.job_stores(7)
    (row,) = pair.read(GROUP)
    assert (row.stored.offset, row.stored.anchor, row.anchor_lag) == (7, None, None)


def test_of_an_earlier_release_a_hand_over_that_was_tracked_is_marked(world: Tracked) -> None:
    world.job_stores(9)
    main = {row.key: row.version for row in world.anchors.read(GROUP)}[KEY]
    kept = Change(KEY, main, StoredOffset(9, named(8), NOW))
    assert world.anchors.write(GROUP, [kept], reason="track", now_ms=NOW).written
    for _ in range(2):
        assert world.track(world.tracker(jobs=TABLE)).saved == 0
    world.job_stores(7)
    assert HandedPair(world.store, world.anchors).read(GROUP)[0].stored == StoredOffset(7, None, None)


def test_an_anchor_is_not_saved_where_the_row_laid_aside_was_written_by_another(world: Tracked) -> None:
    world.job_stores(9)
    write, before = world.anchors.write, rows(world.anchors)

    def second(group: str, changes: list[Change], **more: Any) -> WriteResult:
        if changes[0].key == aside_of(KEY):
            return WriteResult(conflicts=(aside_of(KEY),))
        return write(group, changes, **more)

    world.anchors.write = second  # type: ignore[method-assign,assignment]
    assert world.track(world.tracker(jobs=TABLE)).saved == 0
    assert rows(world.anchors) == before
