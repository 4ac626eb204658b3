"""A job that keeps its offsets in its table: what was laid aside at a hand-over does not stop tracking."""

from __future__ import annotations

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.ports import Change, TopicPartition
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired import aside_of
from tests.in_memory import GROUP, NOW, Memory, memory
from tests.stores.paired.bare import BareStore
from tests.tracking.tracked import Tracked, named

__all__ = ["memory"]

KEY = TopicPartition("events", 0)
TABLE = (
    f'[[jobs]]\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\nstore = "delta:/t?layout=commit&number=next"\n'
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
