"""What ``plan`` names as the next step, and which file it does not overwrite."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from reconciler.cli import context
from reconciler.cli.main import main
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
