"""The command line's own exit codes, whatever the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.cli.main import main
from tests.config.configurations import LEAST


def in_shell(line: str) -> subprocess.CompletedProcess[str]:
    """``line`` in a shell, with ``reconciler`` as its arguments."""
    words = ["sh", "-c", line, "sh", sys.executable, "-m", "reconciler"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_closed_streams_are_no_bug() -> None:
    ended = in_shell('"$@" help plan <&- >&-')
    assert (ended.returncode, ended.stderr) == (0, "")
    ended = in_shell('"$@" show nowhere.json <&- >&- 2>&-')
    assert ended.returncode == 2


@pytest.mark.parametrize(
    ("buffered", "words"),
    [
        ("PYTHONUNBUFFERED=", "--version"),
        *((f"PYTHONUNBUFFERED={one}", words) for words in ("--help", "help plan") for one in ("", "1")),
    ],
)
def test_a_full_disk_is_no_bug_while_the_options_are_read(buffered: str, words: str) -> None:
    ended = in_shell(f'{buffered} "$@" {words} > /dev/full')
    assert ended.returncode == 2
    assert ended.stderr.startswith("The output cannot be written: No space left on device. Make room")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("init", "--bootstrap-servers", "http://b:9092"),
            "The bootstrap servers are not a list of brokers. Write",
        ),
        (
            ("show", "p.json", "--starting-offsets", "--html", "p.html"),
            "argument --html: not allowed with argument --starting-offsets",
        ),
        *(
            ((*words.split(), ""), f"argument {name}: is empty. If it comes from a variable, that is not set\n")
            for words, name in {
                "plan -c": "-c/--config",
                "plan -c x -o": "-o/--output",
                "apply -c x": "PLAN",
                "hook -c x --plans": "--plans",
                "hook -c x --env-file": "--env-file",
                "anchors export -c x": "PATH",
                "checkpoint show": "PATH",
                "audit p.json --output": "--output",
                "demo stop --folder": "--folder",
                "init --store": "--store",
                "init --separator": "--separator",
            }.items()
        ),
    ],
)
def test_a_mistyped_command_line_says_what_to_write(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("move", "-c", "x", "--to", "a", "--to", "b"), "--to"),
        (("hook", "-c", "x", "--wait", "3", "--wait=4"), "--wait"),
        (("hook", "-c", "x", "--env-file", "a", "--env-file", "b"), "--env-file"),
        (("plan", "-c", "x", "--config", "y"), "--config"),
        (("plan", "-cx", "-cy"), "-c"),
        (("plan", "-c", "x", "--set-time", "1000", "--set-time", "2000"), "--set-time"),
        (("plan", "-c", "x", "--format", "json", "--format", "text"), "--format"),
        (("config", "check", "-c", "x", "-c", "y"), "-c"),
        (("plan", "-c", "x", "-o", "p", "-o", "q"), "-o"),
        (("init", "--store", "postgresql://me:hunter2@h/db", "--store", "memory:"), "--store"),
    ],
)
def test_a_second_value_does_not_silently_replace_the_first(
    words: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert f"{option} is given twice, with different values: this command takes one" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "-c", "nowhere.toml", "--config", "nowhere.toml"),
        ("--log-format", "json", "plan", "-c", "nowhere.toml", "--log-format", "text"),
        ("hook", "-c", "nowhere.toml", "--", "job", "-c", "other"),
    ],
)
def test_one_value_may_be_repeated_and_a_command_has_options_of_its_own(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert "There is no configuration file nowhere.toml." in capsys.readouterr().err


def test_a_misspelt_action_is_not_said_to_be_in_a_wrong_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["anchors", "begin", "-c", "x.toml"]) == 2
    assert "comes before the options" not in capsys.readouterr().err


def test_where_the_applied_plan_is_not_there_a_new_one_is_not_the_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "reconciler.toml"
    config.write_text(LEAST)
    assert main(["audit", str(tmp_path / "none.json"), "-c", str(config)]) == 2
    assert "Name the one that was applied: a new plan will not do." in capsys.readouterr().err
