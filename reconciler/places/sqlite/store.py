"""Offset stores in a SQLite file, with compare-and-set and atomic batches. Standard library only.

Every call opens its own connection: threads, forked processes and other programs can use one file at the same time,
and nothing stays open between calls. Reading never creates the file; ``create`` and the first write do.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from reconciler.core.errors import ConfigError, NotCreated, Refused
from reconciler.fileio import is_folder, stat_if_there
from reconciler.places import common, sql_rows
from reconciler.places.parameters import wrong_address
from reconciler.places.sqlite import database
from reconciler.ports import Capabilities, Change, OffsetStore, Row, TopicPartition, WriteResult

T = TypeVar("T")

BUSY_TIMEOUT_S = 10.0
"""How long a call waits for other writers."""


class SqliteStore:
    """An offset store in one file. ``path`` is taken relative to the working directory once, here.

    Raises, from every method: Refused for a file that is missing (on reading), is not SQLite, belongs to another
    program or to a newer version, or may not be opened; Unreachable where it stays locked or the disk fails.
    """

    capabilities = Capabilities(atomic_batches=True)

    def __init__(self, path: str, *, address: str | None = None, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self.address = address or f"sqlite:///{path}"
        self._path = os.path.abspath(path)
        self._busy_timeout_s = busy_timeout_s
        self._decoder = sql_rows.Decoder(f"the offset store {self._path}")

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        common.check_name("group's name", group)

        def ask(db: sqlite3.Connection) -> tuple[str, list[Any], list[Any]]:
            found = db.execute(
                f"SELECT topic, partition, change, {database.COLUMNS} FROM reconciler_offsets"
                " WHERE grp = ? ORDER BY topic, partition",
                (group,),
            ).fetchall()
            blobs = db.execute(
                "SELECT topic, partition FROM reconciler_offsets"
                " WHERE grp = CAST(? AS BLOB) OR (grp = ? AND typeof(topic) = 'blob')",
                (group, group),
            ).fetchall()
            return self._store_name(db), found, blobs

        name, found, blobs = self._read(ask)
        rows = [self._decoder.row(name, group, *values) for values in found if isinstance(values[0], str)]
        rows += [self._decoder.misnamed(group, *values) for values in blobs]
        return common.rows_of_topics(rows, topics)

    def groups(self) -> list[str]:
        statement = "SELECT DISTINCT grp FROM reconciler_offsets WHERE typeof(grp) = 'text' ORDER BY grp"
        return [name for (name,) in self._read(lambda db: db.execute(statement).fetchall())]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """All changes, or none of them if any row is no longer at its expected version.

        Creates the file if there is none, in a directory that must exist. Raises OutcomeUnknown if the disk fails
        during COMMIT: the changes may be there or not.
        """
        common.check_changes(group, changes)
        if stat_if_there(self._path) is None:
            found = common.conflicts(changes, {})
            if found or not changes:
                return WriteResult(conflicts=found)  # no reason to create the file
        with self._writing() as db:
            found = self._conflicts(db, group, changes)
            if not found:
                for change in changes:
                    self._put(db, group, change, now_ms)
        return WriteResult(conflicts=found) if found else common.result_of(changes)

    def create(self) -> None:
        """Make the file with its empty tables, unless it exists. Its directory must exist."""
        with self._writing():
            pass

    def check_writable(self, group: str) -> None:
        """Raise Refused if the file, or the place where it would be made, cannot be written. Writes nothing."""
        common.check_name("group's name", group)
        if stat_if_there(self._path) is not None:
            self._read(lambda _: None, empty_is_missing=False)
            if not _allowed(self._path, os.W_OK):
                raise Refused(
                    f"The offset store {self._path} may not be written by this user.",
                    hint="Make the file writable for the user that runs this.",
                )
        self._check_parent()

    def close(self) -> None:
        """Nothing is held between calls."""

    # ------------------------------------------------------------ connections

    def _read(self, ask: Callable[[sqlite3.Connection], T], *, empty_is_missing: bool = True) -> T:
        """The result of ``ask`` on one state of the file."""
        if stat_if_there(self._path) is None:
            raise self._missing()
        with self._explained(), closing(self._connect("rw")) as db:
            db.execute("PRAGMA query_only = ON")
            db.execute("BEGIN")
            if not self._is_ours(db) and empty_is_missing:
                raise self._missing()
            return ask(db)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction on a file with tables, made if need be; committed at the end, undone by any exception."""
        if stat_if_there(self._path) is None:
            self._check_parent()
        with self._explained(), closing(self._connect("rwc")) as db:
            # IMMEDIATE: rows that this transaction reads cannot change before it writes.
            db.execute("BEGIN IMMEDIATE")
            if not self._is_ours(db):
                database.create(db)
            yield db
            database.commit(db, self._path, "offset store")

    @property
    def _file(self) -> str:
        """Where a link leads: SQLite keeps its journal beside the file itself, not beside a link."""
        return os.path.realpath(self._path)

    def _connect(self, mode: str) -> sqlite3.Connection:
        db = database.connect(self._path, mode, self._busy_timeout_s)
        db.text_factory = _text
        return db

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as err:
            sentence = database.explain(err, self._path, self._busy_timeout_s)
            if sentence is None:
                raise
            raise sentence from err

    # ------------------------------------------------------------ what kind of file it is

    def _is_ours(self, db: sqlite3.Connection) -> bool:
        """False for an empty file. Raises Refused for a file that this version must not touch."""
        kind = database.kind_of(db)
        if kind is sql_rows.Kind.NEWER:
            raise sql_rows.made_by_newer(self._path)
        if kind is sql_rows.Kind.FOREIGN:
            raise Refused(
                f"{self._path} is a SQLite file of another program, not an offset store.",
                hint="Give the offset store a file of its own.",
            )
        return kind is sql_rows.Kind.OURS

    def _missing(self) -> Refused:
        kind = NotCreated if is_folder(os.path.dirname(self._file)) else Refused
        return kind(
            f"There is no offset store at {self._path}.",
            hint=self._hint("Correct the store's address; the first write to a right one creates the file."),
        )

    def _hint(self, otherwise: str) -> str:
        """``otherwise``, unless the path looks like an absolute one that was written with three slashes."""
        meant = self._file.removeprefix(os.getcwd())
        is_relative = meant != self._file and meant.startswith(os.sep) and not is_folder(os.path.dirname(self._file))
        parent = os.path.dirname(meant)
        if is_relative and parent != os.sep and is_folder(parent):
            return f"Three slashes begin a relative path. For {meant} write four: sqlite:///{meant}."
        return otherwise

    def _check_parent(self) -> None:
        parent = os.path.dirname(self._file)
        if not is_folder(parent):
            raise Refused(
                f"There is no directory {parent} to hold the offset store.",
                hint=self._hint("Create it, or correct the store's address."),
            )
        # SQLite keeps its journal beside the file, so the directory counts even where the file exists.
        if not _allowed(parent, os.W_OK | os.X_OK):
            raise Refused(
                f"The directory {parent} of the offset store may not be written by this user.",
                hint="Make it writable for the user that runs this.",
            )

    # ------------------------------------------------------------ rows

    def _conflicts(self, db: sqlite3.Connection, group: str, changes: Sequence[Change]) -> tuple[TopicPartition, ...]:
        name = self._store_name(db)
        found = db.execute("SELECT topic, partition, change FROM reconciler_offsets WHERE grp = ?", (group,))
        return common.conflicts(changes, {TopicPartition(t, p): sql_rows.version(name, c) for t, p, c in found})

    def _put(self, db: sqlite3.Connection, group: str, change: Change, now_ms: int) -> None:
        after = sql_rows.to_columns(common.with_time(change, now_ms), change.stay)
        values = (group, change.key.topic, change.key.partition, database.next_change(db), *after)
        marks = ", ".join("?" * len(values))
        db.execute(
            f"REPLACE INTO reconciler_offsets (grp, topic, partition, change, {database.COLUMNS}) VALUES ({marks})",
            values,
        )

    def _store_name(self, db: sqlite3.Connection) -> str:
        name = database.store_name(db)
        if name is None:
            raise self._damaged("its table reconciler_store names no store")
        return name

    def _damaged(self, what: str) -> Refused:
        return Refused(
            f"The offset store {self._path} holds a row that this product did not write: {what}.",
            hint="Correct or delete the row, or restore the file from a backup.",
        )


def _text(raw: bytes) -> str:
    """A text cell. SQLite keeps any bytes as text; the rows' check recognises invalid ones by their surrogates."""
    return raw.decode(errors="surrogateescape")


def _allowed(path: str, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``sqlite:///PATH``, as in SQLAlchemy: three slashes before a relative path, four make it absolute."""
    rest = address.partition(":")[2]
    path = rest.removeprefix("///")
    if path == rest or path in ("", ":memory:") or path.endswith("/"):
        raise ConfigError(
            f"{address!r} is not the address of a SQLite store.",
            hint="Write sqlite:///offsets.db (relative), sqlite:////var/lib/offsets.db (absolute) or memory:.",
        )
    if mark := re.search(r"[?#]", path):
        why = f"it takes no parameters, and no {mark[0]} may be in its path"
        raise wrong_address("The address of a SQLite store", "sqlite:///offsets.db", why)
    common.check_name("path of the SQLite store", path)
    return SqliteStore(path, address=address)
