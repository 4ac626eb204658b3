"""An interrupt ends a command even where Python or a library discards the exception."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NoReturn

import pytest

from reconciler.cli.main import main, module_of
from reconciler.cli.terminal import signals
from reconciler.cli.terminal.waiting import WaitDisplay, stoppable
from reconciler.core.errors import ConfigError, OutcomeUnknown, ReconcilerError, Unreachable
from reconciler.kafka.connection import Connection
from reconciler.spark import session

PATIENCE_S = 30.0
WENT_ON = 99
SHOW = module_of("show")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "AGAIN_S", 0.01)


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


def until(happened: Callable[[], bool] = lambda: False) -> None:
    """Wait as a command waits for a silent broker; give up after ``PATIENCE_S``, so that a lost interrupt shows."""
    end = monotonic() + PATIENCE_S
    while not happened() and monotonic() < end:
        sleep(0.001)


def arrive(number: int = signal.SIGINT) -> None:
    """Send a signal, and give Python time to call its handler."""
    signal.raise_signal(number)
    for _ in range(1_000):
        pass


class Finalized:
    def __del__(self) -> None:
        arrive()


def in_a_finalizer() -> None:
    Finalized()


def in_a_weak_references_callback() -> None:
    class Referred: ...

    referred = Referred()
    reference = weakref.ref(referred, lambda _: arrive())
    del referred
    assert reference() is None


def in_what_catches_everything() -> None:
    with suppress(BaseException):
        arrive()


def in_what_catches_an_error_that_it_became() -> None:
    with suppress(Exception):
        try:
            arrive()
        except KeyboardInterrupt as interrupt:
            raise SystemError("returned a result with an exception set") from interrupt


@pytest.mark.parametrize(
    "swallowed",
    [
        in_a_finalizer,
        in_a_weak_references_callback,
        in_what_catches_everything,
        in_what_catches_an_error_that_it_became,
    ],
)
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_is_swallowed_is_raised_again(
    command: Any, swallowed: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def body() -> None:
        swallowed()
        until()

    assert command(body) == 130
    assert capsys.readouterr().err == "Interrupted. Nothing was written.\n"


def test_an_interrupt_that_is_swallowed_again_and_again_gets_through(command: Any) -> None:
    lost = []

    def body() -> None:
        for _ in range(5):
            try:
                arrive() if not lost else until()
            except KeyboardInterrupt as interrupt:
                lost.append(interrupt)
        until()

    assert command(body) == 130
    assert len(lost) == 5


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
        connection = Connection({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=PATIENCE_S)
        consumer = connection.consumer({"group.id": "any"})
        until(lambda: consumer.poll(0.05) is not None)

    assert command(body) == 130
    assert len(heard) == 1
    assert capsys.readouterr().err == "Interrupted. Nothing was written.\n"


# ---------------------------------------------------------------- cleanup


class Looks:
    """Counts the timer's checks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        look = signals._process.look

        def counted(*arguments: object) -> None:
            self.count += 1
            look(*arguments)

        monkeypatch.setattr(signals._process, "look", counted)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def test_cleanup_is_not_interrupted_again(command: Any, looks: Looks) -> None:
    cleaned = []

    def body() -> None:
        try:
            arrive()
        finally:
            try:
                raise ValueError
            except ValueError:
                until(lambda: looks.count > 3)
            until(lambda: looks.count > 6)
            cleaned.append(True)

    assert command(body) == 130
    assert (cleaned, looks.count > 6) == ([True], True)


def test_cleanup_that_does_not_end_is_interrupted(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "CLEANING_S", 0.05)
    cleaned = []

    def body() -> None:
        try:
            arrive()
        finally:
            try:
                until()
                cleaned.append(True)
            finally:
                monkeypatch.setattr(signals, "CLEANING_S", PATIENCE_S)  # for the way out, on a busy machine

    assert (command(body), cleaned) == (130, [])


def test_cleanup_of_a_write_is_not_cut_short(command: Any, looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "CLEANING_S", 0.0)
    back = []

    def body() -> None:
        with signals.writing():
            try:
                arrive()
            finally:
                until(lambda: looks.count > 6)
                back.append(True)
                monkeypatch.setattr(signals, "CLEANING_S", PATIENCE_S)  # for the way out, on a busy machine

    assert (command(body), back) == (130, [True])


def test_a_write_does_not_start_after_a_lost_interrupt(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "AGAIN_S", PATIENCE_S)
    written = []

    def body() -> None:
        in_a_finalizer()
        with signals.writing():
            written.append(True)

    assert (command(body), written) == (130, [])


