"""Deaths of a command within this process: at its n-th write, to a file, a store of rows, or the state store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from reconciler.places.memory import MemoryStore
from reconciler.places.sqlite.store import SqliteStore
from reconciler.state.memory import MemoryState
from tests.places.bare_memory import Killed

FILE_STEPS = ("fsync", "replace", "link", "unlink")


class Countdown:
    """Kills right before, or right after, the ``at``-th step."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.left, self.after, self.steps = at, after, 0

    def around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **more: Any) -> Any:
            self.steps += 1
            if self.steps > self.left or (self.steps == self.left and not self.after):
                raise Killed  # what is dead does not even tidy up
            result = act(*arguments, **more)
            if self.steps == self.left:
                raise Killed
            return result

        return step


@contextmanager
def killed_at(step: int, *, after: bool) -> Iterator[Countdown]:
    """Within the block the process dies at this step of its writing, if it comes so far: ``Killed`` is raised."""
    countdown = Countdown(step, after=after)
    patches = [mock.patch.object(os, name, countdown.around(getattr(os, name))) for name in FILE_STEPS]
    patches += [mock.patch.object(kind, "write", countdown.around(kind.write)) for kind in (SqliteStore, MemoryStore)]
    patches.append(mock.patch.object(MemoryState, "put", countdown.around(MemoryState.put)))
    for patch in patches:
        patch.start()
    try:
        yield countdown
    finally:
        for patch in reversed(patches):
            patch.stop()
