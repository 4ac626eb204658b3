"""Exactly once, for results with a unique key: writing a result under its key again changes nothing.

    sink = PostgresUpsert("postgresql://etl@db/results", table="clicks", key=["id"])
    job = RangeBatches(spark, topics=["events"], group="clicks", bootstrap_servers="kafka:9092",
                       store="sqlite:////srv/offsets.db")
    job.run(exactly_once(lambda frame, ranges: frame.selectExpr("CAST(key AS STRING) AS id", "value"), into=sink))

The key must come from the record (an id; or topic, partition and offset, which differ after a failover), and the
result from that one record. Totals over a batch have no such key: use ``transactional`` for them. The offsets are saved
after the results, in any store; a repeated batch finds its keys in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from reconciler.core.errors import ConfigError, Refused
from reconciler.places.registry import require_installed
from reconciler.ports import OffsetStore
from reconciler.spark.ranges import postgresql_rows
from reconciler.spark.ranges.sinks import RangeBatch, RangeSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ORDER = "reconciler_order"
_AFTER_FAILURE = "Other tasks may have written rows of this batch; its offsets are not saved."


class PostgresUpsert(RangeSink):
    """A sink that inserts rows; where the key exists, it updates the row or keeps it.

    ``table`` (``NAME`` or ``SCHEMA.NAME``) must have a unique constraint or index on exactly ``key``, whose columns are
    NOT NULL: PostgreSQL takes no two nulls for the same key, so a repeated batch would write them again. Each task
    writes its rows in one transaction, in the order of their keys, so that tasks cannot deadlock. Of several rows with
    one key in a task, the last one is written.
    """

    def __init__(
        self, address: str, table: str, *, key: Sequence[str], there: Literal["update", "keep"] = "update"
    ) -> None:
        require_installed("PostgresUpsert", "psycopg", "postgresql")
        from reconciler.places.postgresql import address as postgresql_address
        from reconciler.places.postgresql.connection import quoted

        parsed = postgresql_address.parse(address)
        if parsed.columns is not None or parsed.schema is not None:
            raise ConfigError(
                "PostgresUpsert takes only the address of a database.",
                hint="Leave out table=, schema= and the columns of an offsets' table; they belong to the job's store.",
            )
        if isinstance(key, str) or not key:
            raise ConfigError("key must be a list of columns.", hint='Write key=["id"].')
        if there not in ("update", "keep"):
            raise ConfigError(f"there={there!r} is not known.", hint='Use "update" or "keep".')
        self._libpq, self._place = parsed.libpq, parsed.place
        schema, _, name = table.rpartition(".")
        self._table = quoted(schema or None, name)
        self._key = tuple(key)
        self._there = there

    def check(self, store: OffsetStore) -> None:
        """Raise Refused unless the table has a unique index on the key, without nulls. The offsets may be anywhere."""
        import psycopg

        from reconciler.places.postgresql.connection import quoted
        from reconciler.places.postgresql.errors import explain_connecting

        try:
            with postgresql_rows.connect(self._libpq) as connection:
                found = connection.execute(_UNIQUE, (self._table,)).fetchall()
        except psycopg.Error as error:
            raise explain_connecting(error, self._place) from error
        nullable = {frozenset(columns): nulls for columns, nulls in found}
        if frozenset(self._key) not in nullable:
            raise Refused(
                f"The table {self._table} of {self._place} has no unique index on exactly {', '.join(self._key)}:"
                " a repeated batch would write its rows again.",
                hint=f"CREATE UNIQUE INDEX ON {self._table} ({', '.join(self._key)})",
            )
        if nulls := nullable[frozenset(self._key)]:
            raise Refused(
                f"The key of {self._table} of {self._place} may be null in {', '.join(nulls)}: a repeated batch would"
                " write such rows again, and of several in one batch only one would be written.",
                hint=f"ALTER TABLE {self._table} {', '.join(f'ALTER {quoted(each)} SET NOT NULL' for each in nulls)}",
            )

    def stage(self, results: DataFrame, batch: RangeBatch) -> None:
        """Write the rows under their keys."""
        fields = postgresql_rows.fields_of(results)
        absent = [name for name in self._key if name not in fields.names]
        if absent:
            raise ConfigError(f"The results have no column {', '.join(absent)}, which the key needs.")
        task = _upserter(self._libpq, self._table, fields, self._statement(fields.names))
        postgresql_rows.on_executors(results, task, self._place, after_failure=_AFTER_FAILURE)

    def _statement(self, names: Sequence[str]) -> str:
        from reconciler.places.postgresql.connection import quoted

        columns = ", ".join(map(quoted, names))
        key = ", ".join(map(quoted, self._key))
        others = [quoted(name) for name in names if name not in self._key]
        if self._there == "update" and others:
            then = "UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others)
        else:
            then = "NOTHING"
        last = f"SELECT DISTINCT ON ({key}) {columns} FROM reconciler_rows ORDER BY {key}, {_ORDER} DESC"
        return f"INSERT INTO {self._table} ({columns}) {last} ON CONFLICT ({key}) DO {then}"


_UNIQUE = """
SELECT array_agg(a.attname::text), array_agg(a.attname::text ORDER BY a.attnum) FILTER (WHERE NOT a.attnotnull)
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
 AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""


def _upserter(libpq: str, table: str, fields: postgresql_rows.FrameColumns, statement: str) -> postgresql_rows.Task:
    names, kinds = (*fields.names, _ORDER), fields.kinds

    def upsert(rows: Iterator[Any]) -> list[tuple[int, int]]:
        from reconciler.places.postgresql.connection import quoted

        columns = ", ".join(map(quoted, fields.names))
        ordered = ([*values, place] for place, values in enumerate(postgresql_rows.converted(rows, kinds)))
        with postgresql_rows.connect(libpq) as connection, connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TEMP TABLE reconciler_rows ON COMMIT DROP AS SELECT {columns}, 0::bigint AS {_ORDER}"
                f" FROM {table} WITH NO DATA"
            )
            count = postgresql_rows.copy(cursor, "reconciler_rows", names, ordered)
            cursor.execute(statement)
        return [(0, count)]

    return upsert
