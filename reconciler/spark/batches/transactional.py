"""Exactly once, for any result: results and offsets in one PostgreSQL transaction.

    sink = PostgresTransaction("postgresql://etl@db/results", table="clicks")
    job = RangeBatches(spark, topics=["events"], group="clicks", bootstrap_servers="kafka:9092")
    job.run(exactly_once(lambda frame, ranges: frame.selectExpr("offset", "CAST(value AS STRING) AS text"), into=sink))

Theory of operation. Results may be larger than any memory, and come from many executors, but a transaction belongs to
one connection. So:

- T1  Each task copies its rows into an unlogged table, which no other program reads, in a transaction of its own. Rows
      carry the number of the attempt that wrote them. Spark reports which attempts it took; rows of other attempts
      (killed, speculative, of a rival) are never read.
- T2  The driver then commits in one transaction: compare-and-set on the offsets' rows (``places.postgresql.own``, with
      anchors and history), then ``merge`` from the staged rows. A conflict rolls all of it back.
- T3  The staged rows are counted within that transaction, and there must be as many as the tasks wrote: a crash of the
      server empties unlogged tables, and a standby that takes over never had their rows.
- T4  A staging table is dropped after its batch. The next batch drops the tables of killed runs, unless a task is still
      writing there. A rival whose table is dropped fails, and none of its rows are written.

The offsets are in this product's own tables, with their anchors.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from reconciler.core.errors import Changed, ConfigError, ReconcilerError, Refused
from reconciler.places.registry import require_installed
from reconciler.ports import Change, OffsetStore, WriteResult
from reconciler.spark.batches.offsets import RangeBatch, RangeSink, refuse_conflicts
from reconciler.spark.batches.postgresql import (
    FrameColumns,
    Task,
    add_connect_timeout,
    columns_of,
    connect,
    convert_rows,
    copy_rows,
    run_on_executors,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reconciler.places.postgresql.connection import Database, Session

log = logging.getLogger(__name__)

ATTEMPT = "reconciler_attempt"
TIMEOUT_S = 600.0
"""For each statement, and for waiting for a rival's transaction."""


@dataclass(frozen=True, slots=True)
class _Staged:
    """A batch's staging table, its name as SQL, and the number of rows of each attempt that Spark took."""

    table: str
    columns: tuple[str, ...]
    attempts: dict[int, int]


