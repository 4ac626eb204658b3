"""A command that does not take its cluster from the hook starts only where its job lives (A24)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import main
from tests.starting import with_state

CONFIG = """
[clusters.a]
bootstrap_servers = "a:1"
[clusters.b]
bootstrap_servers = "b:1"
[[jobs]]
name = "clicks"
home = "a"
topics = ["events"]
new = "earliest"
offsets = "sqlite:///FOLDER/offsets.db"
"""


@pytest.fixture
def hook(tmp_path: Path) -> Any:
    config = tmp_path / "reconciler.toml"
    config.write_text(CONFIG.replace("FOLDER", str(tmp_path)))

    def run(*words: str, to: str | None = None) -> int:
        return main(["hook", "-c", str(with_state(config, to=to)), "--plans", str(tmp_path / "plans"), *words])

    return run


def test_it_starts_where_the_job_lives(hook: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hook("--cluster", "a") == 0
    assert hook("--cluster", "b") == 4
    said = capsys.readouterr().err
    assert 'Job "clicks" starts on a, and its command reads b' in said
    assert f"reconciler move -c {tmp_path}/reconciler.toml --to b --job clicks" in said


def test_it_does_not_start_where_a_job_that_moves_has_lived(hook: Any) -> None:
    """A scheduler of the old site still starts its command there."""
    assert hook("--cluster", "a", to="b") == 4


def test_a_cluster_that_is_none_is_named(hook: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert hook("--cluster", "c") == 2
    assert 'no cluster "c". It has: a, b.' in capsys.readouterr().err
