"""The writes of a command, done and intended: reported if it ends early. None begins after a signal has interrupted it.

This is a state of the process, begun again with every command. Names are for sentences: ``job "clicks" (4 offsets)``,
the path of a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from reconciler.core.errors import OutcomeUnknown, ReconcilerError


class _State(Enum):
    DONE = "Written"
    BEGUN = "Not known whether written"
    INTENDED = "Not written"


class Interrupt(KeyboardInterrupt):
    """A signal that ends the command; ``number`` says which.

    Python's own handler raises KeyboardInterrupt without an instance, which confluent-kafka (2.16) turns into a
    SystemError; and after one that has left an ``exec`` (dataclasses use it), ``python -m`` kills itself at exit.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


_states: dict[str, _State] = {}
_signal: int | None = None


def forget() -> None:
    """Begin again: a command starts."""
    global _signal
    _states.clear()
    _signal = None


def interrupt(number: int) -> None:
    """Note the signal that interrupts the command, and raise ``Interrupt``."""
    global _signal
    _signal = number
    check()


def check() -> None:
    """Raise ``Interrupt`` if a signal came: called before each step that must not follow one."""
    if _signal is not None:
        raise Interrupt(_signal)


def intend(*names: str) -> None:
    """Note what is about to be written."""
    for name in names:
        _states.setdefault(name, _State.INTENDED)


def note(name: str) -> None:
    """Note what is written as a whole, or not at all."""
    _states[name] = _State.DONE


@contextmanager
def writing(name: str) -> Iterator[None]:
    """Note a write. If the block fails, an error of this product says whether something may have been written."""
    check()
    _states[name] = _State.BEGUN
    try:
        yield
    except ReconcilerError as error:
        if not isinstance(error, OutcomeUnknown):
            _states[name] = _State.INTENDED
        raise
    _states[name] = _State.DONE


def is_whole() -> bool:
    """True if all that was to be written is written."""
    return all(state is _State.DONE for state in _states.values())


def is_any() -> bool:
    """True if anything was written, or may have been."""
    return any(state is not _State.INTENDED for state in _states.values())


def text() -> str:
    """The names of all writes, done and not done, as sentences."""
    if not is_any():
        return "Nothing was written."
    parts = []
    for state in _State:
        names = [name for name, each in _states.items() if each is state]
        if names:
            after = " (run this again: it looks first)" if state is _State.BEGUN else ""
            parts.append(f"{state.value}: {', '.join(names)}{after}.")
    return " ".join(parts)
