"""One SQL database through SQLAlchemy. A transaction happened, did not, or is OutcomeUnknown.

Each transaction has a connection of its own, so that none is dead from before. A write is serializable: of two that
insert the same rows into a table without a unique constraint, the server ends one, which then sees the other's rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import sqlalchemy
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from reconciler.core.errors import Away, ConfigError, NotNow, OutcomeUnknown, Refused, Unreachable
from reconciler.places.mapped_table import Again, Undo
from reconciler.places.sql import Dialect
from reconciler.retry import insist
from reconciler.waits import for_seconds, waiting

T = TypeVar("T")
_GRACE_S = 0.5
"""Seconds by which this side ends a statement later than the server."""


class Database:
    """One database. Raises ConfigError if the driver is not installed."""

    def __init__(self, url: sqlalchemy.URL, dialect: Dialect, place: str, timeout_s: float) -> None:
        self.place = place
        self._dialect = dialect
        self._timeout_s = timeout_s
        settings = _settings(dialect, timeout_s + _GRACE_S)
        try:
            self._engine = sqlalchemy.create_engine(
                url, poolclass=sqlalchemy.NullPool, connect_args=settings, hide_parameters=True
            )
        except ImportError as error:
            raise ConfigError(
                f"A store in {dialect.system} needs the Python package {error.name}, which is not installed.",
                hint=f"Run: pip install {error.name}",
            ) from error

    def transaction(self, work: Callable[[Any], T], *, only_reads: bool = False) -> T:
        """Run ``work`` with a SQLAlchemy connection, and commit; an exception rolls back.

        Runs ``work`` again after a deadlock: nothing had been written then. Raises OutcomeUnknown if COMMIT failed,
        unless ``work`` ``only_reads``; Unreachable and Refused with nothing written.
        """
        return insist(
            lambda: self._once(work, only_reads=only_reads),
            left_s=for_seconds(self._timeout_s),
            helps=lambda error: isinstance(error, Again),
        )

    def quoted(self, name: str) -> str:
        """An identifier, quoted as this server's SQL has it."""
        return str(self._engine.dialect.identifier_preparer.quote_identifier(name))

    def close(self) -> None:
        self._engine.dispose()

    def _once(self, work: Callable[[Any], T], *, only_reads: bool) -> T:
        with waiting(self.place, for_seconds(self._timeout_s)):
            try:
                connection = self._engine.connect()
            except (SQLAlchemyError, UnicodeError, OSError) as error:
                self._raise_connecting(error)
            with connection:  # its end rolls back what is not committed
                try:
                    if not only_reads:
                        connection.execution_options(isolation_level="SERIALIZABLE")
                    result = work(connection)
                except Undo as undo:
                    return undo.result  # type: ignore[no-any-return]
                except DBAPIError as error:
                    self._raise_explained(error)
                try:
                    connection.commit()
                except DBAPIError as error:
                    if only_reads or _code(error) in self._dialect.busy:
                        self._raise_explained(error)
                    raise OutcomeUnknown(
                        f"{self.place} did not say whether it took what was written ({_message(error)}).",
                        hint="Check the server, then run this again: it finishes what was not taken.",
                    ) from error
                return result

    def _raise_explained(self, error: DBAPIError) -> NoReturn:
        """Raise this product's error for one before COMMIT: nothing was written."""
        code, message, dialect = _code(error), _message(error), self._dialect
        if code in dialect.busy:
            raise Again(
                f"{self.place}: other transactions were in the way ({message}); nothing was written.",
                hint="Run this again.",
            ) from error
        if code in dialect.locked:
            raise NotNow(
                f"{self.place} could not get a lock within {self._timeout_s:g} s: another transaction holds the rows"
                " or the table; nothing was written.",
                hint="See in the server's list of transactions what holds it up, then run this again.",
            ) from error
        if error.connection_invalidated:
            raise Unreachable(
                f"{self.place} did not answer ({message}); nothing was written.",
                hint="Check that the server runs and can be reached, then run this again.",
            ) from error
        raise Refused(
            f"{self.place} refused it: {message}; nothing was written.",
            hint="Have the right granted, or correct the table or the store's address. Give a default to a column that"
            " must have a value.",
        ) from error

    def _raise_connecting(self, error: Exception) -> NoReturn:
        """Raise this product's error. UnicodeError: of a name that no host can have. OSError: of a file for TLS."""
        message = _message(error)
        if isinstance(error, OSError):
            raise Refused(
                f"The files for TLS of {self.place} cannot be used ({message}).",
                hint="Correct ssl_ca, ssl_cert and ssl_key in the store's address.",
            ) from error
        if _code(error) in self._dialect.login:
            raise Refused(
                f"{self.place} does not let this user in ({message}).",
                hint="Correct user, password and database in the store's address, or the server's grants.",
            ) from error
        raise Away(
            f"{self.place} could not be reached ({message}); nothing was written.",
            hint="Check host and port of the store's address, and that the server runs.",
        ) from error


def _settings(dialect: Dialect, late_s: float) -> dict[str, object]:
    """Settings of the driver by which each call ends in time. MySQL rejects what does not fit a column, if strict."""
    if dialect.system == "MySQL":
        strict = "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')"
        lock = f"innodb_lock_wait_timeout = {max(1, int(late_s * 0.7))}"
        times = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), late_s)
        return {**times, "init_command": f"{strict}, {lock}"}
    if dialect.system == "SQL Server":
        return dict.fromkeys(("login_timeout", "timeout"), max(1, round(late_s)))
    return {"tcp_connect_timeout": late_s}


def _code(error: Exception) -> int | None:
    """The server's number of the error; None if the server did not answer."""
    first = next(iter(getattr(getattr(error, "orig", None), "args", ())), None)
    code = getattr(first, "code", first)
    return code if isinstance(code, int) else None


def _message(error: Exception) -> str:
    """The message of the server or the driver, as one line without a full stop."""
    origin = getattr(error, "orig", None) or error
    text = str(origin.args[-1]) if origin.args else ""
    return " ".join(text.split()).rstrip(".") or type(origin).__name__
