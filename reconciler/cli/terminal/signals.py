"""Signals: SIGTERM that unwinds a command like Ctrl-C, and a stop that a long-running command waits for."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
"""The exit code of a command that SIGINT ended, as shells report it."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends the command just as Ctrl-C does."""


def is_interrupt(error: BaseException) -> bool:
    """True for an interrupt, also one that a client library has wrapped.

    A call of the Kafka client that is interrupted may return as if it had worked; Python reports that as SystemError.
    """
    cause = error.__cause__ if isinstance(error, SystemError) else error
    return isinstance(cause, KeyboardInterrupt)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Within it SIGTERM raises ``Terminated``, so that everything that was opened or started is closed."""

    def terminate(_: int, __: FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class StopSignals:
    """SIGTERM and SIGINT ask to stop, a second one ends the process; with ``reload``, SIGHUP asks to reload.

    ``wait`` is cut short by each. A byte in a pipe wakes it: the one thing that a handler may safely do at any moment.
    """

    def __init__(self, *, reload: bool = False) -> None:
        self.stopping = False
        self._reload = False
        self._handlers = {signal.SIGTERM: self._stop, signal.SIGINT: self._stop}
        if reload:
            self._handlers[signal.SIGHUP] = self._ask_reload
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number, handler in self._handlers.items():
            self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read_end)
        os.close(self._write_end)

    def reload_once(self) -> bool:
        """True if a reload was requested since the last call."""
        requested, self._reload = self._reload, False
        return requested

    def wait(self, seconds: float) -> None:
        """Wait until the time is up or the next signal comes; return at once when stopping."""
        if self.stopping:
            return
        woken, _, _ = select.select([self._read_end], [], [], seconds)
        if woken:
            os.read(self._read_end, 1024)

    def _stop(self, *_: object) -> None:
        self.stopping = True
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._before[number])
        self._wake()

    def _ask_reload(self, *_: object) -> None:
        self._reload = True
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._write_end, b"!")
        except BlockingIOError:
            return  # the pipe is full, so the reader wakes anyway
