"""A hook's display of its wait, and the file with the variables for the command."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.cli.terminal.output import duration
from reconciler.cli.terminal.progress import WaitDisplay
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.jobs.hook.kept import forget, hand_over, lines
from reconciler.jobs.hook.starting import Waiting
from reconciler.ports import TopicPartition

START = Waiting(3, 12, 0.0, 14_400.0, 250_000, TopicPartition("a.events", 3))


def turns(seconds: float, every: float = 2.0) -> Iterator[Waiting]:
    """A wait of four hours, looked at every two seconds."""
    for number in range(int(seconds / every)):
        yield replace(START, waited_s=number * every, left_s=START.left_s - number * every)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "reconciler.jobs.hook")
    return caplog


def test_in_a_log_a_wait_is_a_line_now_and_then(said: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture) -> None:
    shown = WaitDisplay(terminal=False)
    for now in turns(3_600):
        shown(now)
    assert said.messages[0] == (
        "waiting for the mirror: 3 of 12 partitions are behind; 0 s waited, 4 h left; "
        "longest lag 4 min 10 s (a.events-3)"
    )
    assert 115 <= len(said.messages) <= 125, "two a minute, and a few more at first"
    assert [message.partition("; ")[2].partition(",")[0] for message in said.messages[1:4]] == [
        "6 s waited",
        "16 s waited",
        "36 s waited",
    ]
    assert capsys.readouterr().err == ""


def test_on_a_terminal_a_wait_is_one_line_that_is_rewritten(
    said: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture
) -> None:
    shown = WaitDisplay(terminal=True)
    for now in turns(20):
        shown(now)
    shown(replace(START, behind=0, waited_s=20.0))
    printed = capsys.readouterr().err
    assert "\n" not in printed
    assert printed.count("\r\033[K") == 11
    assert printed.endswith("\r\033[K")
    assert "12 s waited, 3 h 59 min left" in printed.split("\r\033[K")[7]
    assert said.messages == ["the mirror has delivered the missing records, after 20 s"]


def test_the_line_is_never_longer_than_the_terminal_is_wide(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = WaitDisplay(terminal=True)
    shown(replace(START, farthest=TopicPartition("a.\x1b[2J" + 90 * "long", 3)))
    line = capsys.readouterr().err.removeprefix("\r\033[K")
    assert len(line) == 79
    assert "4 h left" in line
    assert "\x1b" not in line


@pytest.mark.parametrize("terminal", [True, False])
def test_an_outage_is_said_once_and_so_is_its_end(said: pytest.LogCaptureFixture, terminal: bool) -> None:
    shown = WaitDisplay(terminal=terminal)
    away = Unreachable("The destination cannot be reached.", hint="Look at it.")
    for now in turns(4):
        shown(now)
    for now in turns(20):
        shown(replace(now, waited_s=now.waited_s + 4, trouble=away))
    for now in turns(4):
        shown(replace(now, waited_s=now.waited_s + 24))
    assert said.messages.count("The destination cannot be reached. Still waiting, for this too.") == 1
    assert said.messages.count("the connection is back") == 1


def test_a_wait_in_vain_says_so(said: pytest.LogCaptureFixture) -> None:
    WaitDisplay(terminal=False)(replace(START, behind=1, waited_s=14_400.0, left_s=0.0))
    assert said.messages == ["timed out waiting: 1 of 12 partitions is behind; lag 4 min 10 s (a.events-3)"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (200, "3 min 20 s"), (3_600, "1 h"), (7_500, "2 h 5 min")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# ---------------------------------------------------------------- the environment's file

ODD = {
    "PLAIN": "/var/lib/clicks/plans/clicks-20260101T000000-000-1.plan.json",
    "SPACES": "/srv/the job's plans/#1 $HOME `x`.json",
    "QUOTES": 'a "b" \\c\\ \\$d',
    "LETTERS": "/srv/Ärger/计划",
    "EMPTY": "",
}

NAMES = {"RECONCILER_START": "/var/lib/clicks/plans/clicks.start.json", **ODD}


def test_a_shell_reads_back_what_was_written(tmp_path: Path) -> None:
    hand_over(tmp_path / "hook.env", ODD)
    shell = f". {tmp_path}/hook.env; " + "".join(f'printf "%s\\0" "${name}"; ' for name in ODD)
    read = subprocess.run(["sh", "-euc", shell], capture_output=True, check=True, env={"HOME": "/wrong"})
    assert read.stdout.decode().split("\0")[:-1] == list(ODD.values())


def test_an_ordinary_path_is_not_quoted() -> None:
    """Container engines take the text behind the sign as it is."""
    assert lines({"PLAIN": ODD["PLAIN"]}) == f"PLAIN={ODD['PLAIN']}\n"


def test_the_file_is_its_owners_alone_and_gone_before_anything_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "run" / "hook.env"
    forget(file)
    hand_over(file, NAMES)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["hook.env"]
    forget(file)
    assert not file.exists()
    forget(None)
    hand_over(None, ODD)


@pytest.mark.parametrize("content", ["DB_PASSWORD=x\n", "RECONCILER_CONFIG=here\n", "[clusters.b]\n"])
def test_a_file_that_a_hook_did_not_write_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    file = tmp_path / "app.env"
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"app\.env exists, and a hook did not write it.*Choose another --env-file"):
        forget(file)
    assert file.read_text() == content
    file.write_text("")
    forget(file)
    assert not file.exists()


def test_a_file_that_cannot_be_written_is_the_callers_move(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"hook\.env cannot be written: .*Choose another --env-file\."):
        forget(tmp_path / "file" / "hook.env")
