"""The results of ``config check``, their meaning for the exit code, and what its steps connect to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
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


class Trials:
    """Collects results in order; one that is found twice is kept once."""

    def __init__(self) -> None:
        self.found: list[TrialResult] = []

    def _add(self, result: TrialResult) -> None:
        if result not in self.found:
            self.found.append(result)

    def ok(self, subject: str, message: str) -> None:
        self._add(TrialResult(Level.OK, subject, message))

    def warn(self, subject: str, message: str, next_step: str = "") -> None:
        self._add(TrialResult(Level.WARN, subject, message, next_step))

    def fail(self, subject: str, message: str, next_step: str = "", code: ExitCode = ExitCode.USAGE) -> None:
        self._add(TrialResult(Level.FAIL, subject, message, next_step, code))

    @contextmanager
    def trying(self, subject: str, *, only_warn: bool = False) -> Iterator[None]:
        """Adds the error that ends the block as a failure; as a warning where no command needs what failed."""
        try:
            yield
        except ReconcilerError as error:
            if only_warn:
                self.warn(subject, error.message, error.hint or "")
            else:
                self.fail(subject, error.message, error.hint or "", error.exit_code)

    @property
    def exit_code(self) -> ExitCode:
        """2 if the configuration must be corrected, else 6 if something did not answer or was recreated, else 0."""
        codes = {each.code for each in self.found if each.level is Level.FAIL}
        if not codes:
            return ExitCode.OK
        return ExitCode.UNREACHABLE if codes <= {ExitCode.UNREACHABLE, ExitCode.CHANGED} else ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class World:
    """Opens readers of clusters' logs, by client settings and the cluster's name in sentences, and stores by address.

    ``topics`` lists a cluster's topics, for "did you mean"; it may raise.
    """

    reader: Callable[[Mapping[str, str], str], LogReader]
    open_store: Callable[..., OffsetStore]
    topics: Callable[[Mapping[str, str]], Iterable[str]]
