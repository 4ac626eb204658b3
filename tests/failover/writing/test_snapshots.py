"""The size of a snapshot: what is written can be read again, or nothing is written at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.core.errors import ConfigError
from reconciler.failover.writing import snapshots
from reconciler.failover.writing.apply import prepare, write
from reconciler.failover.writing.rollback import prepare_rollback
from reconciler.fileio import LARGEST_FILE
from reconciler.formats.snapshot import path_for
from tests.in_memory import Memory, on_disk, stored


def test_a_plan_whose_snapshot_could_not_be_read_again_is_not_applied(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.deliver(range(3, 50))
    memory.save({0: stored(6)})
    plan, config, before = memory.check().plan, memory.config(), memory.rows()
    path, changes = on_disk(plan, tmp_path / "p.json"), prepare(plan, config, memory.outside)
    monkeypatch.setattr(snapshots, "LARGEST_SNAPSHOT", 200)
    with pytest.raises(ConfigError, match=r"rollback could not read it\. Nothing was written.*fewer jobs"):
        write(changes, plan, path, memory.outside)
    assert memory.rows() == before
    assert not path_for(path).exists()
    monkeypatch.undo()
    write(changes, plan, path, memory.outside)
    monkeypatch.setattr(snapshots, "LARGEST_SNAPSHOT", path_for(path).stat().st_size)
    (back,) = prepare_rollback(plan, path, config, memory.outside)
    assert len(back.returns) == 1


def test_a_snapshot_may_be_larger_than_its_plan() -> None:
    """It holds each row twice, with the anchors: one of 30,000 rows of a group has more than a plan may have."""
    assert snapshots.LARGEST_SNAPSHOT > LARGEST_FILE
