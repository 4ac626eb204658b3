"""A rollback, then the job goes on at the source, and a check at the destination: with one topic name on both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import ReconcilerError, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import prepare, write
from reconciler.failover.writing.rollback import prepare_rollback, write_rollback
from reconciler.formats.plan import PartitionPlan
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import Change, OffsetStore, Row, TopicPartition, WriteResult
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired.store import PairedStore
from tests.in_memory import GROUP, NOW, Memory, content, on_disk, stored
from tests.mirror.written import LATER, SYNCS, write_syncs
from tests.stores.paired.bare import BareStore, Killed

KEY = TopicPartition("events", 0)
IDENTITY = '[topics]\npolicy = "identity"'
TRUE = 150
"""Where the job is to resume after it has processed 50 more records at the source."""


@dataclass
class Two(Memory):
    """The destination with 1,000 records, the job's store, and the [anchors] store beside it."""

    anchors: MemoryStore | None = None
    open_job: Callable[[], OffsetStore] | None = None

    @property
    def outside(self) -> Outside:
        assert self.open_job is not None
        opened = self.open_job
        return Outside(self.log, lambda _: opened(), lambda: self.clock, lambda: NOW)

    def put(self, store: OffsetStore, row: StoredOffset) -> None:
        there = {each.key: each.version for each in store.read(GROUP)}
        assert store.write(GROUP, [Change(KEY, there.get(KEY), row)], reason="test", now_ms=NOW - 9).written

    def paired(self) -> Row:
        assert self.open_job is not None
        (row,) = self.open_job().read(GROUP)
        return row


def world(folder: Path, name: str, store: MemoryStore) -> Two:
    log = MemoryLog("b", {"events": 1})
    for number in range(1000):
        stamp, key, value = content(number)
        log.partition("events", 0).append(stamp, key, value)
    return Two(log, store, folder, anchors=MemoryStore(f"{name} anchors"))


def never_skips(row: PartitionPlan) -> bool:
    return row.resume_offset is None or row.resume_offset <= TRUE


def lagging(folder: Path, name: str, bare: MemoryStore) -> tuple[Two, MemoryStore, Row]:
    """A job whose anchor is of record 99, with its anchors and its row: it has processed three more records."""
    two = world(folder, name, bare)
    anchors = two.anchors
    assert anchors is not None
    two.open_job = lambda: PairedStore(bare, anchors)
    two.put(anchors, stored(99))
    two.put(bare, StoredOffset(stored(99).offset + 3))
    return two, anchors, two.paired()


def test_an_anchor_that_lagged_lags_again_after_a_rollback(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    two, _, before = lagging(tmp_path, request.node.nodeid, BareStore(f"{request.node.nodeid} bare"))
    assert before.anchor_lag == 3
    checked, config, path = two.check(IDENTITY), two.config(IDENTITY), tmp_path / "p.plan.json"
    write(prepare(checked.plan, config, two.outside), checked.plan, on_disk(checked.plan, path), two.outside)
    assert two.paired().stored.offset == 100
    for _ in range(2):
        returns = prepare_rollback(checked.plan, path, config, two.outside)
        write_rollback(returns, checked.plan, path, config, two.outside)
        assert (two.paired().stored, two.paired().anchor_lag) == (before.stored, 3)
    row = two.row(IDENTITY)
    assert (row.verdict, row.resume_offset, row.replay_at_most) == (Verdict.BOUNDED, 100, 3)


@pytest.mark.parametrize("before", [stored(99, written_at_ms=NOW - 9), stored(99), StoredOffset(800)])
@pytest.mark.parametrize("error", [Killed, Unreachable("The anchor store is away.")])
def test_a_rollback_that_ends_between_offset_and_anchor_lets_no_record_be_skipped(
    tmp_path: Path, request: pytest.FixtureRequest, before: StoredOffset, error: Any
) -> None:
    bare = BareStore(f"{request.node.nodeid} bare")
    two = world(tmp_path, request.node.nodeid, bare)
    assert two.anchors is not None
    anchors = two.anchors
    two.open_job = lambda: PairedStore(bare, anchors)
    stamp, key, value = content(99)
    there = StoredOffset(100, Anchor(99, stamp, None, fingerprint(key, value), "b", "b/events"), NOW)
    two.put(bare, StoredOffset(100))
    two.put(anchors, there)

    class Away(MemoryStore):
        gone = False

        def write(self, group: str, changes: Sequence[Change], **more: Any) -> WriteResult:
            if self.gone:
                raise error
            return anchors.write(group, changes, **more)

    kept = Away(anchors.address.removeprefix("memory:"))

    class Last(BareStore):
        def write(self, group: str, changes: Sequence[Change], **more: Any) -> WriteResult:
            result = bare.write(group, changes, **more)
            kept.gone = True
            return result

    change = Change.restoring(KEY, two.paired().version, before)
    with pytest.raises((Killed, ReconcilerError)):
        PairedStore(Last(bare.address.removeprefix("memory:")), kept).write(
            GROUP, [change], reason="rollback", now_ms=NOW
        )
    two.put(bare, StoredOffset(850))
    row = two.row(IDENTITY)
    assert never_skips(row)
    assert "which cluster numbers the stored offset is not known" in row.detail
    found = (row.verdict, row.resume_offset, row.replay_at_most)
    assert found == ((Verdict.UNRESOLVED, None, None) if before.anchor is None else (Verdict.BOUNDED, 100, 750))


@pytest.mark.parametrize("step", [1, 100])
@pytest.mark.parametrize("ahead", [-300, 0, 200, 5000], ids=lambda ahead: f"numbers {ahead} ahead")
def test_a_killed_apply_for_which_no_anchor_was_kept_and_the_job_goes_on(
    tmp_path: Path, request: pytest.FixtureRequest, ahead: int, step: int
) -> None:
    """Only the mirror's pairs placed the row. Its number may be either cluster's now."""
    bare = BareStore(f"{request.node.nodeid} bare")
    two = world(tmp_path, request.node.nodeid, bare)
    anchors = two.anchors
    assert anchors is not None
    mirrored = f'{IDENTITY}\n[mirror]\noffset_syncs_topic = "{SYNCS}"'
    write_syncs(two.log, *((place + ahead, place) for place in range(0, 1000, step) if place + ahead >= 0), at_ms=LATER)
    two.put(bare, StoredOffset(301 + ahead))
    two.open_job = lambda: PairedStore(bare, anchors)
    checked, config, path = two.check(mirrored), two.config(mirrored), tmp_path / "p.plan.json"

    class Last(BareStore):
        def write(self, group: str, changes: Sequence[Change], **more: Any) -> WriteResult:
            bare.write(group, changes, **more)
            raise Killed

    two.open_job = lambda: PairedStore(Last(bare.address.removeprefix("memory:")), anchors)
    with suppress(Killed):
        write(prepare(checked.plan, config, two.outside), checked.plan, on_disk(checked.plan, path), two.outside)
    two.open_job = lambda: PairedStore(bare, anchors)
    for further in (10, 600):
        (row,) = bare.read(GROUP)
        number = row.stored.offset + further
        two.put(bare, StoredOffset(number))
        found = two.row(mirrored)
        assert found.resume_offset is None or found.resume_offset <= number
