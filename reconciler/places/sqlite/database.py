"""The SQLite store's tables (``places.sql_rows``) and SQLite's errors as sentences."""

from __future__ import annotations

import os
import sqlite3
from urllib.parse import quote

from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.places import sql_rows
from reconciler.places.sql_rows import Kind

APPLICATION_ID = 0x4F464652
"""SQLite's mark of the program that owns a file: the letters OFFR."""
SCHEMA_VERSION = 1

COLUMNS = ", ".join(sql_rows.COLUMNS)

_TYPES = {int: "INTEGER", str: "TEXT", bytes: "BLOB"}
_DECLARED = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in sql_rows.COLUMN_TYPES.items())
_KEY = "grp TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL"
_TABLES = (
    "CREATE TABLE reconciler_store (name TEXT NOT NULL, changes INTEGER NOT NULL)",
    "INSERT INTO reconciler_store VALUES (lower(hex(randomblob(8))), 0)",
    f"CREATE TABLE reconciler_offsets ({_KEY}, {_DECLARED}, change INTEGER NOT NULL,"
    " PRIMARY KEY (grp, topic, partition)) WITHOUT ROWID",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


def connect(path: str, mode: str, wait_s: float) -> sqlite3.Connection:
    """A connection without implicit transactions. ``mode`` is ``rw``, or ``rwc`` to make the file."""
    # Where a link leads: SQLite keeps its journal beside the file itself, not beside a link.
    uri = f"file:{quote(os.path.realpath(path))}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=wait_s, isolation_level=None)


def commit(db: sqlite3.Connection, path: str, what: str) -> None:
    """Commit the transaction. Raises OutcomeUnknown if the disk fails meanwhile; ``what`` is the file."""
    try:
        db.execute("COMMIT")
    except sqlite3.OperationalError as err:
        if primary_code(err) != sqlite3.SQLITE_IOERR:
            raise
        raise OutcomeUnknown(
            f"The disk with the {what} {path} failed while it was written ({err}).",
            hint="Check the disk, then run this again.",
        ) from err


def kind_of(db: sqlite3.Connection) -> Kind:
    """Recognise the file by its application id, its version and, without those, by having no tables at all."""
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application_id == APPLICATION_ID:
        return Kind.OURS if version == SCHEMA_VERSION else Kind.NEWER
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return Kind.FOREIGN if tables or application_id or version else Kind.EMPTY


def create(db: sqlite3.Connection) -> None:
    """Make the tables, within the caller's transaction."""
    for statement in _TABLES:
        db.execute(statement)


def next_change(db: sqlite3.Connection) -> int:
    """A number that no change of this store has had, within the caller's transaction."""
    db.execute("UPDATE reconciler_store SET changes = changes + 1")
    (number,) = db.execute("SELECT changes FROM reconciler_store").fetchone()
    return int(number)


def store_name(db: sqlite3.Connection) -> str | None:
    """The random name of the store; None where its table holds none."""
    found = db.execute("SELECT name FROM reconciler_store").fetchone()
    return found[0] if found and isinstance(found[0], str) and found[0] else None


_PRIMARY = 0xFF
"""Extended result codes carry the primary one in their low byte."""

RESTORE = "Restore it from a backup, or move it away and import exported anchors."

_REFUSALS = {
    sqlite3.SQLITE_NOTADB: (
        "{path} is not a SQLite file.",
        "Correct the store's address, or move the file away.",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "The {what} {path} is damaged.",
        "{restore}",
    ),
    sqlite3.SQLITE_READONLY: (
        "The {what} {path} may not be written by this user.",
        "Make the file and its directory writable for the user that runs this.",
    ),
    sqlite3.SQLITE_PERM: (
        "The {what} {path} may not be opened by this user.",
        "Make the file readable for the user that runs this.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "The {what} {path} cannot be opened.",
        "Check that it is a file, and that this user may read it and write to its directory.",
    ),
    sqlite3.SQLITE_FULL: (
        "The disk with the {what} {path} is full; nothing was written.",
        "Make room, then run again.",
    ),
}


def primary_code(err: sqlite3.Error) -> int | None:
    """SQLite's primary result code, None for an error that Python's module raised by itself."""
    code: int | None = getattr(err, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY


def explain(
    err: sqlite3.Error, path: str, waited_s: float, what: str = "offset store", restore: str = RESTORE
) -> ReconcilerError | None:
    """The error to raise instead, None for one that only a bug can cause.

    ``what`` the file is, and how to ``restore`` it, as a sentence.
    """
    code = primary_code(err)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unreachable(
            f"The {what} {path} stayed locked by another program for {waited_s:g} s; nothing was written.",
            hint="Let that program finish, then run again.",
        )
    if code == sqlite3.SQLITE_PROTOCOL:
        return Unreachable(
            f"The locks of the {what} {path} could not be taken ({err}); nothing was written.",
            hint="Run this again. If it says so again, its file system keeps no locks, as many network file systems: "
            "move it to a local disk.",
        )
    if code == sqlite3.SQLITE_IOERR:
        return Unreachable(
            f"The disk with the {what} {path} failed ({err}); nothing was written.",
            hint="Check the disk, then run again.",
        )
    if code == sqlite3.SQLITE_ERROR and str(err).startswith("no such "):
        code = sqlite3.SQLITE_CORRUPT  # it has this product's mark, and not its tables
    if code in _REFUSALS:
        message, hint = _REFUSALS[code]
        return Refused(message.format(what=what, path=path), hint=hint.format(restore=restore))
    return None
