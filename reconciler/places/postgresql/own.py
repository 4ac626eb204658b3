"""This product's own tables in PostgreSQL (``places.sql_rows``): offsets with anchors, and atomic batches.

The sequence ``reconciler_changes`` numbers the changes; ``reconciler_store`` also holds the version of these tables.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from psycopg import sql

from reconciler.core.errors import NotCreated, Refused
from reconciler.places import common, sql_rows
from reconciler.places.mapped_table import Again, Undo
from reconciler.places.postgresql.connection import Database, Session, identifier, quoted
from reconciler.places.sql_rows import COLUMN_TYPES, COLUMNS, Kind
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult

T = TypeVar("T")

SCHEMA_VERSION = 1
_ONE_AT_A_TIME = 0x4F464652
"""The advisory lock held while the tables are made: the letters OFFR."""

_SQL_TYPES = {int: "bigint", str: "text", bytes: "bytea"}
_TYPES = {name: _SQL_TYPES[kind] for name, kind in COLUMN_TYPES.items()}
_DECLARED = sql.SQL(", ").join(
    sql.SQL("{} {}").format(identifier(name), sql.SQL(kind)) for name, kind in _TYPES.items()
)
_KEY = ("grp", "topic", "partition")
_PRIVILEGES = ("SELECT", "INSERT", "UPDATE")


class OwnStore:
    """An offset store in tables of this product's own, in ``schema`` (None: by the connection's search path).

    Every method raises Refused where the tables are missing, another program's or a newer version's, and where the
    server refuses; Unreachable without an answer in time.
    """

    capabilities = Capabilities(atomic_batches=True)

    def __init__(self, database: Database, schema: str | None, address: str) -> None:
        self.address = address
        self._database = database
        self._schema = schema

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        common.check_name("group's name", group)
        wanted = common.wanted_topics(topics)

        def work(db: Session, name: str) -> list[Row]:
            rows = (self._decoder.row(name, group, *values) for values in self._rows(db, group, wanted))
            return sorted(rows, key=lambda row: row.key)

        return self._transaction(work, only_reads=True)

    def groups(self) -> list[str]:
        statement = self._sql("SELECT DISTINCT grp FROM {table} ORDER BY grp", "reconciler_offsets")
        return [group for (group,) in self._transaction(lambda db, _: db.all(statement), only_reads=True)]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """All changes, or none of them if any row is no longer at its expected version.

        Raises OutcomeUnknown if COMMIT was not answered.
        """
        common.check_changes(group, changes)
        if not changes:
            return WriteResult()

        def work(db: Session, name: str) -> WriteResult:
            topics = {change.key.topic for change in changes}
            versions = {
                TopicPartition(topic, partition): sql_rows.version(name, change)
                for topic, partition, change, *_ in self._rows(db, group, topics, lock=True)
            }
            if conflicts := common.conflicts(changes, versions):
                raise Undo(WriteResult(conflicts=conflicts))
            # Every batch locks its rows in this order, so that two batches cannot deadlock.
            self._put(db, group, sorted(changes, key=lambda change: change.key), versions.keys(), now_ms)
            return common.result_of(changes)

        return self._transaction(work)

    def create(self) -> None:
        """Create the tables, unless they exist. The database and the schema must exist."""

        def work(db: Session) -> None:
            db.all("SELECT pg_advisory_xact_lock(%s)", (_ONE_AT_A_TIME,))
            if self._kind(db) is Kind.EMPTY:
                for statement in self._definitions():
                    db.run(statement)
                insert = self._sql("INSERT INTO {table} (name, version) VALUES (%s, %s)", "reconciler_store")
                db.run(insert, (secrets.token_hex(8), SCHEMA_VERSION))
            self._name(db)

        self._database.transaction(work)

    def check_writable(self, group: str) -> None:
        """Raise Refused if the database is read-only, or this user may not write the tables. Writes nothing."""
        common.check_name("group's name", group)

        def work(db: Session, _: str) -> None:
            self._database.refuse_read_only(db)
            self._database.refuse_without(db, _PRIVILEGES, quoted(self._schema, "reconciler_offsets"))

        self._transaction(work, only_reads=True)

    def close(self) -> None:
        self._database.close()

    def _transaction(self, work: Callable[[Session, str], T], *, only_reads: bool = False) -> T:
        """Run ``work`` with the store's name in a transaction. Raises Refused for tables that are not this store's."""
        return self._database.transaction(lambda db: work(db, self._name(db)), only_reads=only_reads)

    # ------------------------------------------------------------ rows

    @property
    def _decoder(self) -> sql_rows.Decoder:
        return sql_rows.Decoder(self._database.place)

    def _rows(
        self, db: Session, group: str, topics: Iterable[str] | None, *, lock: bool = False
    ) -> list[tuple[Any, ...]]:
        statement = self._sql(
            f"SELECT topic, partition, change, {', '.join(COLUMNS)} FROM {{table}} WHERE grp = %s"
            " AND (%s::text[] IS NULL OR topic = ANY(%s::text[])) ORDER BY topic, partition"
            + (" FOR UPDATE" if lock else ""),
            "reconciler_offsets",
        )
        names = None if topics is None else sorted(topics)
        return db.all(statement, (group, names, names))

    def _put(
        self, db: Session, group: str, changes: Sequence[Change], there: Collection[TopicPartition], now_ms: int
    ) -> None:
        """Write the changes; ``there`` are the rows that exist."""
        sequence = quoted(self._schema, "reconciler_changes")
        found = db.all("SELECT nextval(%s::regclass) FROM generate_series(1, %s)", (sequence, len(changes)))
        updated, inserted = [], []
        for change, (number,) in zip(changes, sorted(found), strict=True):
            key = (group, change.key.topic, change.key.partition)
            after = sql_rows.to_columns(common.with_time(change, now_ms), change.stay)
            if change.key in there:
                updated.append((number, *after, *key))
            else:
                inserted.append((*key, number, *after))
        where = "WHERE grp = %s AND topic = %s AND partition = %s"
        new_values = ", ".join(f"{name} = %s" for name in COLUMNS)
        db.each(self._sql(f"UPDATE {{table}} SET change = %s, {new_values} {where}", "reconciler_offsets"), updated)
        insert = self._insert("reconciler_offsets", (*_KEY, "change", *COLUMNS), " ON CONFLICT DO NOTHING")
        if db.each(insert, inserted) != len(inserted):
            raise Again(f"{self._database.place}: another writer inserted the same rows; nothing was written.")

    # ------------------------------------------------------------ tables

    def _kind(self, db: Session) -> Kind:
        tables = [quoted(self._schema, name) for name in ("reconciler_store", "reconciler_offsets")]
        if db.one("SELECT to_regclass(%s) IS NULL AND to_regclass(%s) IS NULL", tables) == (True,):
            return Kind.EMPTY
        columns = db.all(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            tables[:1],
        )
        if not {("name",), ("version",)} <= {*columns}:
            return Kind.FOREIGN
        found = db.one(self._sql("SELECT version FROM {table}", "reconciler_store"))
        if found is None:
            return Kind.FOREIGN
        return Kind.OURS if found[0] == SCHEMA_VERSION else Kind.NEWER

    def _name(self, db: Session) -> str:
        """The store's own name. Raises Refused for tables that this version must not touch."""
        kind, place = self._kind(db), self._database.place
        where = f"{place}, schema {self._schema}" if self._schema else place
        if kind is Kind.EMPTY:
            raise NotCreated(
                f"There are no tables of an offset store in {where}.",
                hint="Correct the store's address. To make a new store there, run: reconciler anchors import -c FILE"
                " --job NAME /dev/null",
            )
        if kind is Kind.NEWER:
            raise sql_rows.made_by_newer(f"in {where}")
        if kind is Kind.FOREIGN:
            raise Refused(
                f"The tables reconciler_… in {where} are another program's.",
                hint="Give the offset store a schema of its own (&schema=NAME), or the other tables other names.",
            )
        found = db.one(self._sql("SELECT name FROM {table}", "reconciler_store"))
        return str(found[0]) if found else ""

    def _definitions(self) -> list[sql.Composable]:
        key = "grp text NOT NULL, topic text NOT NULL, partition integer NOT NULL"
        return [
            self._sql("CREATE TABLE {table} (name text NOT NULL, version integer NOT NULL)", "reconciler_store"),
            self._sql("CREATE SEQUENCE {table}", "reconciler_changes"),
            self._sql(
                f"CREATE TABLE {{table}} ({key}, change bigint NOT NULL, {{columns}},"
                " PRIMARY KEY (grp, topic, partition))",
                "reconciler_offsets",
                columns=_DECLARED,
            ),
        ]

    def _sql(self, text: str, table: str, **parts: sql.Composable) -> sql.Composable:
        return sql.SQL(text).format(table=identifier(self._schema, table), **parts)

    def _insert(self, table: str, columns: Sequence[str], more: str = "") -> sql.Composable:
        marks = ", ".join(["%s"] * len(columns))
        return self._sql(f"INSERT INTO {{table}} ({', '.join(columns)}) VALUES ({marks}){more}", table)
