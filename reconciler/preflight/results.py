"""The result of one step of ``config check``, its meaning for the exit code, and what the steps connect to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from reconciler.core.errors import ExitCode, ReconcilerError
from reconciler.ports import LogReader, OffsetStore


class Level(Enum):
    """How a step ended. Only ``FAIL`` makes the command fail."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The subject of a trial, a sentence about it, what to do next, and the exit code of a failure."""

    level: Level
    subject: str
    message: str
    next_step: str = ""
    code: ExitCode = ExitCode.OK


@dataclass(frozen=True, slots=True)
class World:
    """Opens readers of clusters' logs, by client settings and the cluster's name in sentences, and stores by address.

    ``topics`` lists a cluster's topics, for "did you mean"; it may raise.
    """

    reader: Callable[[Mapping[str, str], str], LogReader]
    open_store: Callable[..., OffsetStore]
    topics: Callable[[Mapping[str, str]], Iterable[str]]


def ok(subject: str, message: str) -> TrialResult:
    return TrialResult(Level.OK, subject, message)


def warn(subject: str, message: str, next_step: str = "") -> TrialResult:
    return TrialResult(Level.WARN, subject, message, next_step)


def fail(subject: str, message: str, next_step: str = "", code: ExitCode = ExitCode.USAGE) -> TrialResult:
    return TrialResult(Level.FAIL, subject, message, next_step, code)


def failed(subject: str, error: ReconcilerError, *, only_warn: bool = False) -> TrialResult:
    """A failure with the error's message, hint and exit code; a warning where no command needs what failed."""
    if only_warn:
        return warn(subject, error.message, error.hint or "")
    return fail(subject, error.message, error.hint or "", error.exit_code)


def exit_code(results: Iterable[TrialResult]) -> ExitCode:
    """2 if the configuration must be corrected, else 6 if something did not answer or was recreated, else 0."""
    codes = {each.code for each in results if each.level is Level.FAIL}
    if not codes:
        return ExitCode.OK
    return ExitCode.UNREACHABLE if codes <= {ExitCode.UNREACHABLE, ExitCode.CHANGED} else ExitCode.USAGE
