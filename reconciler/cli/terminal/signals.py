"""SIGINT and SIGTERM: the first one ends a command in order, the second one at once.

The handler notes the signal for ``written``, which begins no write after it, and raises ``Interrupt`` wherever the main
thread is. Some of these places discard an exception: a finalizer, a broad ``except``, a callback of a client. Then the
command continues to its next wait or write at most. After the first signal the system's own handling is back, so that
a second one kills the process, also within a call of a client that Python cannot interrupt.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from reconciler import written

LOOK_S = 0.25
_handling = False


@contextmanager
def handled() -> Iterator[bool]:
    """Let SIGINT and SIGTERM end the command in this block; False within another command, which handles them.

    A signal that is ignored stays so (nohup), and so does the handler of a program that this one is part of.
    """
    global _handling
    if not _handling:
        written.forget()
    if _handling or threading.current_thread() is not threading.main_thread():
        yield not _handling
        return
    ours = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: usual for number, usual in ours.items() if signal.getsignal(number) is usual}
    for number in before:
        signal.signal(number, _interrupt)
    _handling = True
    try:
        yield True
    finally:
        _handling = False
        for number, usual in before.items():
            signal.signal(number, usual)


def _interrupt(number: int, _: object) -> None:
    _let_the_next_one_kill()
    written.interrupt(number)


def _let_the_next_one_kill() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


class StopSignals:
    """SIGTERM and SIGINT ask a command that runs for long to stop; with ``reload``, SIGHUP asks it to reload."""

    def __init__(self, *, reload: bool = False) -> None:
        self.stopping = False
        self._reload = False
        self._came = False
        self._handlers = {signal.SIGTERM: self._stop, signal.SIGINT: self._stop}
        if reload:
            self._handlers[signal.SIGHUP] = self._ask_reload
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        for number, handler in self._handlers.items():
            self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def reload_once(self) -> bool:
        """True if a reload was requested since the last call."""
        requested, self._reload = self._reload, False
        return requested

    def wait(self, seconds: float) -> None:
        """Wait until the time is up or the next signal has come; return at once when stopping."""
        until = time.monotonic() + seconds
        while not (self.stopping or self._came) and (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, LOOK_S))
        self._came = False

    def _stop(self, *_: object) -> None:
        self.stopping = True
        _let_the_next_one_kill()

    def _ask_reload(self, *_: object) -> None:
        self._reload = self._came = True
