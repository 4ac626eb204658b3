"""One thing that was tried, how it ended, and what it means for the exit code; what is connected to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from reconciler.core.errors import ExitCode, ReconcilerError
from reconciler.ports import LogReader, OffsetStore


class Level(Enum):
    """How something that was tried ended. Only ``FAIL`` makes the command fail."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Tried:
    """One thing that was tried: what it was, how it ended in words, what to do next, and the exit code of a failure."""

    level: Level
    subject: str
    said: str
    next: str = ""
    code: ExitCode = ExitCode.OK


@dataclass(frozen=True, slots=True)
class World:
    """What a check connects to: a reader of a cluster's log by its settings and whose it is, and stores by address.

    ``topics`` lists a cluster's topics, for "did you mean"; it may raise.
    """

    reader: Callable[[Mapping[str, str], str], LogReader]
    open_store: Callable[..., OffsetStore]
    topics: Callable[[Mapping[str, str]], Iterable[str]]


def ok(subject: str, said: str) -> Tried:
    return Tried(Level.OK, subject, said)


def warn(subject: str, said: str, next: str = "") -> Tried:
    return Tried(Level.WARN, subject, said, next)


def fail(subject: str, said: str, next: str = "", code: ExitCode = ExitCode.USAGE) -> Tried:
    return Tried(Level.FAIL, subject, said, next, code)


def failed(subject: str, error: ReconcilerError, *, only_warn: bool = False) -> Tried:
    """What was raised, as it would end a command; or as a warning, where no command needs it."""
    if only_warn:
        return warn(subject, error.message, error.hint or "")
    return fail(subject, error.message, error.hint or "", error.exit_code)


def exit_code(tried: Iterable[Tried]) -> ExitCode:
    """2 where the configuration is to be corrected, else 6 where something did not answer, else 0."""
    codes = {each.code for each in tried if each.level is Level.FAIL}
    if not codes:
        return ExitCode.OK
    return ExitCode.UNREACHABLE if codes == {ExitCode.UNREACHABLE} else ExitCode.USAGE


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
