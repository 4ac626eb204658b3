"""One database through psycopg, in this product's words and errors: every statement ends in time, every transaction
either surely happened, surely did not, or is said to be in doubt.

A statement ends by the server's own clock (``statement_timeout``, ``lock_timeout``). A server that is frozen has no
clock: then the connection is cut from this side, which is what ``_Cutter`` is for.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Unreachable
from reconciler.retry import insist
from reconciler.stores.postgresql import errors as errors
from reconciler.stores.postgresql.errors import Again

T = TypeVar("T")

GRACE_S = 0.5
"""How much later than the server's clock this side's one ends a statement."""

_silent = logging.getLogger("psycopg")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def quoted(*names: str | None) -> str:
    """An identifier as SQL has it, of as many parts as are known."""
    return str(sql.Identifier(*(name for name in names if name is not None)).as_string(None))


def identifier(*names: str | None) -> sql.SQL:
    """The same for a statement with values, where a per cent sign stands for one of them."""
    return sql.SQL(quoted(*names).replace("%", "%%"))


class Undo(Exception):
    """Raised within a transaction to take it back, and still return ``result``."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class Session:
    """A connection within a transaction."""

    def __init__(self, connection: Any, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._cursor = connection.cursor()

    def all(self, statement: Any, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement that answers with rows."""
        with _cut_after(self._connection, self._timeout_s + GRACE_S):
            return list(self._cursor.execute(statement, values).fetchall())

    def one(self, statement: Any, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of the answer, None where there is none."""
        return next(iter(self.all(statement, values)), None)

    def run(self, statement: Any, values: Sequence[Any] = ()) -> None:
        """Run a statement without an answer."""
        with _cut_after(self._connection, self._timeout_s + GRACE_S):
            self._cursor.execute(statement, values)

    def each(self, statement: Any, rows: Sequence[Sequence[Any]]) -> int:
        """Run a statement once for each of ``rows``, all sent together. How many rows of the table were concerned."""
        if not rows:
            return 0
        # The server's clock is for each of them, this side's for the progress of a thousand.
        patience_s = (self._timeout_s + GRACE_S) * (1 + len(rows) // 1000)
        with _cut_after(self._connection, patience_s):
            self._cursor.executemany(statement, rows)
        return int(self._cursor.rowcount)


class Database:
    """One database. The connection is made when first needed, kept, and made anew after a drop."""

    def __init__(self, libpq: str, place: str, *, timeout_s: float) -> None:
        self._libpq = libpq
        self.place = place
        self._timeout_s = timeout_s
        self._connection: Any = None

    def transaction(self, work: Callable[[Session], T]) -> T:
        """Do ``work`` in a transaction (read committed) and commit it; an exception takes it back.

        ``work`` is done again where others were in the way (a deadlock, a race) or a connection that had been kept
        turned out to be dead: nothing had been written then. Raises OutcomeUnknown where COMMIT was not answered,
        Unreachable and Refused with nothing written.
        """
        deadline = time.monotonic() + self._timeout_s

        def once() -> T:
            reused = self._connection is not None
            try:
                return self._once(work)
            except Unreachable as error:
                if reused and self._connection is None and error.retryable and not isinstance(error, Again):
                    raise Again(error.message, hint=error.hint) from error
                raise

        return insist(once, helps=lambda error: isinstance(error, Again), give_up=lambda: time.monotonic() >= deadline)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    # ------------------------------------------------------------ one attempt

    def _once(self, work: Callable[[Session], T]) -> T:
        connection = self._connected()
        session = Session(connection, self._timeout_s)
        try:
            try:
                session.run(
                    "SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true)",
                    (self._ms(self._timeout_s), self._ms(self._timeout_s * 0.8)),
                )
                result = work(session)
            except Undo as undo:
                self._take_back(connection)
                return undo.result  # type: ignore[no-any-return]
            except ReconcilerError:
                self._take_back(connection)
                raise
            except psycopg.Error as err:
                self._take_back(connection)
                errors.raise_explained(err, self.place, self._timeout_s)
            self._commit(connection)
        except BaseException:
            # Interrupted, or worse: whatever state it is in, nobody shall go on with it.
            if connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self.close()
            raise
        return result

    def _commit(self, connection: Any) -> None:
        try:
            with _cut_after(connection, self._timeout_s + GRACE_S):
                connection.commit()
        except psycopg.Error as err:
            if errors.took_back(err):
                errors.raise_explained(err, self.place, self._timeout_s)
            self.close()
            raise OutcomeUnknown(
                f"{self.place} did not say whether it took what was written ({errors.word(err)}).",
                hint="Check the server, then run this again: it finishes what was not taken.",
            ) from err

    def _take_back(self, connection: Any) -> None:
        try:
            with _cut_after(connection, self._timeout_s + GRACE_S):
                connection.rollback()
        except psycopg.Error:
            self.close()  # the server takes back what was never committed

    def _connected(self) -> Any:
        if self._connection is not None and self._connection.closed:
            self.close()
        if self._connection is None:
            try:
                self._connection = psycopg.connect(self._libpq, **self._defaults())
            except psycopg.Error as err:
                raise errors.explain_connecting(err, self.place) from err
            self._connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return self._connection

    def _defaults(self) -> dict[str, Any]:
        """What holds where the address and the environment say nothing."""
        given = psycopg.conninfo.conninfo_to_dict(self._libpq)
        from_environment = {
            option.keyword.decode(): option.val for option in psycopg.pq.Conninfo.get_defaults() if option.val
        }
        wanted = {
            "connect_timeout": max(2, round(self._timeout_s)),
            "client_encoding": "utf8",
            "fallback_application_name": "reconciler",
        }
        # Statements are never prepared on the server: a pooler in between may give each transaction another one.
        more: dict[str, Any] = {"prepare_threshold": None}
        return more | {key: value for key, value in wanted.items() if key not in given and key not in from_environment}

    @staticmethod
    def _ms(seconds: float) -> str:
        return str(int(seconds * 1000))


@contextmanager
def _cut_after(connection: Any, seconds: float) -> Iterator[None]:
    """Cut the connection if the block takes longer: a read that would wait for ever then fails as for a drop."""
    cutter = _Cutter(connection.fileno())
    timer = threading.Timer(seconds, cutter.cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except psycopg.OperationalError as err:
        if cutter.has_cut:
            raise errors.NoAnswer(f"no answer within {seconds:g} s") from err
        raise
    finally:
        timer.cancel()
        cutter.disarm()


class _Cutter:
    """Shuts a socket down, unless it was disarmed first: its number may be another's by then."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._armed = True
        self._lock = threading.Lock()
        self.has_cut = False

    def cut(self) -> None:
        with self._lock:
            if self._armed:
                self.has_cut = True
                with suppress(OSError), socket.socket(fileno=self._descriptor) as line:
                    try:
                        line.shutdown(socket.SHUT_RDWR)
                    finally:
                        line.detach()  # closing it is libpq's affair

    def disarm(self) -> None:
        with self._lock:
            self._armed = False
