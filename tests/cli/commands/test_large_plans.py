"""Large plans: one that no command could read is refused when it is made, and messages name a few rows of many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.cli.commands import apply, plan
from reconciler.config.settings import Job
from reconciler.core.anchors import Identity, record_timestamp
from reconciler.core.errors import ConfigError
from reconciler.failover.writing.apply import JobChanges
from tests.plan.test_plan import part, plan_of


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


def test_apply_names_the_first_of_many_rows_that_refuse_a_job() -> None:
    rows = tuple((replace(part(), partition=number), "nothing could be proven") for number in range(500))
    job = Job("clicks", "clicks", ("events",), "memory:", Identity(record_timestamp))
    said = str(apply.changes_text([JobChanges(job, refused=rows)]))
    assert said.count("must not start") == apply.MOST_REFUSED
    assert f"clicks: … and {500 - apply.MOST_REFUSED} more; `reconciler show PLAN` lists all." in said
