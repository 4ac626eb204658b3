"""SIGINT and SIGTERM: the first ends a command in order, and nothing is written after it; the second kills it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NoReturn

import pytest

from reconciler import written
from reconciler.cli.main import main, module_of
from reconciler.cli.terminal import signals
from reconciler.core.errors import ConfigError, OutcomeUnknown, ReconcilerError, Unreachable
from reconciler.fileio import write_whole
from reconciler.kafka.connection import Connection
from reconciler.spark import session
from reconciler.waits import waiting

PATIENCE_S = 30.0
WENT_ON = 99
SHOW = module_of("show")
NOTHING = "Interrupted. Nothing was written.\n"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """Run a function as a command and return its exit code; ``WENT_ON`` if the function returned."""

    def run(body: Callable[[], object]) -> int:
        def named(_: object) -> int:
            body()
            return WENT_ON

        monkeypatch.setattr(f"{SHOW}.run", named)
        return main(["show", "any.plan.json"])

    return run


def arrive(number: int = signal.SIGINT) -> None:
    """Send a signal, and give Python time to call its handler."""
    signal.raise_signal(number)
    for _ in range(1_000):
        pass


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_command_with_its_own_code_after_the_cleanup(
    command: Any, number: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    cleaned = []

    def body() -> None:
        try:
            arrive(number)
        finally:
            with suppress(ValueError):
                raise ValueError
            cleaned.append(True)

    assert (command(body), cleaned) == (code, [True])
    assert capsys.readouterr().err == NOTHING


# ---------------------------------------------------------------- an interrupt that is discarded


def to_a_store(_: Path) -> None:
    with written.writing("an offset"):
        raise AssertionError("it was written")


def to_a_file(folder: Path) -> None:
    write_whole(folder / "plan.json", "text")


def to_wait(_: Path) -> None:
    with waiting("a cluster", lambda: 60.0):
        raise AssertionError("it was waited for")


@pytest.mark.parametrize("write", [to_a_store, to_a_file, to_wait])
def test_nothing_is_written_or_waited_for_after_an_interrupt_that_was_swallowed(
    command: Any, tmp_path: Path, write: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def body() -> None:
        with suppress(BaseException):
            arrive()
        write(tmp_path)

    assert command(body) == 130
    assert capsys.readouterr().err.endswith(NOTHING)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_within_a_callback_of_the_kafka_client_ends_the_command(
    command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client turned Python's own KeyboardInterrupt into a SystemError, and the command reported a bug."""
    heard = []

    def hear(_: object, error: object) -> None:
        heard.append(error)
        if len(heard) == 1:
            arrive()

    monkeypatch.setattr(Connection, "_hear", hear)

    def body() -> None:
        consumer = Connection({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=PATIENCE_S).consumer({"group.id": "any"})
        end = monotonic() + PATIENCE_S
        while consumer.poll(0.05) is None and monotonic() < end:
            sleep(0.001)

    assert (command(body), len(heard)) == (130, 1)
    assert capsys.readouterr().err == NOTHING


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TypeError("not str"), 130),  # as confluent-kafka does: "Expected .name to be a unicode string type, not str"
        (SystemError("returned NULL"), 130),
        (ConfigError("It is not str."), 130),
        (Unreachable("It is away."), 130),
        (OutcomeUnknown("Perhaps."), 7),
    ],
)
def test_an_error_that_an_interrupt_caused_is_one_unless_an_outcome_is_unknown(
    command: Any, error: ReconcilerError, code: int
) -> None:
    def body() -> None:
        with suppress(KeyboardInterrupt):
            arrive()
        raise error

    assert command(body) == code


def test_an_interrupt_in_a_nested_command_ends_the_outer_one(
    command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def inner(_: object = None) -> NoReturn:
        arrive()
        raise AssertionError("not interrupted")

    def body() -> None:
        monkeypatch.setattr(f"{SHOW}.run", inner)
        main(["show", "any.plan.json"])

    assert command(body) == 130
    assert capsys.readouterr().err == NOTHING


# ---------------------------------------------------------------- handlers


def test_signals_are_handled_as_before_once_a_command_has_ended(command: Any) -> None:
    def handlers() -> list[object]:
        return [*map(signal.getsignal, (signal.SIGINT, signal.SIGTERM))]

    before, within = handlers(), []

    def body() -> None:
        with suppress(KeyboardInterrupt):
            arrive(signal.SIGTERM)
        within.extend(handlers())

    assert command(body) == WENT_ON
    assert within == [signal.SIG_DFL] * 2, "a second one kills"
    assert handlers() == before


@pytest.fixture
def _ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ignored")
def test_a_signal_that_is_ignored_stays_so(command: Any) -> None:
    """As under nohup, or for a background job of a shell script."""
    assert command(arrive) == WENT_ON


def test_starting_spark_keeps_the_sigint_handler() -> None:
    before = signal.getsignal(signal.SIGINT)
    with session._keep_sigint_handler():
        signal.signal(signal.SIGINT, lambda *_: None)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_ends_the_waits_of_a_command_that_runs_for_long() -> None:
    with signals.StopSignals(reload=True) as stop:
        arrive(signal.SIGHUP)
        stop.wait(PATIENCE_S * 100)
        assert (stop.stopping, stop.reload_once(), stop.reload_once()) == (False, True, False)
        arrive(signal.SIGTERM)
        stop.wait(PATIENCE_S * 100)
        assert stop.stopping
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "a second one kills"


# ---------------------------------------------------------------- a process of its own


def process(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run ``reconciler show`` in a process of its own, with this body instead of the command's."""
    folder.joinpath("program.py").write_text(
        "import os, signal, sys, time\n"
        f"import {SHOW} as show\n"
        "from reconciler.cli.main import main\n"
        "def run(options):\n"
        f"{textwrap.indent(textwrap.dedent(body), '    ')}\n"
        "    return 0\n"
        "show.run = run\n"
        "sys.argv[1:] = ['show', 'any.plan.json']\n"
        "sys.exit(main())\n"
    )
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    command = [sys.executable, "-m", "program"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S * 2, env=found)


def test_the_exit_code_is_130_also_where_python_would_kill_itself(tmp_path: Path) -> None:
    """After a plain KeyboardInterrupt has left an exec, ``python -m`` kills itself with SIGINT at exit."""
    ended = process(tmp_path, "exec('signal.raise_signal(signal.SIGINT)\\nfor _ in range(1000): pass', globals())")
    assert (ended.returncode, ended.stderr) == (130, NOTHING)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_cleanup_that_does_not_end(tmp_path: Path, number: signal.Signals) -> None:
    body = f"""
        try:
            os.kill(os.getpid(), {number:d})
            time.sleep(3600)
        finally:
            os.kill(os.getpid(), {number:d})
            time.sleep(3600)
    """
    assert process(tmp_path, body).returncode == -number
