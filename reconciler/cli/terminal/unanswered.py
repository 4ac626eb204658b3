"""Progress while a cluster or a store does not answer: a line of the log after ``FIRST_S``, then every ``EVERY_S``."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from reconciler import waits
from reconciler.cli.terminal.output import can_rewrite, rewrite
from reconciler.cli.terminal.text import duration
from reconciler.waits import Waited

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
def shown() -> Iterator[None]:
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


def silence() -> None:
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
                log.info("%s", line(wait))


def line(wait: Waited) -> str:
    """``waiting for kafka-b:9092, 28 s left: Connection refused``."""
    left = "" if math.isinf(wait.left_s) else f", {duration(max(0.0, wait.left_s))} left"
    return f"waiting for {wait.place}{left}: {wait.cause or 'no answer yet'}"
