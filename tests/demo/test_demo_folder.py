"""Where the demo works: in a folder of its own. It starts in no other one, and ends and deletes nothing there."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.cli.main import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "The folder {} is not empty. Name a new or an empty one for the demo."),
        (["stop"], "{} is not a demo's folder. Name the demo's folder with --folder."),
        (["stop", "--source"], "{} is not a demo's folder. Name the demo's folder with --folder."),
    ],
)
def test_a_folder_with_other_files_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """A broker that finds another cluster's data runs, and never answers."""
    (tmp_path / "a").mkdir()
    assert main(["demo", *words, "--folder", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", said.format(tmp_path) + "\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_stop_where_no_demo_is(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("RECONCILER_CACHE", str(tmp_path))
    assert main(["demo", "stop"]) == 0
    assert main(["demo", "stop", "--source"]) == 0
    assert capsys.readouterr().out == (
        f"There is no demo in {tmp_path / 'demo'}.\nCluster a and the mirror were not running.\n"
    )


@pytest.mark.parametrize("words", [["--source"], ["stop", "--keep"]])
def test_options_of_the_other_action_are_refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["demo", *words]) == 2
    assert capsys.readouterr().err == "--keep is for a demo that starts, --source for `reconciler demo stop`.\n"
