"""What apply and rollback do where a group has no offset, and only the copy that ``track`` kept shows the source's.

Both sides have one topic name. The group is in memory here: it keeps numbers and anchors, each with a text.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Changed, Refused
from reconciler.failover.check import check
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import prepare, write
from reconciler.failover.writing.rollback import JobReturns, prepare_rollback, write_rollback
from reconciler.formats.plan import Plan
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired.rules import by_cluster
from reconciler.stores.paired.store import PairedStore
from tests.in_memory import GROUP, NOW, Memory, on_disk, stored
from tests.stores.paired.bare import Faults, Faulty, Killed

IDENTITY = '[topics]\npolicy = "identity"\n'
JOB = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "kafka-group:"\n'
KEY = TopicPartition("events", 0)


class Group(MemoryStore):
    capabilities = Capabilities(translated_by_mirror=True)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        return [replace(row, text="") for row in super().read(group, topics)]


@dataclass(kw_only=True)
class Failover(Memory):
    """A job whose group exists at the source only. ``copies`` are the rows that ``track`` kept."""

    copies: MemoryStore
    faults: Faults

    @property
    def outside(self) -> Outside:
        pair = [Faulty(self.store, "group", self.faults), Faulty(self.copies, "copies", self.faults)]
        return Outside(
            self.log, lambda _: PairedStore(*pair, pairing=by_cluster(lambda: "b")), lambda: 0.0, lambda: NOW
        )

    @property
    def path(self) -> Path:
        return self.folder / "failover.plan.json"

    def applied(self) -> Plan:
        config = self.config(IDENTITY, JOB)
        plan = check(config, config.jobs, self.outside).plan
        write(prepare(plan, config, self.outside), plan, on_disk(plan, self.path), self.outside)
        return plan

    def returns(self, plan: Plan) -> list[JobReturns]:
        return prepare_rollback(plan, self.path, self.config(IDENTITY, JOB), self.outside)

    def roll_back(self, plan: Plan) -> None:
        write_rollback(self.returns(plan), plan, self.path, self.config(IDENTITY, JOB), self.outside)

    def set(self, store: MemoryStore, offset: StoredOffset | None) -> None:
        there = {row.key: row.version for row in store.read(GROUP)}
        store.write(GROUP, [Change(KEY, there.get(KEY), offset)], reason="test", now_ms=NOW)

    def is_as_before(self) -> bool:
        return not self.store.read(GROUP) and [row.stored for row in self.copies.read(GROUP)] == [stored(9, 0, NOW - 1)]


@pytest.fixture
def failover(tmp_path: Path) -> Failover:
    """Ten records at the destination. The copy says 710, the source's number after the last of them."""
    log, name = MemoryLog("b", {"events": 1}), uuid.uuid4().hex
    failover = Failover(
        log=log, store=Group(name), folder=tmp_path, copies=MemoryStore(f"{name}-copies"), faults=Faults()
    )
    failover.deliver(range(10), topic="events")
    failover.set(failover.copies, stored(9, 0, NOW - 1))
    return failover


def test_the_group_has_no_offset_before_apply_and_none_after_the_rollback(failover: Failover) -> None:
    plan = failover.applied()
    assert [row.stored.offset for row in failover.store.read(GROUP)] == [10]
    ((only,),) = [change.returns for change in failover.returns(plan)]
    assert (only.now and only.now.stored.offset, only.back_to) == (10, None)
    failover.roll_back(plan)
    assert failover.is_as_before()
    assert not failover.returns(plan)[0].returns
    failover.applied()
    assert [row.stored.offset for row in failover.store.read(GROUP)] == [10]


def test_where_a_person_has_deleted_the_groups_offset_the_copy_is_put_back(failover: Failover) -> None:
    """The client of Kafka cannot delete one offset of several: the store says how a person does it."""
    plan = failover.applied()
    failover.set(failover.store, None)
    failover.roll_back(plan)
    assert failover.is_as_before()


def test_a_store_that_refuses_to_delete_leaves_everything_as_applied(
    failover: Failover, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, refused = failover.applied(), Refused("The group keeps other offsets.")
    rows = failover.store.read(GROUP), failover.copies.read(GROUP)

    def refuses(self: Group, group: str, changes: Sequence[Change], **more: object) -> WriteResult:
        raise refused

    with monkeypatch.context() as patch:
        patch.setattr(Group, "write", refuses)
        with pytest.raises(Refused):
            failover.roll_back(plan)
    assert [row.stored for row in failover.copies.read(GROUP)] == [row.stored for row in rows[1]]
    assert failover.store.read(GROUP) == rows[0]
    failover.roll_back(plan)
    assert failover.is_as_before()


@pytest.mark.parametrize("step", [1, 2])
def test_a_rollback_that_was_killed_is_finished_by_the_next(failover: Failover, step: int) -> None:
    def die() -> None:
        raise Killed

    plan = failover.applied()
    failover.faults = Faults(at=step, after=die)
    with pytest.raises(Killed):
        failover.roll_back(plan)
    failover.faults = Faults()
    failover.roll_back(plan)
    assert failover.is_as_before()


def test_a_number_of_the_group_beyond_the_log_is_not_put_back(failover: Failover) -> None:
    """The mirror had synced 12 here. Whatever topic names say, a group's number counts where the group is."""
    failover.set(failover.store, StoredOffset(12))
    plan = failover.applied()
    with pytest.raises(Changed, match="the log ends at 10, and the snapshot would put back 12"):
        failover.returns(plan)


def test_going_back_to_a_number_of_the_group_counts_what_it_skips(failover: Failover) -> None:
    failover.set(failover.store, StoredOffset(12))
    plan = failover.applied()
    failover.deliver(range(10, 15), topic="events")
    ((only,),) = [change.returns for change in failover.returns(plan)]
    assert only.skips is not None
    assert (only.before and only.before.offset, only.skips.at_least) == (12, 2)
