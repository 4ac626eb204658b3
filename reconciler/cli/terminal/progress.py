"""Progress: a line rewritten on a terminal, an occasional line in a log. Of a hook's wait, of a copy, and of a cluster
or store that does not answer.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from reconciler import waits
from reconciler.cli.terminal.output import can_rewrite, duration, in_bytes, rewrite
from reconciler.waits import Waited

if TYPE_CHECKING:
    from reconciler.jobs.hook.starting import Waiting
    from reconciler.places.checkpoint.copying import Copied

FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 30.0
"""Seconds between two lines of the log: doubled each time, since a wait may take hours."""
COPY_FIRST_S = 10.0
COPY_LONGEST_S = 300.0
REWRITE_S = 0.1

_waits = logging.getLogger("reconciler.jobs.hook")
_copies = logging.getLogger("reconciler.checkpoint")


class WaitDisplay:
    """Shows the progress of a wait: in one line of ``stderr`` on a terminal, else as lines of the log."""

    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal
        self._next_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._unreachable = False

    def __call__(self, now: Waiting) -> None:
        if not now.behind or (now.left_s <= 0 and not now.trouble):
            self._end(now)
            return
        if (now.trouble is not None) != self._unreachable:
            self._report_outage(now)
        if self._terminal:
            rewrite(_line(now))
        elif now.waited_s >= self._next_s:
            _waits.info("%s", _line(now))
            self._next_s = now.waited_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def clear(self) -> None:
        """Clear the terminal's line, so that the next output begins there."""
        if self._terminal:
            rewrite()

    def _report_outage(self, now: Waiting) -> None:
        self.clear()
        self._unreachable = now.trouble is not None
        if now.trouble is not None:
            _waits.warning("%s Still waiting, for this too.", now.trouble.message)
        else:
            _waits.info("the connection is back")

    def _end(self, now: Waiting) -> None:
        self.clear()
        if now.behind:
            _waits.warning("timed out waiting: %s%s", _behind(now), _lag(now))
        else:
            _waits.info("the mirror has delivered the missing records, after %s", duration(now.waited_s))


def _line(now: Waiting) -> str:
    outage = "; not reachable now" if now.trouble else ""
    times = f"{duration(now.waited_s)} waited, {duration(now.left_s)} left"
    return f"waiting for the mirror: {_behind(now)}{outage}; {times}{_lag(now)}"


def _behind(now: Waiting) -> str:
    return f"{now.behind:,} of {now.partitions:,} partitions {'is' if now.behind == 1 else 'are'} behind"


def _lag(now: Waiting) -> str:
    """The longest lag and its partition: last in the line, where a narrow terminal cuts it off."""
    if now.by_ms is None or now.farthest is None:
        return ""
    name = "lag" if now.behind == 1 else "longest lag"
    return f"; {name} {duration(now.by_ms / 1000)} ({now.farthest})"


class CopyDisplay:
    def __init__(self) -> None:
        self._terminal = can_rewrite()
        self._pause_s = REWRITE_S if self._terminal else COPY_FIRST_S
        self._next_s: float | None = None

    def __call__(self, now: Copied) -> None:
        if self._next_s is None:
            self._next_s = monotonic() + self._pause_s
        if now.files == now.of_files:
            if self._terminal:
                rewrite()
        elif monotonic() >= self._next_s:
            if self._terminal:
                rewrite(copied_text(now))
            else:
                _copies.info("%s", copied_text(now))
                self._pause_s = min(2 * self._pause_s, COPY_LONGEST_S)
            self._next_s = monotonic() + self._pause_s


def copied_text(now: Copied) -> str:
    """``copied 3,214 of 20,000 files, 1.2 GiB of 5.0 GiB``."""
    return f"copied {now.files:,} of {now.of_files:,} files, {in_bytes(now.size)} of {in_bytes(now.of_size)}"


# ---------------------------------------------------------------- a cluster or store that does not answer


FIRST_S = 1.5
EVERY_S = 5.0
LOOK_S = 0.25


class WaitingThread(threading.Thread):
    """A thread of the command line that waits for something, and imports nothing (see ``kafka.import_client``)."""

    imports_nothing = True


log = logging.getLogger("reconciler.waits")
_current: threading.Event | None = None
"""Ends the reporting of the command that runs."""


@contextmanager
def show_waits() -> Iterator[None]:
    """Report waits while a command runs. A command run by another one is reported with it."""
    global _current
    if _current is not None:
        yield
        return
    _current = ended = threading.Event()
    thread = WaitingThread(target=_report, args=(ended,), name="unanswered", daemon=True)
    thread.start()
    try:
        yield
    finally:
        _current = None
        ended.set()
        thread.join()


def silence_waits() -> None:
    """Report no more waits of this command: it runs until it is stopped, and reports an outage once."""
    if _current is not None:
        _current.set()


def _report(ended: threading.Event) -> None:
    due: dict[str, float] = {}
    while not ended.wait(LOOK_S):
        long = {wait.place: wait for wait in waits.under_way() if wait.waited_s >= FIRST_S}
        due = {place: due.get(place, 0.0) for place in long}
        for place, wait in long.items():
            if wait.waited_s >= due[place]:
                due[place] = wait.waited_s + EVERY_S
                if can_rewrite():
                    rewrite()  # the line of a search's progress
                log.info("%s", wait_text(wait))


def wait_text(wait: Waited) -> str:
    """``waiting for kafka-b:9092, 28 s left: Connection refused``."""
    left = "" if math.isinf(wait.left_s) else f", {duration(max(0.0, wait.left_s))} left"
    return f"waiting for {wait.place}{left}: {wait.cause or 'no answer yet'}"
