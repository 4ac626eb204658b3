"""``plan``: the next step that it names, the file that it does not overwrite, and plans that are too large."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.cli import context
from reconciler.cli.commands import apply, plan
from reconciler.cli.main import main
from reconciler.config.settings import Job
from reconciler.core.anchors import Identity, record_timestamp
from reconciler.core.errors import ConfigError
from reconciler.failover.writing.apply import JobChanges
from tests.in_memory import Memory, stored
from tests.plan.test_plan import part, plan_of


@pytest.fixture
def planned(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job that has processed five of six records; its command line finds memory where it looks for servers."""
    memory.deliver(range(6))
    memory.save({0: stored(5)})
    for read in ("read_config", "read_located"):
        monkeypatch.setattr(context, read, lambda _: memory.config())
    monkeypatch.setattr(context, "outside", lambda *_: nullcontext(memory.outside))
    return tmp_path / "a plan.json"


def test_a_plan_that_moves_offsets_is_to_be_applied(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-c", "my jobs.toml", "-o", str(planned)]) == 0
    assert f"Next: reconciler apply '{planned}' -c 'my jobs.toml'\n" in capsys.readouterr().out


def test_a_plan_that_changes_nothing_is_not_to_be_applied(
    planned: Path, memory: Memory, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.apply()
    assert main(["plan", "-c", "jobs.toml", "-o", str(planned)]) == 0
    said = capsys.readouterr().out
    assert "Nothing to apply: every offset is right where the job will look.\n" in said
    assert "Next:" not in said


def test_a_plan_too_large_to_be_read_is_refused_and_the_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, small = tmp_path / "failover.plan.json", plan_of(part())
    monkeypatch.setattr(plan, "LARGEST_FILE", 2 * len(small.to_text()))
    plan._write(small, path)
    (job,) = small.jobs
    large = replace(small, jobs=(job, replace(job, name="second"), replace(job, name="third")))
    with pytest.raises(ConfigError, match=r"MiB, and no command would read it.*--job"):
        plan._write(large, path)
    assert path.read_text() == small.to_text()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_apply_names_the_first_of_many_rows_that_refuse_a_job() -> None:
    rows = tuple((replace(part(), partition=number), "nothing could be proven") for number in range(500))
    job = Job("clicks", "clicks", ("events",), "memory:", Identity(record_timestamp))
    said = str(apply.changes_text([JobChanges(job, refused=rows)]))
    assert said.count("must not start") == apply.MOST_REFUSED
    assert f"clicks: … and {500 - apply.MOST_REFUSED} more; `reconciler show PLAN` lists all." in said
