"""A plan too large for the other commands to read is refused when it is made, not when it is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.cli.commands.failover import plan
from reconciler.core.errors import ConfigError
from tests.formats.test_plan import part, plan_of


def test_a_plan_too_large_to_be_read_is_refused_and_the_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, small = tmp_path / "failover.plan.json", plan_of(part())
    monkeypatch.setattr(plan, "LARGEST_FILE", 2 * len(small.to_text()))
    plan._write(small, path, None)
    (job,) = small.jobs
    large = replace(small, jobs=(job, replace(job, name="second"), replace(job, name="third")))
    with pytest.raises(ConfigError, match=r"MiB, and no command would read it.*--job"):
        plan._write(large, path, None)
    assert path.read_text() == small.to_text()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
