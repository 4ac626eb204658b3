"""The SQLite store's tables (``stores.sql_rows``): how they are made and recognised. No connection is opened here."""

from __future__ import annotations

import sqlite3

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
