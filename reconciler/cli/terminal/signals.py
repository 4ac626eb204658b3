"""SIGINT and SIGTERM: an interrupt that gets lost is raised again until the command ends.

A signal handler raises wherever the main thread happens to be, and some of those places discard the exception: a
finalizer or a weakref callback (Python prints "Exception ignored" and carries on; every import runs such a callback), a
broad ``except``, or a call of the Kafka client, which may raise a SystemError or a TypeError in its place. So the
handler also records the signal and starts a timer. Every ``AGAIN_S`` the timer checks whether the interrupt is still
propagating. If it is, Python lists it among the exceptions being handled, because it is passing through ``finally``
blocks; those get ``CLEANING_S`` to finish. If it is not, it was lost, and the timer raises it again.

Python runs a handler once the main thread is back in Python, and a signal cuts the thread's wait for a lock or a socket
short. A signal that comes after Python's last look and before the wait has begun does neither, nor does one that the
kernel gives to another thread: the wait goes on, for minutes if a broker is silent. But the interpreter's own handler
writes each signal into a pipe at once (``signal.set_wakeup_fd``). A thread reads it, and sends SIGALRM to the main
thread until the handler has run.

The handler raises an instance of its own subclass, for two reasons. Python's default handler raises KeyboardInterrupt
without an instance, which confluent-kafka (2.16) turns into a SystemError without a cause. And under ``python -m``, if
a plain KeyboardInterrupt has left an ``exec`` (dataclasses use it), the interpreter kills itself with SIGINT at exit.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
"""The exit code of a command that SIGINT ended, as shells report it."""
AGAIN_S = 0.2
CLEANING_S = 20.0
"""How long ``finally`` blocks may run before the interrupt is raised again. A Spark session takes seconds to stop."""
MOST_WAKES = 50
"""Where the signal has another handler, of a program that this one is part of, nothing tells that it has run."""
_END = b"\0"
"""Ends the thread that wakes the main one. No signal has this number."""


class WaitingThread(threading.Thread):
    """A thread of the command line that waits for something, and imports nothing (see ``kafka.import_client``)."""

    imports_nothing = True


class Interrupt(KeyboardInterrupt):
    """A signal that asks the command to end; ``number`` says which."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.number = number


class _Process:
    """The interrupt state of this process. Only the main thread changes it."""

    def __init__(self) -> None:
        self.handling = False
        self.number: int | None = None
        self.unhurried = 0
        self._raised_at = 0.0

    def begin(self) -> None:
        self.handling, self.number, self.unhurried = True, None, 0

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.handling = False

    def interrupt(self, number: int, _: FrameType | None = None) -> None:
        """Handle SIGINT or SIGTERM. A second Ctrl-C raises again at once, even during cleanup."""
        if not self.handling:
            return
        self.number = number
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
        self._raise()

    def _raise(self) -> None:
        assert self.number is not None
        self._raised_at = monotonic()
        raise Interrupt(self.number)

    def look(self, *_: object) -> None:
        """Handle the timer: raise the interrupt again unless it is still propagating."""
        if not self.handling or self.number is None:
            return
        propagating = lies_behind(sys.exc_info()[1])
        if propagating and (self.unhurried or monotonic() - self._raised_at < CLEANING_S):
            return
        self._raise()


_process = _Process()


@contextmanager
def handled(*, exits: bool = False) -> Iterator[None]:
    """Turn SIGINT into ``Interrupt`` while a command runs. A command run by another one uses the outer handlers.

    ``exits`` says that the process exits with the command. Threads that are still running can then delay the exit by
    ``CLEANING_S`` at most.
    """
    if _process.handling or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}
    complain = sys.unraisablehook
    _process.begin()
    signal.signal(signal.SIGALRM, _process.look)
    stop_waking = _wake_for_signals()
    try:
        if before[signal.SIGINT] is signal.default_int_handler:  # not ignored (nohup), nor the embedding program's
            signal.signal(signal.SIGINT, _process.interrupt)
        sys.unraisablehook = lambda lost: None if isinstance(lost.exc_value, Interrupt) else complain(lost)
        yield
    finally:
        _process.end()
        code = INTERRUPTED if _process.number is None else _exit_code(sys.exc_info()[1])
        stop_waking()
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = complain
        if exits and _process.number is not None:
            signal.signal(signal.SIGALRM, lambda *_: os._exit(code))
            signal.setitimer(signal.ITIMER_REAL, CLEANING_S)


