"""The way back from an apply that wrote a part, and when there is none: on files and on Kafka's own group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import OutcomeUnknown, Unreachable
from reconciler.ports import Change, WriteResult
from reconciler.stores.kafka.group import KafkaGroupStore
from reconciler.stores.sqlite.store import SqliteStore
from tests.failover.killed import Rows, committed, table
from tests.world import CommandResult, World, source_record

pytestmark = pytest.mark.system


class Laid:
    """Job ``clicks`` with a file, job ``sums`` with Kafka's group, both about to fail over; a plan for the two.

    Of partition 0 each has a row already where the offset will be written, of partition 1 only the group has.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        world.deliver(9, 9)
        world.processed(4, 6)
        earlier = StoredOffset(2, Anchor(1, cluster_id=world.cluster.cluster_id), 1)
        world.save({0: earlier}, topic=world.mirrored)
        synced = {0: StoredOffset(1, source_record(3).anchor), 1: StoredOffset(0, source_record(1, 1).anchor)}
        world.save(synced, topic=world.mirrored, address="kafka-group:")
        self.config = world.config(world.job("clicks"), world.job("sums", store="kafka-group:"))
        world.plan(self.config)
        self.before = self.bytes()

    def bytes(self) -> Rows:
        return {**table(self.world.folder / "offsets.db"), **committed(self.world.cluster, self.world.group)}

    def run(self, command: str, config: Path | None = None) -> CommandResult:
        return self.world.run(command, self.world.plan_file, "-c", config or self.config, "--yes")

    @property
    def snapshot(self) -> Path:
        return self.world.plan_file.with_name(self.world.plan_file.name + ".applied.json")


@pytest.fixture
def laid(world: World) -> Laid:
    return Laid(world)


def dies(monkeypatch: pytest.MonkeyPatch, store: type, kept: int, error: Exception) -> None:
    """From now on, a store of this kind writes ``kept`` rows of each batch, and then is gone."""
    write = store.write

    def fails(self: Any, group: str, changes: Sequence[Change], **more: Any) -> WriteResult:
        if kept:
            write(self, group, changes[:kept], **more)
        raise error

    monkeypatch.setattr(store, "write", fails)


PARTS: dict[str, tuple[type, int, Exception, int]] = {
    "the first store, before it wrote": (SqliteStore, 0, Unreachable("The disk is gone."), 6),
    "the first store, with an unknown outcome": (SqliteStore, 0, OutcomeUnknown("The disk is gone."), 7),
    "the first store, after a row": (SqliteStore, 1, OutcomeUnknown("The disk is gone."), 7),
    "the first store, after both rows": (SqliteStore, 2, OutcomeUnknown("The disk is gone."), 7),
    "the second store, before it wrote": (KafkaGroupStore, 0, Unreachable("The broker is gone."), 7),
    "the second store, after a row": (KafkaGroupStore, 1, OutcomeUnknown("The broker is gone."), 7),
    "the second store, after both rows": (KafkaGroupStore, 2, OutcomeUnknown("The broker is gone."), 7),
}


