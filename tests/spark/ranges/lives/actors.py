"""Programs that run side by side, one step at a time: who goes on, who fails and who is killed is the caller's choice.

Each program is a thread, and only one of them runs at any moment: it runs until its next step (``step``), which is a
call that reads or changes something outside of the process. So the same choices always give the same history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

_here = threading.local()


class Killed(BaseException):
    """The program ends here: none of its further steps happens, those of its ``finally`` blocks included."""


class Way(Enum):
    """What becomes of a step."""

    GO = "go"
    FAIL = "fail"
    """It does not happen, and its caller gets an error."""
    LOSE_ANSWER = "lose the answer"
    """It happens, and its caller gets an error all the same."""


class Actor:
    """A program at its first step, or at a later one. ``error``: how it ended."""

    def __init__(self, name: str, program: Callable[[], object]) -> None:
        self.name, self._program = name, program
        self.at = "start"
        self.error: BaseException | None = None
        self.has_ended = self.is_killed = False
        self._way = Way.GO
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def go_on(self, way: Way = Way.GO) -> None:
        """To the next step, or to the end."""
        if not self._thread.ident:
            self._thread.start()
        self._way = way
        self._go.release()
        self._paused.acquire()

    def kill(self) -> None:
        if self.has_ended:
            return
        self.is_killed = True
        self.go_on()

    def finish(self) -> None:
        while not self.has_ended:
            self.go_on()

    def _run(self) -> None:
        _here.actor = self
        self._go.acquire()
        try:
            if not self.is_killed:
                self._program()
        except BaseException as error:  # noqa: BLE001  # the caller judges it
            self.error = error
        self.has_ended = True
        self._paused.release()

    def pause(self, name: str) -> Way:
        if self.is_killed:
            raise Killed
        self.at = name
        self._paused.release()
        self._go.acquire()
        if self.is_killed:
            raise Killed
        return self._way


@contextmanager
def step(name: str, failure: Callable[[str], BaseException]) -> Iterator[None]:
    """A step of the program that calls this; without one, as in a test itself, it simply happens."""
    actor: Actor | None = getattr(_here, "actor", None)
    way = Way.GO if actor is None else actor.pause(name)
    if way is Way.FAIL:
        raise failure(name)
    yield
    if way is Way.LOSE_ANSWER:
        raise failure(name)
