"""What ``plan`` names as the next step, and which file it does not overwrite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from reconciler.cli import context
from reconciler.cli.main import main
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import prepare, write
from reconciler.formats import snapshot
from reconciler.formats.plan import parse_plan
from tests.in_memory import Memory, stored


@pytest.fixture
def planned(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job that has processed five of six records; its command line finds memory where it looks for servers."""
    memory.deliver(range(6))
    memory.save({0: stored(5)})
    for read in ("read_config", "read_located"):
        monkeypatch.setattr(context, read, lambda _: memory.config())
    monkeypatch.setattr(context, "outside_with_engine", lambda *_: nullcontext(memory.outside))
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


def test_a_plan_that_is_applied_during_the_search_is_not_overwritten(
    planned: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", "-c", "jobs.toml", "-o", str(planned)]
    assert main(command) == 0
    before = memory.rows()
    outside = memory.outside

    @contextmanager
    def applied_meanwhile(*_: object) -> Iterator[Outside]:
        yield outside
        plan = parse_plan(planned.read_text())
        write(prepare(plan, memory.config(), outside), plan, planned, outside)

    monkeypatch.setattr(context, "outside_with_engine", applied_meanwhile)
    signed = planned.with_name(f"{planned.name}.sig")
    signed.write_text("the signature of the plan that was applied")
    assert main(command) == 2
    assert "was applied, and only its snapshot can undo that. Write the new plan" in capsys.readouterr().err
    assert signed.exists()
    assert snapshot.path_for(planned).exists()
    monkeypatch.setattr(context, "outside", lambda _: nullcontext(memory.outside))
    signed.unlink()
    assert main(["rollback", str(planned), "-c", "jobs.toml", "--yes"]) == 0
    assert memory.rows() == before
