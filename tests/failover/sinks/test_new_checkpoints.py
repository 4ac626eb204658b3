"""Jobs that keep their offsets elsewhere: after a correction they begin a new checkpoint, with batch 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.cli.commands.plan import verdict_code
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ExitCode
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.outside import ByHand
from reconciler.plan.rows import SinkOutcome
from tests.failover.sinks.tables.delta_table import Delta
from tests.in_memory import BASE, Memory, anchor, memory, read_back, stored

__all__ = ["memory"]


@pytest.fixture
def lost(memory: Memory) -> Memory:
    """Ten records are mirrored; the job has processed 0 to 4."""
    memory.deliver(range(10))
    memory.save({0: stored(4)})
    return memory


def checked(world: Memory, sink: Path, kind: str = "files", by_hand: ByHand | None = None) -> Checked:
    job = '[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "readers"\ntopics = ["events"]\noffsets = "memory:"\n'
    config = world.config(jobs=f'{job}sink = "{kind}:{sink}"\n')
    return read_back(check(config, config.jobs, world.outside, by_hand))


def outcome(found: Checked) -> SinkOutcome:
    (job,) = found.plan.jobs
    (row,) = job.sinks
    return row.outcome


def put_out(folder: Path, batch: int) -> None:
    (folder / "_spark_metadata").mkdir(parents=True, exist_ok=True)
    (folder / "_spark_metadata" / str(batch)).write_text("v1")


def test_on_the_old_path_its_first_batches_would_be_dropped(lost: Memory, tmp_path: Path) -> None:
    put_out(tmp_path / "out", 7)
    found = checked(lost, tmp_path / "out")
    assert outcome(found) is SinkOutcome.DROPS
    assert "batches 0 to 7 without an error" in found.plan.jobs[0].sinks[0].detail
    assert verdict_code(found, lost.config().policy.start) is ExitCode.NEEDS_PERSON


def test_a_job_that_continues_is_compared_where_its_checkpoint_is_known(lost: Memory, tmp_path: Path) -> None:
    """By the hand-off, in the job: here only the job's offsets are known, and they are right."""
    lost.apply()
    put_out(tmp_path / "out", 7)
    found = checked(lost, tmp_path / "out")
    assert outcome(found) is SinkOutcome.UNKNOWN
    assert verdict_code(found, lost.config().policy.start) is ExitCode.OK


@pytest.fixture
def lagging(lost: Memory) -> Memory:
    """The job has gone on to record 7 since its anchor, that of record 4, was kept."""
    lost.save({0: StoredOffset(BASE + 8, anchor(4))})
    return lost


def test_a_new_checkpoint_that_repeats_records_of_the_table_stops_the_job(lagging: Memory, tmp_path: Path) -> None:
    """The table takes every batch of a new name."""
    pytest.importorskip("deltalake")
    Delta(tmp_path / "out").batch(7)
    found = checked(lagging, tmp_path / "out", "delta")
    assert outcome(found) is SinkOutcome.DOUBLES
    assert "at most 3 records again" in found.plan.jobs[0].sinks[0].detail
    assert verdict_code(found, lagging.config().policy.start) is ExitCode.NEEDS_PERSON


@pytest.mark.parametrize(
    "by_hand", [ByHand(accepted=frozenset({Verdict.EARLY})), ByHand({("a.events", 0): 8}, skips=True)]
)
def test_a_person_may_accept_them_or_place_the_start_behind_them(
    lagging: Memory, tmp_path: Path, by_hand: ByHand
) -> None:
    pytest.importorskip("deltalake")
    Delta(tmp_path / "out").batch(7)
    found = checked(lagging, tmp_path / "out", "delta", by_hand)
    assert outcome(found) is SinkOutcome.FITS
    assert verdict_code(found, lagging.config().policy.start) is ExitCode.CORRECTABLE
