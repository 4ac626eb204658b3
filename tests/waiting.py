"""Waiting for what must come about: the one loop that tests wait in, and the one limit to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LIMIT_S = 900
"""Seconds after which a wait has failed. It bounds a hang and judges no speed: on a busy machine, Spark takes 300 s to
start."""
LOOK_S = 0.1


def wait_until(
    condition: Callable[[], T],
    what: str | Callable[[], object],
    *,
    ended: Callable[[], object] = lambda: False,
    look_s: float = LOOK_S,
) -> T:
    """The first true answer of ``condition``.

    Fails after ``LIMIT_S``, or once ``ended`` is true (a process that can no longer bring it about), with ``what`` was
    waited for; a function tells what was seen instead.
    """
    deadline = time.monotonic() + LIMIT_S
    while True:
        over = ended()  # asked before: what came about just before the end counts
        if answer := condition():
            return answer
        told = what if isinstance(what, str) else what()
        assert not over, f"it ended, and this had not come about: {told}"
        assert time.monotonic() < deadline, f"this did not come about in {LIMIT_S} s: {told}"
        time.sleep(look_s)
