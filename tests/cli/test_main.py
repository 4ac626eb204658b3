"""The command line's own exit codes, whatever the command."""

from __future__ import annotations

from typing import NoReturn

import pytest

from reconciler.cli.main import main


def swallowed() -> NoReturn:
    """As Python reports an interrupt that came within a call of a client library."""
    raise SystemError("returned a result with an exception set") from KeyboardInterrupt()


def test_an_interrupt_within_a_call_of_the_client_is_an_interrupt_and_not_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reconciler.cli.commands.failover.show.run", lambda options: swallowed())
    assert main(["show", "any.plan.json"]) == 130
    assert capsys.readouterr().err == "Interrupted. Nothing was written.\n"