def _wake_for_signals() -> Callable[[], None]:
    """Begin to wake the main thread for signals that its wait does not notice. What is returned ends that."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(write_end, False)
    main = threading.get_ident()

    def wake() -> None:
        left = 0
        while True:
            is_waited_for = left > 0 and _process.handling and _process.number is None
            if select.select([read_end], [], [], AGAIN_S if is_waited_for else None)[0]:
                came = os.read(read_end, 1024)
                if _END in came:
                    return
                if came.strip(bytes([signal.SIGALRM])):
                    left = MOST_WAKES
            elif _process.number is None:
                left -= 1
                signal.pthread_kill(main, signal.SIGALRM)

    thread = WaitingThread(target=wake, name="wakes for signals", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def stop() -> None:
        signal.set_wakeup_fd(before)
        os.write(write_end, _END)  # a process that was forked has the pipe too, so that closing it tells nothing
        thread.join()
        os.close(read_end)
        os.close(write_end)

    return stop


def _exit_code(error: BaseException | None) -> int:
    return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else INTERRUPTED


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Turn SIGTERM into ``Interrupt`` too, for commands that must clean up. Elsewhere SIGTERM kills the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with handled():
        before = signal.signal(signal.SIGTERM, _process.interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def uninterrupted_cleanup() -> Iterator[None]:
    """Do not interrupt cleanup in this block again: it has its own timeouts."""
    _process.unhurried += 1
    try:
        yield
    finally:
        _process.unhurried -= 1


@contextmanager
def writing() -> Iterator[None]:
    """Wrap the writes to a store: do not start them after a lost interrupt, and do not cut their cleanup short."""
    check()
    with uninterrupted_cleanup():
        yield


def end_handling() -> None:
    """Stop raising interrupts: the command has ended, and only its exit code is left to return."""
    if threading.current_thread() is threading.main_thread():
        _process.end()


def is_handling() -> bool:
    """Whether a command is running in this process."""
    return _process.handling


def received() -> int | None:
    """The signal received since the command started, even if its interrupt got lost."""
    return _process.number if _process.handling else None


def check() -> None:
    """Raise the interrupt that was received, if any, before a step that must not follow one."""
    number = received()
    if number is not None and threading.current_thread() is threading.main_thread():
        raise Interrupt(number)


def is_interrupt(error: BaseException) -> bool:
    """Whether an interrupt ended the command, also where a library raised ``error`` in its place."""
    return received() is not None or lies_behind(error)


def lies_behind(error: BaseException | None) -> bool:
    """Whether ``error`` is an interrupt, was caused by one, or was raised while one was being handled."""
    seen: set[int] = set()
    open_: list[BaseException | None] = [error]
    while open_:
        each = open_.pop()
        if isinstance(each, KeyboardInterrupt):
            return True
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            open_ += [each.__cause__, each.__context__]
    return False


class StopSignals:
    """SIGTERM and SIGINT ask to stop, a second one ends the process; with ``reload``, SIGHUP asks to reload.

    ``wait`` is cut short by each, also by one that comes just before it: the interpreter's own handler writes a byte
    into a pipe. A threading.Event would deadlock: its lock is not reentrant, and the handler may run while ``wait``
    holds it.
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
        self._woken_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number, handler in self._handlers.items():
            self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._woken_before)
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

    def _ask_reload(self, *_: object) -> None:
        self._reload = True