class PostgresTransaction(RangeSink):
    """A sink that commits results and offsets together.

    ``address`` is a store's address (``postgresql://…``), also for results; ``table`` is the results' table (``NAME``
    or ``SCHEMA.NAME``), with all columns of the results. ``merge`` is one SQL statement that writes the staged rows
    into it, with ``{staged}`` in their place; without it they are inserted. For totals:

        merge="INSERT INTO totals SELECT * FROM {staged} ON CONFLICT (topic) DO UPDATE SET n = totals.n + excluded.n"

    The user needs CREATE on the table's schema, for the staging tables.
    """

    def __init__(self, address: str, table: str, *, merge: str | None = None) -> None:
        require_installed("PostgresTransaction", "psycopg", "postgresql")
        from reconciler.config.addresses import without_secrets
        from reconciler.places.postgresql import address as postgresql_address
        from reconciler.places.postgresql.connection import Database, quoted

        parsed = postgresql_address.parse(address)
        if parsed.columns is not None:
            raise ConfigError(
                "PostgresTransaction keeps the offsets in this product's own tables, with their anchors.",
                hint="Leave out table= and the columns: such a table has no room for anchors.",
            )
        if merge is not None and "{staged}" not in merge:
            raise ConfigError("merge does not use {staged}.", hint="For example: INSERT INTO t SELECT * FROM {staged}")
        self._parsed = parsed
        self._shown = without_secrets(address)
        self._schema, _, self._name = table.rpartition(".")
        self._table = quoted(self._schema or None, self._name)
        self._merge = merge
        self._libpq = add_connect_timeout(parsed.libpq)
        self._database = Database(self._libpq, parsed.place, timeout_s=TIMEOUT_S)
        self._store = _store_on(Database(parsed.libpq, parsed.place, timeout_s=parsed.timeout_s), parsed, self._shown)
        self._staged: _Staged | None = None

    @property
    def store(self) -> OffsetStore:
        return self._store

    # ------------------------------------------------------------ the sink

    def stage(self, results: DataFrame, batch: RangeBatch) -> None:
        fields = columns_of(results)
        table = self._make(batch.group, fields)
        copied = run_on_executors(results, _copier(self._libpq, table, fields), self._parsed.place)
        self._staged = _Staged(table, fields.names, dict(copied))

    def commit(self, batch: RangeBatch, changes: Sequence[Change], save: Callable[[], None]) -> None:
        staged, self._staged = self._staged, None
        assert staged is not None

        def work(db: Session) -> WriteResult:
            joined = _store_on(_Joined(db, self._parsed.place), self._parsed, self._shown)
            written = joined.write(
                batch.group,
                changes,
                reason=f"batch {batch.name}",
                now_ms=changes[0].new.written_at_ms or 0,
            )
            if not written.conflicts:
                self._merge_staged(db, staged)
            return written

        try:
            # Only a rolled-back transaction returns conflicts.
            refuse_conflicts(self._database.transaction(work).conflicts, batch.group, self._store)
        finally:
            self._drop(staged.table)

    # ------------------------------------------------------------ within the transaction

    def _merge_staged(self, db: Session, staged: _Staged) -> None:
        """Merge the rows of the attempts that Spark took (T1, T3)."""
        from reconciler.places.postgresql.connection import quoted

        columns = ", ".join(quoted(name) for name in staged.columns)
        numbers = ",".join(str(number) for number in sorted(staged.attempts))
        where = f"FROM {staged.table} WHERE {ATTEMPT} = ANY ('{{{numbers}}}'::bigint[])"
        (there,) = db.one(_plain(f"SELECT count(*) {where}")) or (0,)
        if there != sum(staged.attempts.values()):
            raise Changed(
                f"{self._parsed.place} has lost staged rows ({there:,} of {sum(staged.attempts.values()):,} remain):"
                " the server crashed, or a standby took over. Nothing of this batch was saved.",
                hint="Run this again.",
            )
        merge = self._merge or f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM {{staged}}"
        db.run(_plain(merge.replace("{staged}", f"(SELECT {columns} {where}) AS staged")))

    # ------------------------------------------------------------ staging tables

    def _make(self, group: str, fields: FrameColumns) -> str:
        """Create the batch's staging table, and drop the tables of the group's killed runs (T4)."""
        from reconciler.places.postgresql.connection import quoted

        prefix = f"reconciler_staged_{blake2b(f'{group}:{self._table}'.encode(), digest_size=8).hexdigest()}_"
        table = quoted(self._schema or None, f"{prefix}{secrets.token_hex(4)}")
        left = "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables"
        for (name,) in self._database.transaction(
            lambda db: db.all(f"{left} WHERE starts_with(tablename, %s)", (prefix,)), only_reads=True
        ):
            self._drop(name)

        def work(db: Session) -> None:
            types = self._types(db, fields)
            columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in zip(fields.names, types, strict=True))
            db.run(_plain(f"CREATE UNLOGGED TABLE {table} ({ATTEMPT} bigint NOT NULL, {columns})"))

        self._database.transaction(work)
        return table

    def _types(self, db: Session, fields: FrameColumns) -> list[str]:
        """The table's own types; Spark's for a column that only ``merge`` uses."""
        found = dict(
            db.all(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
                " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
                (self._table,),
            )
        )
        if not found:
            raise Refused(f"{self._parsed.place} has no table {self._table}.", hint="Create it, or correct its name.")
        absent = [name for name in fields.names if name not in found]
        if absent and self._merge is None:
            raise ConfigError(
                f"The table {self._table} has no column {', '.join(absent)}, which the results have.",
                hint="Name the results' columns as the table's, or give a merge statement.",
            )
        return [found.get(name, kind) for name, kind in zip(fields.names, fields.types, strict=True)]

    def _drop(self, table: str) -> None:
        """Drop a staging table. If that fails, the next batch drops it; until then it does no harm."""

        def work(db: Session) -> None:
            db.run("SELECT set_config('lock_timeout', '2s', true)")
            db.run(_plain(f"DROP TABLE IF EXISTS {table}"))

        try:
            self._database.transaction(work)
        except ReconcilerError as error:
            log.info("the staging table %s stays for now: %s", table, error)

    def close(self) -> None:
        self._database.close()
        self._store.close()


class _Joined:
    """Gives a store an open transaction in place of its database."""

    def __init__(self, session: Session, place: str) -> None:
        self._session = session
        self.place = place

    def transaction(self, work: Callable[[Session], Any], *, only_reads: bool = False) -> Any:
        """The open transaction commits later, so ``only_reads`` does not matter here."""
        return work(self._session)


def _store_on(database: Database | _Joined, parsed: Any, shown: str) -> OffsetStore:
    from reconciler.places.postgresql.own import OwnStore

    anything: Any = database
    return OwnStore(anything, parsed.schema, shown)


def _plain(statement: str) -> str:
    """A statement without parameters, escaped for psycopg."""
    return statement.replace("%", "%%")


def _copier(libpq: str, table: str, fields: FrameColumns) -> Task:
    names, kinds = (ATTEMPT, *fields.names), fields.kinds

    def copy(rows: Iterator[Any]) -> list[tuple[int, int]]:
        attempt = secrets.randbits(63)
        numbered = ([attempt, *values] for values in convert_rows(rows, kinds))
        with connect(libpq) as connection, connection.cursor() as cursor:
            count = copy_rows(cursor, table, names, numbered)
        return [(attempt, count)]

    return copy
