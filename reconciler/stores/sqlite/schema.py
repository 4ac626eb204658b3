"""The SQLite store's tables: how they are made, recognised, filled and read. No connection is opened here.

``reconciler_offsets`` holds the rows, ``reconciler_history`` every change with the row before and after it, and
``reconciler_store`` one random name of the file. A row's version is that name and the id of the change that made
it, so no version ever comes back, not even when the file is deleted and made anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from enum import Enum
from typing import Any

from reconciler.core.anchors import Anchor, Names, StoredOffset

APPLICATION_ID = 0x4F464652
"""SQLite's mark of whose file this is: the letters OFFR."""
SCHEMA_VERSION = 1
HISTORY_KEPT = 1000
"""Changes kept a partition. A tracker writes every few seconds, and the file must not grow for ever."""

_FIELDS = (
    ("stored_offset", "INTEGER"),
    ("names", "TEXT"),
    ("anchor_offset", "INTEGER"),
    ("timestamp_ms", "INTEGER"),
    ("id", "BLOB"),
    ("fingerprint", "TEXT"),
    ("cluster_id", "TEXT"),
    ("topic_id", "TEXT"),
    ("written_at_ms", "INTEGER"),
)
COLUMNS = ", ".join(name for name, _ in _FIELDS)
HISTORY_COLUMNS = ", ".join(f"{side}_{name}" for side in ("before", "after") for name, _ in _FIELDS)
NOTHING: tuple[None, ...] = (None,) * len(_FIELDS)


def _declared(prefix: str) -> str:
    return ", ".join(f"{prefix}{name} {kind}" for name, kind in _FIELDS)


_KEY = "grp TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL"
_TABLES = (
    "CREATE TABLE reconciler_store (name TEXT NOT NULL)",
    "INSERT INTO reconciler_store VALUES (lower(hex(randomblob(8))))",
    f"CREATE TABLE reconciler_offsets ({_KEY}, {_declared('')}, change INTEGER NOT NULL,"
    " PRIMARY KEY (grp, topic, partition)) WITHOUT ROWID",
    f"CREATE TABLE reconciler_history (change INTEGER PRIMARY KEY AUTOINCREMENT, {_KEY},"
    f" {_declared('before_')}, {_declared('after_')}, reason TEXT NOT NULL, at_ms INTEGER NOT NULL)",
    "CREATE INDEX reconciler_history_of_row ON reconciler_history (grp, topic, partition, change)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


class Kind(Enum):
    """What a database file is to this store."""

    OURS = "ours"
    EMPTY = "empty"
    NEWER = "newer"
    FOREIGN = "foreign"


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


def store_name(db: sqlite3.Connection) -> str:
    (name,) = db.execute("SELECT name FROM reconciler_store").fetchone()
    return str(name)


def to_columns(stored: StoredOffset | None) -> tuple[object, ...]:
    """The values of ``COLUMNS``; all null for no row. ``names`` is null exactly where there is no anchor."""
    if stored is None:
        return NOTHING
    anchor = stored.anchor
    if anchor is None:
        return (stored.offset, *NOTHING[2:], stored.written_at_ms)
    return (
        stored.offset,
        anchor.names.value,
        anchor.offset,
        anchor.timestamp_ms,
        anchor.id,
        anchor.fingerprint,
        anchor.cluster_id,
        anchor.topic_id,
        stored.written_at_ms,
    )


def from_columns(values: Sequence[Any]) -> StoredOffset | None:
    """The reverse. Raises ValueError for values that this store never wrote."""
    offset, names, anchor_offset, timestamp_ms, id_bytes, fingerprint, cluster_id, topic_id, at_ms = values
    if offset is None:
        return None
    if names is None:
        return StoredOffset(offset, None, at_ms)
    anchor = Anchor(
        offset=anchor_offset,
        timestamp_ms=timestamp_ms,
        id=id_bytes,
        fingerprint=fingerprint,
        cluster_id=cluster_id,
        topic_id=topic_id,
        names=Names(names),
    )
    return StoredOffset(offset, anchor, at_ms)
