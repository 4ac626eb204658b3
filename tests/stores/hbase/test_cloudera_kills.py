"""Cloudera's layout with anchors, in memory: a write that ends at any call, and a job that goes on before any read.

The job's rows have no anchor of their own. They may be read with an anchor of the wrong numbering only if it no longer
says which numbering that is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Unreachable
from reconciler.ports import Change, Row, TopicPartition
from reconciler.stores.hbase.cloudera import ClouderaStore
from reconciler.stores.hbase.layouts import cloudera
from tests.stores.hbase.fake_table import FakeTable

KEY, BEGIN = TopicPartition("events", 0), 1_700_000_000_000


class Killed(BaseException):
    """Stands for SIGKILL within the process of the test."""


def of(side: str, offset: int) -> StoredOffset:
    """A stored offset in one side's numbering, with its anchor."""
    anchor = Anchor(offset - 1, offset, None, "0" * 32, side, f"{side}/events")
    return StoredOffset(offset, anchor)


class Job:
    """A job of one topic at the source ``a`` or the destination ``b``; ``sides`` says whose number each offset is."""

    def __init__(self) -> None:
        self.table, self.now = FakeTable(), BEGIN
        self.store = ClouderaStore(cast(Any, self.table), "hbase:", anchor_family=b"anchors")
        self.sides = {1000: "a"}
        self.snapshot: Row | None = None

    def stores(self, offset: int) -> None:
        self.now += 1000
        self.table.put(cloudera.row_key(KEY.topic, "g", self.now), {b"offsets:0": b"%d" % offset})

    def goes_on(self, step: int) -> None:
        """Numbers of ``b`` are odd here, those of ``a`` even."""
        offset, side = self.latest
        offset = (offset + step) // 2 * 2 + (side == "b")
        self.sides[offset] = side
        self.stores(offset)

    @property
    def latest(self) -> tuple[int, str]:
        rows = [key for key, cells in self.table.data.items() if key.startswith(b"events:g:") and cells]
        offset = int(self.table.data[max(rows)][b"offsets:0"].value)
        return offset, self.sides[offset]

    def row(self) -> Row:
        (row,) = self.store.read("g", [KEY.topic])
        return row

    def write(self, new: StoredOffset | None, text: str | None = None, *, restores: bool = False) -> None:
        """As a command does: it reads its row back."""
        self.now += 1000
        change = Change(KEY, self.row().version, new, text=text, restores=restores)
        self.store.write("g", [change], reason="test", now_ms=self.now)
        self.row()

    def apply(self, step: int) -> None:
        self.snapshot = self.row()
        offset = (self.snapshot.stored.offset + step) // 2 * 2 + 1
        self.sides[offset] = "b"
        self.write(of("b", offset))

    def roll_back(self) -> None:
        assert self.snapshot is not None
        self.write(self.snapshot.stored, self.snapshot.text, restores=True)

    def fail_back(self) -> None:
        assert self.snapshot is not None
        self.write(of("a", self.snapshot.stored.offset))

    def interrupted(self, step: Callable[[], None], at: int, error: BaseException, *, after: bool) -> bool:
        """Do a step whose call number ``at`` raises; False if it has fewer calls."""
        calls = itertools.count()

        def around(_: str, __: bytes, call: Callable[[], object]) -> object:
            if next(calls) != at:
                return call()
            if after:
                call()
            raise error

        self.table.around = around
        try:
            step()
        except (Killed, ReconcilerError):
            pass
        finally:
            self.table.around = lambda _, __, call: call()
        return next(calls) > at

    def is_misread(self) -> bool:
        row = self.row()
        anchor = row.stored.anchor
        return anchor is not None and anchor.cluster_id not in (None, self.sides[row.stored.offset])


@pytest.fixture
def job() -> Job:
    job = Job()
    job.stores(1000)
    return job


STEPS: dict[str, Callable[[Job], None]] = {
    "goes on": lambda job: job.goes_on(50),
    "goes on far": lambda job: job.goes_on(700),
    "apply to smaller numbers": lambda job: job.apply(-600),
    "apply to larger numbers": lambda job: job.apply(600),
    "roll back": Job.roll_back,
    "fail back": Job.fail_back,
}


def plans(longest: int) -> list[tuple[str, ...]]:
    """Corrections and what follows; what is not possible at the job's place is left out."""

    def fits(plan: tuple[str, ...]) -> bool:
        side = "a"
        for name in plan:
            if not name.startswith("goes"):
                if (side == "a") != name.startswith("apply"):
                    return False
                side = "b" if side == "a" else "a"
        return plan[0].startswith("apply")

    return [plan for length in range(1, longest + 1) for plan in itertools.product(STEPS, repeat=length) if fits(plan)]


