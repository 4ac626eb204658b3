"""One database through psycopg. Every statement ends in time; a transaction happened, did not, or is OutcomeUnknown.

The server's own clock ends a statement (``statement_timeout``, ``lock_timeout``). If the server is frozen, a watchdog
cuts the connection from this side.
"""

from __future__ import annotations

import logging
import math
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

import psycopg
from psycopg import sql

from reconciler.core.errors import Away, NotNow, OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.places.mapped_table import Again, Undo
from reconciler.retry import insist
from reconciler.waits import for_seconds, waiting

T = TypeVar("T")

GRACE_S = 0.5
"""Seconds by which this side ends a statement later than the server."""

_silent = logging.getLogger("psycopg")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def quoted(*names: str | None) -> str:
    """An SQL identifier of the given parts, quoted; None for a part that is left out."""
    return str(sql.Identifier(*(name for name in names if name is not None)).as_string(None))


def identifier(*names: str | None) -> sql.SQL:
    """The same for a statement with values, where a per cent sign marks a value and must be doubled."""
    return sql.SQL(quoted(*names).replace("%", "%%"))


class Session:
    """A connection within a transaction."""

    def __init__(self, connection: Any, place: str, timeout_s: float) -> None:
        self._connection = connection
        self._place = place
        self._timeout_s = timeout_s
        self._cursor = connection.cursor()

    def all(self, statement: Any, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        with _cut_after(self._connection, self._place, self._timeout_s + GRACE_S):
            return list(self._cursor.execute(statement, values).fetchall())

    def one(self, statement: Any, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row, None where there is none."""
        return next(iter(self.all(statement, values)), None)

    def run(self, statement: Any, values: Sequence[Any] = ()) -> None:
        """Run a statement that returns no rows."""
        with _cut_after(self._connection, self._place, self._timeout_s + GRACE_S):
            self._cursor.execute(statement, values)

    def each(self, statement: Any, rows: Sequence[Sequence[Any]]) -> int:
        """Run a statement once for each of ``rows``, all sent together. Returns the number of affected rows."""
        if not rows:
            return 0
        # The server times each statement; this side allows that time for every thousand of them.
        patience_s = (self._timeout_s + GRACE_S) * (1 + len(rows) // 1000)
        with _cut_after(self._connection, self._place, patience_s):
            self._cursor.executemany(statement, rows)
        return int(self._cursor.rowcount)


class Database:
    """One database. The connection is opened when first needed, kept, and opened again after a drop."""

    def __init__(self, libpq: str, place: str, *, timeout_s: float) -> None:
        self._libpq = libpq
        self.place = place
        self._timeout_s = timeout_s
        self._connection: Any = None

    def transaction(self, work: Callable[[Session], T], *, only_reads: bool = False) -> T:
        """Run ``work`` in a transaction (read committed) and commit it; an exception rolls it back.

        Runs ``work`` again after a deadlock or a race, or if a kept connection was dead: nothing had been written then.
        Raises OutcomeUnknown if COMMIT was not answered, unless ``work`` ``only_reads``; Unreachable and Refused with
        nothing written.
        """

        def once() -> T:
            reused = self._connection is not None
            try:
                return self._once(work, only_reads=only_reads)
            except Unreachable as error:
                if reused and self._connection is None and error.retryable and not isinstance(error, Again):
                    raise Again(error.message, hint=error.hint) from error
                raise

        return insist(once, left_s=for_seconds(self._timeout_s), helps=lambda error: isinstance(error, Again))

    def refuse_read_only(self, db: Session) -> None:
        """Raise Refused where this transaction may not write anything."""
        found = db.one("SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'")
        if found and any(found):
            why = "it is a standby" if found[0] else "its transactions are read-only by default"
            raise Refused(
                f"{self.place} cannot be written: {why}; nothing was written.",
                hint="Name the primary, or several hosts and target_session_attrs=read-write.",
            )

    def refuse_without(self, db: Session, privileges: Iterable[str], table: str, column: str | None = None) -> None:
        """Raise Refused where this user lacks a privilege on a table (quoted as in SQL), or on one column of it."""
        for privilege in privileges:
            if column is None:
                granted = db.one("SELECT has_table_privilege(%s, %s)", (table, privilege))
            else:
                granted = db.one("SELECT has_column_privilege(%s, %s, %s)", (table, column, privilege))
            if granted != (True,):
                raise Refused(
                    f"{self.place} does not allow this user to {privilege} on {table}; nothing was written.",
                    hint=f"Have it granted: GRANT {privilege} ON {table} TO …",
                )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    # ------------------------------------------------------------ one attempt

    def _once(self, work: Callable[[Session], T], *, only_reads: bool) -> T:
        connection = self._connected()
        session = Session(connection, self.place, self._timeout_s)
        try:
            try:
                session.run(
                    "SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true)",
                    (self._ms(self._timeout_s), self._ms(self._timeout_s * 0.8)),
                )
                result = work(session)
            except Undo as undo:
                self._roll_back(connection)
                return undo.result  # type: ignore[no-any-return]
            except ReconcilerError:
                self._roll_back(connection)
                raise
            except psycopg.Error as err:
                self._roll_back(connection)
                raise_explained(err, self.place, self._timeout_s)
            self._commit(connection, only_reads=only_reads)
        except BaseException:
            # Interrupted, or worse: the connection is in an unknown state and must not be used again.
            if connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self.close()
            raise
        return result

    def _commit(self, connection: Any, *, only_reads: bool) -> None:
        try:
            with _cut_after(connection, self.place, self._timeout_s + GRACE_S):
                connection.commit()
        except psycopg.Error as err:
            if only_reads or rolled_back(err):
                raise_explained(err, self.place, self._timeout_s)
            self.close()
            raise OutcomeUnknown(
                f"{self.place} did not say whether it took what was written ({server_message(err)}).",
                hint="Check the server, then run this again: it finishes what was not taken.",
            ) from err

    def _roll_back(self, connection: Any) -> None:
        try:
            with _cut_after(connection, self.place, self._timeout_s + GRACE_S):
                connection.rollback()
        except psycopg.Error:
            self.close()  # the server rolls back what was never committed

    def _connected(self) -> Any:
        if self._connection is not None and self._connection.closed:
            self.close()
        if self._connection is None:
            try:
                with waiting(self.place, for_seconds(self._timeout_s)):
                    self._connection = psycopg.connect(self._libpq, **self._defaults())
            except psycopg.Error as err:
                raise explain_connecting(err, self.place) from err
            except UnicodeError as err:  # of a host's name that cannot be one, like .example.com
                failed = psycopg.OperationalError(f"failed to resolve host: {err}")
                raise explain_connecting(failed, self.place) from err
            self._connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return self._connection

    def _defaults(self) -> dict[str, Any]:
        """Connection settings, unless the address or the environment sets them."""
        given = psycopg.conninfo.conninfo_to_dict(self._libpq)
        from_environment = {
            option.keyword.decode(): option.val for option in psycopg.pq.Conninfo.get_defaults() if option.val
        }
        wanted = {
            "connect_timeout": max(2, round(self._timeout_s)),
            "client_encoding": "utf8",
            "fallback_application_name": "reconciler",
        }
        # Statements are never prepared on the server: a pooler may send each transaction to another server.
        more: dict[str, Any] = {"prepare_threshold": None}
        return more | {key: value for key, value in wanted.items() if key not in given and key not in from_environment}

    @staticmethod
    def _ms(seconds: float) -> str:
        return str(int(seconds * 1000))


@contextmanager
def _cut_after(connection: Any, place: str, seconds: float) -> Iterator[None]:
    """Cut the connection if the block takes longer; a blocked read then fails as after a dropped connection."""
    cutter = _Cutter(connection.fileno())
    _watchdog.arm(cutter, seconds)
    try:
        with waiting(place, for_seconds(seconds)):
            yield
    except psycopg.OperationalError as err:
        if cutter.has_cut:
            raise NoAnswer(f"no answer within {seconds:g} s") from err
        raise
    finally:
        _watchdog.disarm(cutter)


class _Cutter:
    """Shuts a socket down. Once it is disarmed, the socket's number may belong to another one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.has_cut = False

    def cut(self) -> None:
        self.has_cut = True
        with suppress(OSError), socket.socket(fileno=self._descriptor) as line:
            try:
                line.shutdown(socket.SHUT_RDWR)
            finally:
                line.detach()  # libpq closes it


class _Watchdog:
    """Cuts connections whose statements take too long. One thread serves all statements of the process: to start one
    for each takes longer than most statements do.
    """

    def __init__(self) -> None:
        self._armed: dict[_Cutter, float] = {}
        self._wakes_at = math.inf
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def arm(self, cutter: _Cutter, seconds: float) -> None:
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="postgresql-watchdog", daemon=True)
                self._thread.start()
            ends = self._armed[cutter] = time.monotonic() + seconds
            if ends < self._wakes_at:
                self._wakes_at = ends
                self._changed.notify()

    def disarm(self, cutter: _Cutter) -> None:
        with self._changed:
            self._armed.pop(cutter, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for cutter in [each for each, ends in self._armed.items() if ends <= now]:
                    del self._armed[cutter]
                    cutter.cut()
                self._wakes_at = min(self._armed.values(), default=math.inf)
                self._changed.wait(None if self._wakes_at == math.inf else self._wakes_at - now)


_watchdog = _Watchdog()


def _renew_watchdog() -> None:
    """In a forked process, where the thread is not."""
    global _watchdog
    _watchdog = _Watchdog()


os.register_at_fork(after_in_child=_renew_watchdog)


class NoAnswer(psycopg.OperationalError):  # type: ignore[misc]
    """The server did not answer in time, and the connection was cut."""


_CREDENTIALS = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|role .* does not exist"
    r"|is not permitted to log in|certificate|permission denied for database"
)
_UNRESOLVED = re.compile(r"could not translate host name|failed to resolve host|Name or service not known|getaddrinfo")
_NO_DATABASE = re.compile(r"database .* does not exist")

_BUSY_CODES = {"40001", "40P01"}
_UNREACHABLE_CODES = re.compile(r"08...|57P0.|53...|58...")
_SENTENCES = {
    "57014": "did not finish a statement within {timeout:g} s",
    "55P03": "could not get a lock within {timeout:g} s: another transaction holds the rows or the table",
}
_REFUSALS = {
    "42501": (
        "does not allow it",
        "Have it granted to the user of the store's address (GRANT … ON …), or use another one.",
    ),
    "25006": (
        "is read-only",
        "A standby cannot be written: name the primary, or several hosts and target_session_attrs=read-write.",
    ),
}


def raise_explained(err: psycopg.Error, place: str, timeout_s: float) -> NoReturn:
    """Raise this product's error for one before COMMIT: nothing was written. An error that only a bug causes stays."""
    if err.sqlstate is not None:
        raise _by_code(err, err.sqlstate, place, timeout_s) from err
    if isinstance(err, psycopg.OperationalError):
        raise Unreachable(
            f"{place} did not answer ({server_message(err)}); nothing was written.",
            hint="Check that the server runs and can be reached, then run this again.",
        ) from err
    if isinstance(err, psycopg.DataError):
        raise Refused(
            f"{place} cannot hold this: {server_message(err)}; nothing was written.",
            hint="Choose another store for it.",
        ) from err
    raise err


def _by_code(err: psycopg.Error, code: str, place: str, timeout_s: float) -> Unreachable:
    message = server_message(err)
    if code in _BUSY_CODES:
        return Again(
            f"{place}: other transactions were in the way ({message}); nothing was written.", hint="Run this again."
        )
    if code in _SENTENCES:
        return NotNow(
            f"{place} {_SENTENCES[code].format(timeout=timeout_s)}; nothing was written.",
            hint="See in pg_stat_activity what holds it up, then run this again.",
        )
    if _UNREACHABLE_CODES.fullmatch(code):
        return Unreachable(f"{place} gave up ({message}); nothing was written.", hint="See the server's log for why.")
    if code in _REFUSALS:
        what, hint = _REFUSALS[code]
        return Refused(f"{place} {what} ({message}); nothing was written.", hint=hint)
    if code == "23502":
        column = err.diag.column_name or "?"
        return Refused(
            f'{place} takes no new row without a value for the column "{column}", which the store\'s address does not'
            " name; nothing was written.",
            hint="Give the column a default, or insert rows for the destination's topic yourself (any offset will do),"
            " then make a new plan.",
        )
    constraint = err.diag.constraint_name
    return Refused(
        f"{place} refused it: {message} (SQLSTATE {code}); nothing was written.",
        hint=f'See the constraint "{constraint}" of the table.' if constraint else "See the server's log for more.",
    )


def explain_connecting(err: psycopg.Error, place: str) -> Unreachable:
    """The error to raise for a connection that failed. libpq has no code for that, only a message."""
    message = server_message(err)
    if _NO_DATABASE.search(message):
        return Refused(
            f"{place} does not exist ({message}).", hint="Correct the store's address, or create it with createdb."
        )
    if _CREDENTIALS.search(message):
        return Refused(
            f"{place} does not let this user in ({message}).",
            hint="Correct user and password (in the address, PGPASSWORD or ~/.pgpass), or the server's pg_hba.conf.",
        )
    if _UNRESOLVED.search(message):
        return Refused(
            f"{place} could not be reached ({message}); nothing was written.",
            hint="Correct the host of the store's address, or this machine's name resolution (DNS).",
        )
    return Away(
        f"{place} could not be reached ({message}); nothing was written.",
        hint="Check host and port of the store's address, and that the server runs.",
    )


def rolled_back(err: psycopg.Error) -> bool:
    """True if an error in answer to COMMIT proves that nothing was committed.

    A deferred constraint or trigger refuses with a code of any class (23…, P0001, the trigger's own), and the server
    continues. Codes of a server or a pooler that gave up prove nothing, and the shutdown codes (57P…) least of all: the
    server may have committed and was only waiting for its standby.
    """
    code = err.sqlstate or ""
    if err.diag.severity_nonlocalized != "ERROR" or _UNREACHABLE_CODES.fullmatch(code):
        return False
    return code != "40003" and not code.startswith("XX")


def server_message(err: psycopg.Error) -> str:
    """The message of the server or of libpq, as one line without a full stop."""
    text = err.diag.message_primary or str(err)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(err).__name__]
    # One line for each host, in the order they were tried.
    message = lines[0] if len(lines) < 3 else "; ".join(lines[:4])
    message = re.sub(r"^(connection failed: )?(connection to server .*? failed: )?(FATAL:\s*)?", "", message)
    return message.rstrip(".")