def test_what_was_applied_in_part_is_rolled_back_without_being_finished(
    laid: Laid, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where, (store, kept, error, code) in PARTS.items():
        with monkeypatch.context() as patch:
            dies(patch, store, kept, error)
            assert laid.run("apply").code == code, where
        assert (laid.bytes() == laid.before) == (store is SqliteStore and kept == 0), where
        back = laid.run("rollback")
        assert (back.code, laid.bytes()) == (0, laid.before), (where, back.output)
        again = laid.run("rollback")
        assert (again.code, "Nothing to put back" in again.out) == (0, True), where
        assert laid.bytes() == laid.before
    assert laid.run("apply").code == 0
    assert laid.run("rollback").code == 0
    assert laid.bytes() == laid.before


def test_a_rollback_in_part_is_ended_by_the_next(laid: Laid, monkeypatch: pytest.MonkeyPatch) -> None:
    assert laid.run("apply").code == 0
    applied = laid.bytes()
    for where, (store, kept, error, code) in PARTS.items():
        with monkeypatch.context() as patch:
            dies(patch, store, kept, error)
            assert laid.run("rollback").code == code, where
        back = laid.run("rollback")
        assert (back.code, laid.bytes()) == (0, laid.before), (where, back.output)
        assert laid.run("apply").code == 0
        assert laid.bytes().keys() == applied.keys()


def test_progress_of_one_partition_keeps_all_from_being_rolled_back(laid: Laid) -> None:
    """Also of a job that has not gone on, and of the rows in front of it: nothing is thrown away, nothing mixed."""
    world = laid.world
    assert laid.run("apply").code == 0
    for address in (None, "kafka-group:"):
        kept = world.rows(address)
        (row,) = (row for row in kept if (row.key.topic, row.key.partition) == (world.mirrored, 1))
        here = Anchor(row.stored.offset, cluster_id=world.cluster.cluster_id)
        world.save({1: StoredOffset(row.stored.offset + 1, here)}, topic=world.mirrored, address=address)
        gone_on = laid.bytes()
        ended = laid.run("rollback")
        assert (ended.code, "is no longer as apply left it: the job has gone on" in ended.err) == (5, True), (
            ended.output
        )
        assert laid.bytes() == gone_on
        world.save({1: row.stored}, topic=world.mirrored, address=address)
    assert laid.run("rollback").code == 0


def test_an_apply_in_part_and_a_job_that_went_on_are_told_apart(laid: Laid, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job ``sums`` was never written, and has gone on from where it was."""
    world = laid.world
    with monkeypatch.context() as patch:
        dies(patch, KafkaGroupStore, 0, Unreachable("The broker is gone."))
        assert laid.run("apply").code == 7
    here = Anchor(5, cluster_id=world.cluster.cluster_id)
    world.save({0: StoredOffset(6, here)}, topic=world.mirrored, address="kafka-group:")
    gone_on = laid.bytes()
    assert laid.run("rollback").code == 5
    assert laid.bytes() == gone_on


# ---------------------------------------------------------------- the snapshot


def test_without_its_snapshot_a_plan_cannot_be_rolled_back(laid: Laid) -> None:
    assert laid.run("apply").code == 0
    applied = laid.bytes()
    laid.snapshot.unlink()
    ended = laid.run("rollback")
    assert (ended.code, "There is no snapshot" in ended.err) == (2, True)
    assert "Nothing was put back." in ended.err
    assert laid.bytes() == applied


def test_another_plans_snapshot_is_not_taken(laid: Laid) -> None:
    assert laid.run("apply").code == 0
    assert laid.run("rollback").code == 0
    snapshot = laid.snapshot.read_text()
    laid.snapshot.unlink()
    plan = laid.world.plan(laid.config, "--job", "clicks", "--set", f"{laid.world.mirrored}:0=0")
    laid.snapshot.write_text(snapshot)
    for command in ("apply", "rollback"):
        ended = laid.run(command)
        assert (ended.code, "belongs to another plan" in ended.err) == (5, True), ended.output
        assert laid.bytes() == laid.before
    assert plan["sha256"] not in snapshot


# ---------------------------------------------------------------- the configuration


def test_a_rollback_at_another_cluster_is_refused(laid: Laid, clusters: Any) -> None:
    """There the group has no rows, which would look as if all were as it was before."""
    assert laid.run("apply").code == 0
    applied = laid.bytes()
    jobs = (laid.world.job("clicks"), laid.world.job("sums", store="kafka-group:"))
    elsewhere = laid.world.config(*jobs, bootstrap=clusters.source.bootstrap)
    ended = laid.run("rollback", elsewhere)
    assert (ended.code, "The plan is for cluster" in ended.err) == (5, True), ended.output
    assert laid.bytes() == applied
