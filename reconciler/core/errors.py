"""One error root. Every failure is a sentence: what happened, whose move it is, what to do next.

Exit codes are the contract's; nothing else in the product chooses one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from reconciler.core.text import visible


class ExitCode(IntEnum):
    """The exit status of a command (fixed by the contract)."""

    OK = 0
    BUG = 1
    USAGE = 2
    CORRECTABLE = 3
    NEEDS_PERSON = 4
    CHANGED = 5
    UNREACHABLE = 6
    UNKNOWN_OUTCOME = 7

    @property
    def meaning(self) -> str:
        """The contract's words, for help texts and tables of exit codes."""
        return _MEANINGS[self]


_BADNESS = (
    ExitCode.OK,
    ExitCode.CORRECTABLE,
    ExitCode.CHANGED,
    ExitCode.UNREACHABLE,
    ExitCode.NEEDS_PERSON,
    ExitCode.USAGE,
    ExitCode.UNKNOWN_OUTCOME,
    ExitCode.BUG,
)
"""Best to worst. Causes that a retry may fix rank below those that need a person: retries must not hide these."""


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The exit code of a command about several jobs, each of which alone would end with one of ``codes``."""
    return max(codes, key=_BADNESS.index, default=ExitCode.OK)


_MEANINGS = {
    ExitCode.OK: "every partition may start (right already, or corrected, or correctable)",
    ExitCode.BUG: "a bug",
    ExitCode.USAGE: "usage or configuration",
    ExitCode.CORRECTABLE: "offsets need correcting, and can be",
    ExitCode.NEEDS_PERSON: "a partition needs a decision: do not start",
    ExitCode.CHANGED: "the store or the destination changed since the plan, or the plan is expired, altered or "
    "not signed: nothing was written",
    ExitCode.UNREACHABLE: "a cluster or store could not be reached, or refused: nothing was written",
    ExitCode.UNKNOWN_OUTCOME: "a write's outcome is unknown or partial: run apply again",
}


class ReconcilerError(Exception):
    """Root of all errors this product raises on purpose.

    ``message`` says what happened; ``hint`` what to do next. ``retryable`` says whether the same call
    may succeed later without any change. Both are one line of visible text: they quote names that others chose.
    """

    exit_code: ExitCode = ExitCode.BUG
    retryable: bool = False
    others: Sequence[ReconcilerError] = ()
    """Further errors found together with this one; a command reports them all."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = visible(message)
        self.hint = None if hint is None else visible(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class ConfigError(ReconcilerError):
    """The configuration or the command line is wrong: the caller's move."""

    exit_code = ExitCode.USAGE


class NeedsPerson(ReconcilerError):
    """Something could not be proven, or a policy says stop: a partition needs a decision."""

    exit_code = ExitCode.NEEDS_PERSON


class NotRead(NeedsPerson):
    """The records of a partition could not be read within the limit of memory: it cannot be judged."""


class Changed(ReconcilerError):
    """The store or destination is not what the plan saw, or the plan is expired or altered. Nothing was written."""

    exit_code = ExitCode.CHANGED


class Unreachable(ReconcilerError):
    """A cluster or store could not be reached, or refused. Nothing was written.

    ``of_server``: the server's other tables, folders or topics may well fail in the same way.
    """

    exit_code = ExitCode.UNREACHABLE
    retryable = True
    of_server: bool = True


class NotNow(Unreachable):
    """The server answered, and this one table, folder or topic could not be used for now."""

    of_server = False


class Away(Unreachable):
    """Nothing at the address answered: another request there would only time out again."""


class Refused(Unreachable):
    """A cluster or store answered with a refusal (authorization, a live group, a missing table)."""

    retryable = False


class NotCreated(Refused):
    """A store does not exist yet, or its address is wrong: if it is right, the first write creates the store."""


class OutcomeUnknown(ReconcilerError):
    """A write was sent and its outcome is unknown, or only part of it happened: apply again."""

    exit_code = ExitCode.UNKNOWN_OUTCOME
    retryable = True


def together(errors: Iterable[ReconcilerError]) -> ReconcilerError:
    """The first of the worst of several errors, with the others; none is told twice. There is at least one."""
    different = {str(error): error for error in errors}.values()
    first = max(different, key=lambda error: _BADNESS.index(error.exit_code))
    first.others = [error for error in different if error is not first]
    return first


def as_sentence(error: Exception, shown_by: str = "the output of --debug") -> ReconcilerError:
    """The error itself if it is one of this product's; else one that calls it a bug. ``shown_by`` has its traceback."""
    if isinstance(error, ReconcilerError):
        return error
    return ReconcilerError(
        f"This is a bug in reconciler: {type(error).__name__}: {error}.", hint=f"Please report it with {shown_by}."
    )
