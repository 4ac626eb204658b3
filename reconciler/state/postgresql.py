"""State in one table of PostgreSQL. It is read at the primary too: a standby may be behind the last move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import conninfo, errors

from reconciler.core.errors import NotCreated
from reconciler.places.parameters import wrong_address
from reconciler.places.postgresql.address import Address, parse
from reconciler.places.postgresql.connection import Database, Session, quoted
from reconciler.state.store import MAKE_IT, Held

EXAMPLE = "postgresql://HOST/DATABASE"
_NAME = "reconciler_state"


def open_address(address: str) -> PostgresqlState:
    """``postgresql://…`` as libpq reads it. Raises ConfigError for any other address, and one with ``table=``."""
    parsed = parse(address)
    if parsed.columns is not None:
        raise wrong_address("[state] store", EXAMPLE, "it names a table, and state has its own")
    return PostgresqlState(parsed)


class PostgresqlState:
    def __init__(self, address: Address) -> None:
        libpq = conninfo.make_conninfo(address.libpq, target_session_attrs="read-write")
        self._database = Database(libpq, address.place, timeout_s=address.timeout_s)
        self._table = quoted(address.schema, _NAME)
        self.shown = address.place

    def create(self) -> None:
        def make(db: Session) -> None:
            self._database.refuse_read_only(db)
            db.run(
                f"CREATE TABLE IF NOT EXISTS {self._table} (log text NOT NULL, number bigint NOT NULL,"
                " entry bytea NOT NULL, PRIMARY KEY (log, number))"
            )

        self._database.transaction(make)

    def put(self, log: str, number: int, entry: bytes) -> bool:
        # Two writers of one number meet at the primary key: the second one waits, and inserts nothing.
        statement = f"INSERT INTO {self._table} VALUES (%s, %s, %s) ON CONFLICT DO NOTHING RETURNING number"
        return self._database.transaction(lambda db: self._one(db, statement, (log, number, entry))) is not None

    def read(self, log: str, newest: int) -> Sequence[Held]:
        statement = f"SELECT number, entry FROM {self._table} WHERE log = %s ORDER BY number DESC LIMIT %s"

        def select(db: Session) -> list[Held]:
            return [Held(int(number), bytes(entry)) for number, entry in self._all(db, statement, (log, newest))]

        return self._database.transaction(select, only_reads=True)

    def read_one(self, log: str, number: int) -> Held | None:
        statement = f"SELECT entry FROM {self._table} WHERE log = %s AND number = %s"
        row = self._database.transaction(lambda db: self._one(db, statement, (log, number)), only_reads=True)
        return None if row is None else Held(number, bytes(row[0]))

    def remove(self, log: str, number: int) -> None:
        statement = f"DELETE FROM {self._table} WHERE log = %s AND number = %s"
        self._database.transaction(lambda db: db.run(statement, (log, number)))

    def prune(self, log: str, upto: int) -> None:
        statement = f"DELETE FROM {self._table} WHERE log = %s AND number <= %s"
        self._database.transaction(lambda db: db.run(statement, (log, upto)))

    def close(self) -> None:
        self._database.close()

    def _one(self, db: Session, statement: str, values: Sequence[Any]) -> tuple[Any, ...] | None:
        return next(iter(self._all(db, statement, values)), None)

    def _all(self, db: Session, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        try:
            return db.all(statement, values)
        except errors.UndefinedTable as error:
            raise NotCreated(f"{self.shown} has no table {_NAME}.", hint=MAKE_IT) from error
