"""Where the demo works: a folder of its own, in which nothing stands from an earlier one."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.cli.main import main


def test_a_folder_with_files_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker that finds another cluster's data runs, and never answers."""
    (tmp_path / "a").mkdir()
    assert main(["demo", "--folder", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.err == f"The folder {tmp_path} is not empty. Name a new or an empty one for the demo.\n"
    assert said.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
