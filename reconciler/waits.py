"""Waits for clusters and stores, noted while they last: a display can tell what a command waits for, and why.

A call that may take long is made within ``waiting``. Such calls nest: a retry around a request around a connection.
In one thread, the outermost shows when the wait began, the longest when it ends, the innermost its place and its
cause. Also here: whether a wait can end at all, and the cause within a client's error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from reconciler import written

T = TypeVar("T")
LeftS = Callable[[], float]
"""Seconds until a wait times out."""


@dataclass(slots=True)
class Wait:
    """One wait. ``place`` is a host and port; ``cause`` gives the failure seen last, empty if there was none."""

    place: str
    left_s: LeftS
    cause: Callable[[], str]
    began: float


@dataclass(frozen=True, slots=True)
class Waited:
    """The waits of one thread at one moment, in seconds. ``left_s`` is infinite for a wait without an end."""

    place: str
    cause: str
    waited_s: float
    left_s: float


_waits: dict[int, list[Wait]] = {}
_lock = threading.Lock()


@contextmanager
def waiting(place: str, left_s: LeftS, cause: Callable[[], str] = str) -> Iterator[Wait]:
    """Note a wait for ``place`` while the block runs; an empty place is that of the waits within it.

    Raises Interrupt, and begins no wait, if a signal has interrupted the command.
    """
    written.check()
    wait = Wait(place, left_s, cause, monotonic())
    thread = threading.get_ident()
    with _lock:
        _waits.setdefault(thread, []).append(wait)
    try:
        yield wait
    finally:
        with _lock:
            stack = _waits[thread]
            stack.remove(wait)
            if stack:
                outer, text = stack[-1], wait.cause()
                outer.place = outer.place or wait.place
                outer.cause = (lambda: text) if text else outer.cause
            else:
                del _waits[thread]


def for_seconds(seconds: float) -> LeftS:
    """The time left of so many seconds from now."""
    until = monotonic() + seconds
    return lambda: until - monotonic()


def in_time(act: Callable[[], T], seconds: float) -> T:
    """The result of ``act``, or TimeoutError after so many seconds; then ``act`` continues in a daemon thread."""
    return in_thread(act)(seconds)


def in_thread(act: Callable[[], T]) -> Callable[..., T]:
    """Call ``act`` in a daemon thread. The returned function waits for its result, or for so many seconds at most.

    Then it raises TimeoutError, and ``act`` continues.
    """
    done: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            done.append((True, act()))
        except BaseException as err:  # noqa: BLE001 - raised again below
            done.append((False, err))

    thread = threading.Thread(target=run, name="in_thread", daemon=True)
    thread.start()

    def result(seconds: float | None = None) -> T:
        thread.join(seconds)
        if not done:
            raise TimeoutError(f"no answer in {seconds:g} s")
        good, found = done[0]
        if good:
            return found  # type: ignore[no-any-return]
        raise found

    return result


def note_answer() -> None:
    """Note that this thread's waits have had an answer: they begin again."""
    with _lock:
        for wait in _waits.get(threading.get_ident(), ()):
            wait.began = monotonic()
            wait.cause = str


def forget() -> None:
    """Start afresh in a forked process: the waits are its parent's, and a thread of the parent may hold the lock."""
    global _lock
    _lock = threading.Lock()
    _waits.clear()


def under_way() -> list[Waited]:
    """The waits of all threads that have a place."""
    with _lock:
        stacks = [list(stack) for stack in _waits.values()]
    now = monotonic()
    found = []
    for stack in stacks:
        places = [wait.place for wait in stack if wait.place]
        causes = [text for wait in stack if (text := wait.cause())]
        if places:
            left_s = max(wait.left_s() for wait in stack)
            found.append(Waited(places[-1], causes[-1] if causes else "", now - stack[0].began, left_s))
    return found


def waited_s() -> float:
    """How long this thread has waited, in seconds: since its outermost wait began; 0 where none is under way."""
    with _lock:
        stack = _waits.get(threading.get_ident())
        return monotonic() - stack[0].began if stack else 0.0


def cause_of(error: BaseException) -> str:
    """The operating system's words within an error and its causes; else the error's own, without its hint."""
    within = _os_error(error)
    if within is not None:
        return within.strerror or str(within)
    return str(getattr(error, "message", error)).rstrip(".")


def is_unresolved(error: BaseException) -> bool:
    """True if an unresolved host name caused an error."""
    import socket  # noqa: PLC0415 (a command that waits for nothing does without it)

    return isinstance(_os_error(error), socket.gaierror)


def none_resolves(places: Iterable[tuple[str, int]]) -> bool:
    """True if not one of the hosts has an address. False if there are none."""
    found = [_resolves(host, port) for host, port in places]
    return bool(found) and not any(found)


def _resolves(host: str, port: int) -> bool:
    import socket  # noqa: PLC0415

    try:
        socket.getaddrinfo(host, port)
    except (OSError, UnicodeError):  # the latter of a name that cannot be one, like .example.com
        return False
    return True


def _os_error(error: BaseException | None) -> OSError | None:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
