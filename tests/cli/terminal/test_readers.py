"""The reader of a command's output may end early: the command still does its work, with the same exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pytest

from reconciler.cli.main import main
from tests.golden.corpus import Estate

CONFIG = ("-c", "reconciler.toml")
HOOK = ("hook", *CONFIG, "--plans", "plans", "--job")


@pytest.fixture
def moving(estate: Estate) -> Estate:
    estate.world.located(to="b")
    return estate


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], TextIO]:
    """Make ``stdout`` or ``stderr`` a pipe whose reader has ended."""

    def made(name: str) -> TextIO:
        reader, writer = os.pipe()
        os.close(reader)
        monkeypatch.setattr(sys, name, open(writer, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the test
        return getattr(sys, name)  # type: ignore[no-any-return]

    return made


@pytest.mark.parametrize("name", ["stdout", "stderr"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("plan", *CONFIG, "--job", "stuck"), 4),
        (("plan", *CONFIG, "--job", "clicks"), 3),
        (("plan", *CONFIG, "--job", "stuck", "-o", "p.json"), 4),
        (("plan", "-c", "nowhere.toml"), 2),
        ((*HOOK, "stuck"), 4),
        ((*HOOK, "clicks", "--env-file", "start.env"), 0),
    ],
)
def test_the_exit_code_is_the_commands_own(
    moving: Estate, unread: Callable[[str], TextIO], words: tuple[str, ...], code: int, name: str
) -> None:
    unread(name)
    assert main(list(words)) == code


def test_what_is_to_be_written_is_written(estate: Estate, unread: Callable[[str], TextIO]) -> None:
    estate.world.located()
    assert estate.world.run("plan", *CONFIG, "--job", "clicks", "-o", "p.json").code == 0
    before = estate.world.tables("offsets.db")
    unread("stdout")
    unread("stderr")
    assert main(["apply", "p.json", *CONFIG, "--yes"]) == 0
    assert estate.world.tables("offsets.db") != before
    assert main(["rollback", *CONFIG, "--job", "clicks", "--yes"]) == 0


def test_a_hook_whose_plan_nobody_reads_corrects_the_offsets(moving: Estate, unread: Callable[[str], TextIO]) -> None:
    before = moving.world.tables("offsets.db")
    unread("stderr")
    assert main([*HOOK, "clicks"]) == 0
    assert moving.world.tables("offsets.db") != before


def test_a_hook_whose_variables_nobody_reads_does_not_let_the_job_start(
    moving: Estate, unread: Callable[[str], TextIO], capsys: pytest.CaptureFixture[str]
) -> None:
    unread("stdout")
    assert main([*HOOK, "clicks"]) == 2
    assert 'The variables of job "clicks" were not read' in capsys.readouterr().err


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_process_ends_with_its_own_code(tmp_path: Path, stream: str) -> None:
    """Python itself ends with 120 if it cannot write what is left."""
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: writer}
    words = [sys.executable, "-m", "reconciler"]
    for more, code in ((["--help"], 0), (["plan", "-c", str(tmp_path / "nowhere.toml")], 2)):
        ended = subprocess.run([*words, *more], check=False, **streams)  # type: ignore[call-overload]
        assert ended.returncode == code
    os.close(writer)
