"""Failovers of a job that writes bare offsets into a store with room for anchors, under two topic names or one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import prepare, write
from reconciler.failover.writing.rollback import prepare_rollback, write_rollback
from reconciler.formats.plan import Plan
from reconciler.ports import Change, OffsetStore, TopicPartition, WriteResult
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired import ServedStore
from tests.in_memory import BASE, GROUP, NOW, Memory, found, on_disk, stored

SOURCE, HERE = TopicPartition("events", 0), TopicPartition("a.events", 0)
IDENTITY = '[topics]\npolicy = "identity"'


class Away(MemoryStore):
    """The [anchors] store, which another one's writes can take away."""

    gone = False

    def write(self, group: str, changes: Sequence[Change], **more: Any) -> WriteResult:
        if self.gone:
            raise Unreachable("The anchor store is away.")
        return super().write(group, changes, **more)


class Job(Memory):
    """A job in a store that keeps anchors, and their [anchors] store."""

    def __init__(self, memory: Memory, name: str) -> None:
        super().__init__(memory.log, memory.store, memory.folder)
        self.anchors = Away(f"{name} anchors")
        self.own: OffsetStore = self.store
        self.opens: Callable[[], OffsetStore] = lambda: self.anchors

    @property
    def outside(self) -> Outside:
        return Outside(self.log, lambda _: ServedStore(self.own, self.opens), lambda: self.clock, lambda: NOW)

    def put(self, store: MemoryStore, key: TopicPartition, row: StoredOffset) -> None:
        there = {each.key: each.version for each in store.read(GROUP)}
        assert store.write(GROUP, [Change(key, there.get(key), row)], reason="test", now_ms=NOW).written

    def stores(self, key: TopicPartition, offset: int) -> None:
        self.put(self.store, key, StoredOffset(offset))

    def kept(self) -> dict[str, tuple[int, str | None]]:
        rows = self.anchors.read(GROUP)
        return {row.key.topic: (row.stored.offset, row.stored.anchor and row.stored.anchor.cluster_id) for row in rows}

    def apply_the_plan(self, plan: Plan, extra: str, path: Path) -> None:
        write(prepare(plan, self.config(extra), self.outside), plan, on_disk(plan, path), self.outside)

    def roll_back(self, plan: Plan, extra: str, path: Path) -> None:
        config = self.config(extra)
        write_rollback(prepare_rollback(plan, path, config, self.outside), plan, path, config, self.outside)


@pytest.fixture
def job(memory: Memory, request: pytest.FixtureRequest) -> Job:
    job = Job(memory, request.node.nodeid)
    job.deliver(range(200))
    job.log.create("events", 1)
    job.deliver(range(200), topic="events")
    return job


class Last(MemoryStore):
    """The job's store: behind its write the [anchors] store is away."""

    anchors: Away

    def write(self, *given: Any, **more: Any) -> WriteResult:
        result = super().write(*given, **more)
        self.anchors.gone = True
        return result


def half_done(job: Job, act: Callable[[], None]) -> ReconcilerError:
    """Let the [anchors] store be away behind the write of the offsets; it is back afterwards."""
    last = Last(job.store.address.removeprefix("memory:"))
    last.anchors, job.own = job.anchors, last
    with pytest.raises(OutcomeUnknown, match="but not all of their anchors") as error:
        act()
    job.own, job.anchors.gone = job.store, False
    return error.value


# ---------------------------------------------------------------- two names


def keeps_its_place_here(job: Job) -> None:
    """It is corrected, stores a bare offset under the destination's name, and is left there."""
    job.apply()
    assert job.kept() == {"events": (BASE + 100, "a"), "a.events": (100, "b")}
    job.stores(HERE, 150)
    checked = job.check()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, 150)
    assert not checked.to_write


def test_a_job_that_goes_on_with_bare_offsets_under_the_destinations_name_is_left_where_it_is(job: Job) -> None:
    """The correction makes a row of its own: that the job writes bare ones shows under the source's name alone."""
    job.stores(SOURCE, BASE + 100)
    job.put(job.anchors, SOURCE, stored(99))
    assert found(job.row()) == (Verdict.MOVED, 100)
    keeps_its_place_here(job)


# ---------------------------------------------------------------- one name
