"""How far a copy is, as a terminal and as a log shows it."""

from __future__ import annotations

import logging
import sys

import pytest

from reconciler.cli.terminal import progress
from reconciler.cli.terminal.output import in_bytes
from reconciler.cli.terminal.progress import CopyDisplay, copied_text
from reconciler.places.checkpoint.copying import Copied

HALF, ALL = Copied(3214, 20_000, 1_288_490_189, 5_368_709_120), Copied(20_000, 20_000, 5_368_709_120, 5_368_709_120)
SHOWN = "copied 3,214 of 20,000 files, 1.2 GiB of 5.0 GiB"


def test_a_terminal_has_one_line_that_goes_when_the_copy_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "REWRITE_S", 0.0)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    display = CopyDisplay()
    display(HALF)
    display(ALL)
    assert capsys.readouterr().err == f"\r\033[K{SHOWN}\r\033[K"


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("NO_COLOR", "1")])
def test_a_terminal_that_wants_no_sequence_gets_a_logs_lines(
    name: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(progress, "COPY_FIRST_S", 0.0)
    display = CopyDisplay()
    display(HALF)
    display(ALL)
    assert capsys.readouterr().err == ""
    assert [record.message for record in caplog.records] == [SHOWN]


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    display = CopyDisplay()
    for now[0] in (0.0, 1.0, 10.0, 11.0, 29.0, 30.0, 40.0):
        display(HALF)
    display(ALL)
    assert [record.message for record in caplog.records] == [copied_text(HALF)] * 2 == [SHOWN] * 2


def test_sizes_have_units() -> None:
    assert [in_bytes(size) for size in (0, 1023, 1024, 3_565_158, 2**50)] == [
        "0 bytes",
        "1023 bytes",
        "1.0 KiB",
        "3.4 MiB",
        "1024.0 TiB",
    ]
