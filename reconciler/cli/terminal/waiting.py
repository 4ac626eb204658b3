"""How a hook's wait looks (a line rewritten on a terminal, a line now and then in a log), and how it is stopped."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from reconciler.cli.terminal.logs import harmless
from reconciler.cli.terminal.table import width
from reconciler.hook.waiting import Waiting

FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 30.0
"""Between two lines of a log: doubled from the one to the other, since a wait may take hours."""

log = logging.getLogger("reconciler.hook")


class Shown:
    """Tells a person how a wait goes. On a terminal in one line of ``stderr``, else in the log."""

    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal
        self._next_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._away = False

    def __call__(self, now: Waiting) -> None:
        if not now.behind or (now.left_s <= 0 and not now.trouble):
            self._end(now)
            return
        if (now.trouble is not None) != self._away:
            self._turn_of(now)
        if self._terminal:
            print(f"\r\033[K{_cut(harmless(_line(now)))}", end="", file=sys.stderr, flush=True)
        elif now.waited_s >= self._next_s:
            log.info("%s", _line(now))
            self._next_s = now.waited_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def clear(self) -> None:
        """Leave nothing on a terminal's line: what is printed next begins there."""
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _turn_of(self, now: Waiting) -> None:
        self.clear()
        self._away = now.trouble is not None
        if now.trouble is not None:
            log.warning("%s Waiting for it, too.", now.trouble.message)
        else:
            log.info("what could not be reached answers again")

    def _end(self, now: Waiting) -> None:
        self.clear()
        if now.behind:
            log.warning("the time is over: %s%s", _behind(now), _lag(now))
        else:
            log.info("the mirror has delivered what was missing, after %s", duration(now.waited_s))


def _line(now: Waiting) -> str:
    away = "; not reachable now" if now.trouble else ""
    times = f"{duration(now.waited_s)} waited, {duration(now.left_s)} left"
    return f"waiting for the mirror: {_behind(now)}{away}; {times}{_lag(now)}"


def _cut(text: str) -> str:
    """As much as one line of the terminal holds: a line that wraps could not be rewritten."""
    most = width() - 1
    return text if len(text) <= most else text[: most - 1] + "…"


def _behind(now: Waiting) -> str:
    return f"{now.behind:,} of {now.partitions:,} partitions {'is' if now.behind == 1 else 'are'} behind"


def _lag(now: Waiting) -> str:
    """How far, and where: at the end, which a narrow terminal cuts off."""
    if now.by_ms is None or now.farthest is None:
        return ""
    what = "lag" if now.behind == 1 else "longest lag"
    return f"; {what} {duration(now.by_ms / 1000)} ({now.farthest.topic}-{now.farthest.partition})"


def duration(seconds: float) -> str:
    """``45 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60:,} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60:,} h"


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which then ends what runs just as Ctrl-C does."""


@contextmanager
def stoppable(shown: Shown) -> Iterator[None]:
    """Whoever stops the hook inside is told what that means. Ends the process with 143 on SIGTERM, 130 on SIGINT."""
    try:
        with _sigterm_interrupts():
            yield
    except (KeyboardInterrupt, SystemError) as stop:
        # A call of the Kafka client that is interrupted may return as if it had worked, which Python complains of.
        cause = stop.__cause__ if isinstance(stop, SystemError) else stop
        if not isinstance(cause, KeyboardInterrupt):
            raise
        shown.clear()
        log.warning("Stopped: nothing was written, and the command was not started.")
        if isinstance(cause, _Terminated):
            raise SystemExit(128 + signal.SIGTERM) from None
        raise


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    def terminate(_: int, __: FrameType | None) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
