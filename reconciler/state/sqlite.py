"""State in a SQLite file, for one machine. Every call opens its own connection; only ``create`` makes the file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from reconciler.core.errors import NotCreated
from reconciler.places.parameters import wrong_address
from reconciler.places.sqlite import database
from reconciler.state.store import MAKE_IT, Held

EXAMPLE = "sqlite:///FILE"
WAIT_S = 10.0
"""How long a call waits for other writers."""
_TABLE = (
    "CREATE TABLE IF NOT EXISTS reconciler_state"
    " (log TEXT NOT NULL, number INTEGER NOT NULL, entry BLOB NOT NULL, PRIMARY KEY (log, number)) WITHOUT ROWID"
)

RESTORE = "Restore it from a backup that is not older than the last move."


def open_address(address: str) -> SqliteState:
    """``sqlite:///FILE``. Raises ConfigError if it names no file."""
    path = address.removeprefix("sqlite:///")
    if path == address or not path:
        raise wrong_address("[state] store", EXAMPLE, "it names no file")
    return SqliteState(path)


class SqliteState:
    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self.shown = f"sqlite:///{path}"

    def create(self) -> None:
        with self._transaction(mode="rwc") as db:
            db.execute(_TABLE)

    def put(self, log: str, number: int, entry: bytes) -> bool:
        with self._transaction() as db:
            return (
                db.execute("INSERT OR IGNORE INTO reconciler_state VALUES (?, ?, ?)", (log, number, entry)).rowcount
                == 1
            )

    def read(self, log: str, newest: int) -> Sequence[Held]:
        statement = "SELECT number, entry FROM reconciler_state WHERE log = ? ORDER BY number DESC LIMIT ?"
        with self._connected() as db:
            return [Held(*row) for row in db.execute(statement, (log, newest)).fetchall()]

    def read_one(self, log: str, number: int) -> Held | None:
        statement = "SELECT number, entry FROM reconciler_state WHERE log = ? AND number = ?"
        with self._connected() as db:
            row = db.execute(statement, (log, number)).fetchone()
        return None if row is None else Held(*row)

    def remove(self, log: str, number: int) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM reconciler_state WHERE log = ? AND number = ?", (log, number))

    def prune(self, log: str, upto: int) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM reconciler_state WHERE log = ? AND number <= ?", (log, upto))

    def close(self) -> None:
        """Nothing stays open between calls."""

    @contextmanager
    def _transaction(self, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        with self._connected(mode) as db:
            db.execute("BEGIN IMMEDIATE")  # what is read cannot change before the write
            yield db
            database.commit(db, self._path, "state store")

    @contextmanager
    def _connected(self, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        if mode == "rw" and not os.path.exists(self._path):
            raise self._missing()
        try:
            with closing(database.connect(self._path, mode, WAIT_S)) as db:
                yield db
        except sqlite3.Error as err:
            if str(err).startswith("no such table"):
                raise self._missing() from err
            explained = database.explain(err, self._path, WAIT_S, "state store", RESTORE)
            if explained is None:
                raise
            raise explained from err

    def _missing(self) -> NotCreated:
        return NotCreated(
            f"There is no state store {self._path}.",
            hint=MAKE_IT,
        )
