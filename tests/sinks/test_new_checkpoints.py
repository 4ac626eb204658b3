"""Jobs that keep their offsets elsewhere: after a correction they begin a new checkpoint, with batch 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.cli.commands.failover.check import verdict_code
from reconciler.core.errors import ExitCode
from reconciler.failover.check import Checked, check
from reconciler.formats.plan_sinks import SinkOutcome
from tests.in_memory import Memory, memory, read_back, stored

__all__ = ["memory"]


@pytest.fixture
def lost(memory: Memory) -> Memory:
    """Ten records are mirrored; the job has processed 0 to 4."""
    memory.deliver(range(10))
    memory.save({0: stored(4)})
    return memory


def checked(world: Memory, sink: Path) -> Checked:
    job = '[[jobs]]\nname = "clicks"\ngroup = "readers"\ntopics = ["events"]\nstore = "memory:"\n'
    config = world.config(jobs=f'{job}sink = "files:{sink}"\n')
    return read_back(check(config, config.jobs, world.outside))


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


def test_on_a_path_of_its_own_they_are_taken(lost: Memory, tmp_path: Path) -> None:
    found = checked(lost, tmp_path / "out")
    assert outcome(found) is SinkOutcome.FITS
    assert verdict_code(found, lost.config().policy.start) is ExitCode.CORRECTABLE


def test_a_job_that_continues_is_compared_where_its_checkpoint_is_known(lost: Memory, tmp_path: Path) -> None:
    """By the hand-off, in the job: here only the job's offsets are known, and they are right."""
    lost.apply()
    put_out(tmp_path / "out", 7)
    found = checked(lost, tmp_path / "out")
    assert outcome(found) is SinkOutcome.UNKNOWN
    assert verdict_code(found, lost.config().policy.start) is ExitCode.OK