@pytest.mark.parametrize(("error", "after"), [(Killed(), True), (OutcomeUnknown("lost"), False)])
def test_no_offset_is_read_in_another_clusters_numbering(error: BaseException, after: bool, thorough: bool) -> None:
    """The job goes on after the interrupted step, from the row that it finds in the table."""
    tried = 0
    misread: list[object] = []
    for plan in plans(3 if thorough else 2):
        for place in (number for number, name in enumerate(plan) if not name.startswith("goes")):
            for at in itertools.count():
                job = Job()
                job.stores(1000)
                for name in plan[:place]:
                    STEPS[name](job)
                if not job.interrupted(lambda job=job, name=plan[place]: STEPS[name](job), at, error, after=after):  # type: ignore[misc]
                    break
                for name in plan[place + 1 :]:
                    if name.startswith("goes") or (job.latest[1] == "a") == name.startswith("apply"):
                        STEPS[name](job)
                tried += 1
                misread += [(plan, place, at)] * job.is_misread()
                for far in (30, 700):
                    job.goes_on(far)
                    misread += [(plan, place, at, far)] * job.is_misread()
    assert misread == []
    assert tried > 100


def test_a_rollback_whose_companion_stays_behind_leaves_no_anchor_for_the_jobs_next_rows(job: Job) -> None:
    job.apply(-600)

    def around(name: str, key: bytes, call: Callable[[], object]) -> object:
        if name == "delete_row" and key.startswith(b"!"):
            raise Unreachable("It is away.")
        return call()

    job.table.around = around
    job.roll_back()
    job.table.around = lambda _, __, call: call()
    job.stores(1200)
    assert job.row().stored == StoredOffset(1200, None, job.now)


def test_a_rollback_that_changed_nothing_leaves_the_destinations_anchor(job: Job) -> None:
    """Without it, the number would be taken for the source's."""
    job.apply(-600)
    offset, _ = job.latest

    def around(name: str, _: bytes, call: Callable[[], object]) -> object:
        if name == "delete_row":
            raise Killed
        return call()

    job.table.around = around
    with pytest.raises(Killed):
        job.roll_back()
    job.table.around = lambda _, __, call: call()
    job.stores(offset + 50)
    row = job.row()
    assert (row.stored.anchor, row.anchor_lag) == (of("b", offset).anchor, 50)


def killed_unseen(job: Job, new: StoredOffset, text: str | None = None, *, restores: bool = False) -> None:
    """The row is put, and no reader sees it before the job goes on."""

    def around(name: str, key: bytes, call: Callable[[], object]) -> object:
        found = call()
        if name == "put" and not key.startswith(b"!"):
            raise Killed
        return found

    job.table.around = around
    with pytest.raises(Killed):
        job.write(new, text, restores=restores)
    job.table.around = lambda _, __, call: call()


def test_after_an_unseen_correction_the_first_anchor_counts_and_says_no_numbering(job: Job) -> None:
    job.write(of("a", 1010))
    killed_unseen(job, of("b", 411))
    job.stores(1060)
    row = job.row()
    assert row.stored.anchor is not None
    assert (row.stored.anchor.offset, row.stored.anchor.cluster_id, row.anchor_lag) == (1009, None, 649)


@pytest.mark.parametrize(("before", "record"), [(of("a", 1000), 999), (StoredOffset(1000), None)])
def test_after_an_unseen_rollback_the_destinations_anchor_does_not_count(
    job: Job, before: StoredOffset, record: int | None
) -> None:
    """The row to put back is not the one below the latest: the job has run at the destination."""
    job.apply(-600)
    job.stores(411)
    restored = StoredOffset(before.offset, before.anchor, BEGIN)
    killed_unseen(job, restored, "1000", restores=True)
    job.stores(1200)
    row = job.row()
    assert row.stored.anchor is not None
    assert (row.stored.anchor.offset, row.stored.anchor.cluster_id, row.anchor_lag) == (record, None, 799)


def test_what_follows_an_unseen_correction_is_no_base_for_the_next(job: Job) -> None:
    """A second write, killed before its row, must not make the doubtful row's numbering sure again."""
    job.write(of("a", 1010))
    killed_unseen(job, of("b", 411))
    job.stores(1060)
    assert job.interrupted(lambda: job.write(of("b", 1111)), 12, Killed(), after=False)
    job.stores(1070)
    anchor = job.row().stored.anchor
    assert anchor is None or anchor.cluster_id is None