@pytest.mark.parametrize("error", [TypeError("not str"), SystemError("returned NULL"), ConfigError("It is not str.")])
def test_an_interrupt_that_a_library_replaces_with_another_error_is_an_interrupt(
    command: Any, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    """As confluent-kafka does: "TypeError: Expected .name to be a unicode string type, not str"."""

    def body() -> None:
        with suppress(KeyboardInterrupt):
            arrive()
        raise error

    assert command(body) == 130
    assert capsys.readouterr().err == "Interrupted. Nothing was written.\n"


@pytest.mark.parametrize(("error", "code"), [(Unreachable("It is away."), 130), (OutcomeUnknown("Perhaps."), 7)])
def test_only_an_unknown_outcome_takes_precedence_over_the_interrupt_that_caused_it(
    command: Any, error: ReconcilerError, code: int
) -> None:
    def body() -> None:
        try:
            arrive()
        finally:
            raise error

    assert command(body) == code


def test_an_interrupt_in_a_nested_command_ends_the_outer_one(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def inner(_: object = None) -> NoReturn:
        arrive()
        raise AssertionError("not interrupted")

    def body() -> None:
        pytest.MonkeyPatch().setattr(f"{SHOW}.run", inner)
        main(["show", "any.plan.json"])

    assert command(body) == 130
    assert capsys.readouterr().err == "Interrupted. Nothing was written.\n"


# ---------------------------------------------------------------- SIGTERM


@pytest.mark.parametrize("swallowed", [True, False])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_hook_that_is_stopped_while_it_waits_writes_nothing(
    command: Any, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int, swallowed: bool
) -> None:
    monkeypatch.setattr(signals, "AGAIN_S", PATIENCE_S)
    written = []

    def body() -> None:
        with stoppable(WaitDisplay(terminal=False)):
            try:
                arrive(number)
            except KeyboardInterrupt:
                if not swallowed:
                    raise
        written.append(True)

    if number == signal.SIGTERM:
        with pytest.raises(SystemExit) as ended:
            command(body)
        assert ended.value.code == code
    else:
        assert command(body) == code
    assert written == []


def test_signals_are_handled_as_before_once_a_command_has_ended(command: Any) -> None:
    def state() -> list[object]:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
        return [*map(signal.getsignal, numbers), signal.getitimer(signal.ITIMER_REAL), sys.unraisablehook]

    before = state()

    def body() -> None:
        with signals.sigterm_interrupts():
            arrive(signal.SIGTERM)

    assert command(body) == 130
    assert state() == before
    assert not signals.is_handling()


def test_a_signal_that_is_ignored_stays_so(command: Any) -> None:
    """As under nohup, or for a background job of a shell script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert command(arrive) == WENT_ON
    finally:
        signal.signal(signal.SIGINT, before)


def test_starting_spark_keeps_the_sigint_handler() -> None:
    before = signal.getsignal(signal.SIGINT)
    with session._keep_sigint_handler():
        signal.signal(signal.SIGINT, lambda *_: None)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_arrives_before_the_wait_ends_it() -> None:
    with signals.StopSignals() as stop:
        arrive(signal.SIGTERM)
        assert stop.stopping
        stop.wait(PATIENCE_S * 100)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # a second one ends the process


# ---------------------------------------------------------------- a process of its own


def process(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run ``reconciler show`` in a process of its own, with this body instead of the command's."""
    folder.joinpath("program.py").write_text(
        "import os, queue, signal, sys, threading, time\n"
        "from reconciler.cli.terminal import signals\n"
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
    assert (ended.returncode, ended.stderr) == (130, "Interrupted. Nothing was written.\n")


def test_running_threads_do_not_delay_the_exit_for_long(tmp_path: Path) -> None:
    ended = process(
        tmp_path,
        """
        signals.CLEANING_S = 0.1
        threading.Thread(target=time.sleep, args=(3600,)).start()
        signal.raise_signal(signal.SIGINT)
        time.sleep(3600)
        """,
    )
    assert (ended.returncode, ended.stderr) == (130, "Interrupted. Nothing was written.\n")


UNNOTICED = """
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    with signals.sigterm_interrupts():
        # That thread takes the signal, so that it does not end the main one's wait: as one that comes just before it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.NUMBER)).start()
        WAIT
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("wait", ["threading.Event().wait()", "queue.SimpleQueue().get()", "os.read(os.pipe()[0], 1)"])
def test_a_signal_that_the_wait_does_not_notice_ends_it(tmp_path: Path, number: str, wait: str) -> None:
    ended = process(tmp_path, UNNOTICED.replace("NUMBER", number).replace("WAIT", wait))
    assert (ended.returncode, ended.stderr) == (130, "Interrupted. Nothing was written.\n")


def test_a_signal_that_another_thread_takes_ends_the_wait_of_a_command_that_goes_on(tmp_path: Path) -> None:
    body = """
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        with signals.StopSignals() as stop:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
            stop.wait(3600)
            assert stop.stopping
    """
    assert process(tmp_path, body).returncode == 0
