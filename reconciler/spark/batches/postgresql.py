"""Rows of a DataFrame, written into PostgreSQL from the executors; and exactly once for results with a unique key.

    sink = PostgresUpsert("postgresql://etl@db/results", table="clicks", key=["id"])
    job = RangeBatches(spark, topics=["events"], group="clicks", bootstrap_servers="kafka:9092",
                       store="sqlite:////srv/offsets.db")
    job.run(exactly_once(lambda frame, ranges: frame.selectExpr("CAST(key AS STRING) AS id", "value"), into=sink))

Writing a result under its key again changes nothing. The key must come from the record (an id; topic, partition and
offset differ after a failover), and the result from its record alone. Totals over a batch have no such key: use
``transactional`` for them. The offsets are saved after the results, in any store.

Values travel as Python objects and reach the server as text, which takes the type of the table's column. So a ``text``
column of the DataFrame fits a ``jsonb``, ``uuid`` or enum column. Times are sent with their zone. Executors need
psycopg (the extra ``postgresql``), and each task connects to the server itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

from reconciler.core.errors import ConfigError, ReconcilerError, Refused, Unreachable
from reconciler.places.registry import require_installed
from reconciler.ports import OffsetStore
from reconciler.spark.batches.offsets import RangeBatch, RangeSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ORDER = "reconciler_order"
_AFTER_FAILURE = "Other tasks may have written rows of this batch; its offsets are not saved."


class PostgresUpsert(RangeSink):
    """A sink that inserts rows; where the key exists, it updates the row.

    ``table`` (``NAME`` or ``SCHEMA.NAME``) must have a unique constraint or index on exactly ``key``, whose columns are
    NOT NULL: to PostgreSQL two nulls are different keys, so a repeated batch would write them again. Each task writes
    its rows in one transaction, in the order of their keys, so that tasks cannot deadlock. Of rows with one key in a
    task, the last one is written.
    """

    def __init__(self, address: str, table: str, *, key: Sequence[str]) -> None:
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
        self._libpq, self._place = parsed.libpq, parsed.place
        schema, _, name = table.rpartition(".")
        self._table = quoted(schema or None, name)
        self._key = tuple(key)

    def check(self, store: OffsetStore) -> None:
        """Raise Refused unless the table has a unique index on the key, without nulls. The offsets may be anywhere."""
        import psycopg

        from reconciler.places.postgresql.connection import explain_connecting, quoted

        try:
            with connect(self._libpq) as connection:
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
        fields = columns_of(results)
        absent = [name for name in self._key if name not in fields.names]
        if absent:
            raise ConfigError(f"The results have no column {', '.join(absent)}, which the key needs.")
        task = _upserter(self._libpq, self._table, fields, self._statement(fields.names))
        run_on_executors(results, task, self._place, after_failure=_AFTER_FAILURE)

    def _statement(self, names: Sequence[str]) -> str:
        from reconciler.places.postgresql.connection import quoted

        columns = ", ".join(map(quoted, names))
        key = ", ".join(map(quoted, self._key))
        others = [quoted(name) for name in names if name not in self._key]
        updates = ", ".join(f"{name} = excluded.{name}" for name in others)
        then = f"UPDATE SET {updates}" if others else "NOTHING"
        last = f"SELECT DISTINCT ON ({key}) {columns} FROM reconciler_rows ORDER BY {key}, {_ORDER} DESC"
        return f"INSERT INTO {self._table} ({columns}) {last} ON CONFLICT ({key}) DO {then}"


_UNIQUE = """
SELECT array_agg(a.attname::text), array_agg(a.attname::text ORDER BY a.attnum) FILTER (WHERE NOT a.attnotnull)
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
 AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""


def _upserter(libpq: str, table: str, fields: FrameColumns, statement: str) -> Task:
    names, kinds = (*fields.names, _ORDER), fields.kinds

    def upsert(rows: Iterator[Any]) -> list[tuple[int, int]]:
        from reconciler.places.postgresql.connection import quoted

        columns = ", ".join(map(quoted, fields.names))
        ordered = ([*values, place] for place, values in enumerate(convert_rows(rows, kinds)))
        with connect(libpq) as connection, connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TEMP TABLE reconciler_rows ON COMMIT DROP AS SELECT {columns}, 0::bigint AS {_ORDER}"
                f" FROM {table} WITH NO DATA"
            )
            count = copy_rows(cursor, "reconciler_rows", names, ordered)
            cursor.execute(statement)
        return [(0, count)]

    return upsert


_PLAIN = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
"""Spark's short type names and the equivalent types of PostgreSQL. ``decimal(p,s)`` is ``numeric(p,s)``."""

CONNECT_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """A DataFrame's columns: names, PostgreSQL's types, and Spark's types (``kinds``)."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    kinds: tuple[str, ...]


def columns_of(results: DataFrame) -> FrameColumns:
    """Raises ConfigError for columns without an equivalent type, and for a name that occurs twice."""
    names, types, kinds = [], [], []
    for name, kind in results.dtypes:
        found = _type_of(kind)
        if found is None:
            raise ConfigError(
                f"The column {name} of the results is of type {kind}, which PostgreSQL has no plain type for.",
                hint="Convert it in the function, for example with to_json().",
            )
        if name in names:
            raise ConfigError(f"The results have two columns called {name}.", hint="Give them different names.")
        names.append(name)
        types.append(found)
        kinds.append(kind)
    return FrameColumns(tuple(names), tuple(types), tuple(kinds))


def _type_of(kind: str) -> str | None:
    if kind.startswith("decimal("):
        return kind.replace("decimal", "numeric")
    if kind.startswith("array<") and kind[6:-1] in _PLAIN and kind[6:-1] not in ("timestamp", "binary"):
        return f"{_PLAIN[kind[6:-1]]}[]"
    return _PLAIN.get(kind)


def _with_zone(value: Any) -> Any:
    """PySpark gives a time in this process's zone, with ``fold`` where a local time occurs twice."""
    return None if value is None else value.astimezone(UTC)


def _as_bytes(value: Any) -> Any:
    """PySpark gives a binary value as a bytearray."""
    return None if value is None else bytes(value)


_CONVERTED: dict[str, Callable[[Any], Any]] = {"binary": _as_bytes, "timestamp": _with_zone}


def convert_rows(rows: Iterable[Sequence[Any]], kinds: Sequence[str]) -> Iterator[list[Any]]:
    """The rows, with values of the types that psycopg expects."""
    special = {place: _CONVERTED[kind] for place, kind in enumerate(kinds) if kind in _CONVERTED}
    for row in rows:
        values = list(row)
        for place, convert in special.items():
            values[place] = convert(values[place])
        yield values


def copy_rows(cursor: Any, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """COPY rows into a table, whose name is given as SQL; returns how many there were."""
    from psycopg import sql

    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.SQL(table),
        sql.SQL(", ").join(map(sql.Identifier, names)),
    )
    count = 0
    with cursor.copy(statement) as stream:
        for row in rows:
            stream.write_row(row)
            count += 1
    return count


def connect(libpq: str) -> Any:
    """A connection for one task."""
    import psycopg

    return psycopg.connect(add_connect_timeout(libpq), client_encoding="utf8", prepare_threshold=None)


def add_connect_timeout(libpq: str) -> str:
    """A statement may take minutes; connecting may not."""
    from psycopg import conninfo

    if "connect_timeout" in conninfo.conninfo_to_dict(libpq):
        return libpq
    return str(conninfo.make_conninfo(libpq, connect_timeout=CONNECT_TIMEOUT_S))


Task = Callable[[Iterator[Any]], list[tuple[int, int]]]


def run_on_executors(
    results: DataFrame, task: Task, place: str, *, after_failure: str = "Nothing of this batch was saved."
) -> list[tuple[int, int]]:
    """Run ``task`` on every partition of the results; returns the values of the attempts that Spark took.

    ``after_failure`` is the error's sentence about what the other tasks have done. Raises Unreachable or Refused where
    PostgreSQL failed a task; Spark's other errors pass.
    """
    try:
        return list(results.rdd.mapPartitions(task).collect())
    except Exception as error:
        if isinstance(error, ReconcilerError) or "psycopg." not in str(error):
            raise
        raise _explained(str(error), place, after_failure) from error


def _explained(text: str, place: str, after_failure: str) -> Unreachable:
    lines = [line.strip() for line in text.splitlines() if "psycopg." in line]
    reason = lines[-1].partition("psycopg.")[2].rstrip(".")
    if reason.startswith("OperationalError"):
        return Unreachable(
            f"An executor could not reach {place} ({reason}). {after_failure}",
            hint="Check that the executors can reach the server too, then run this again.",
        )
    return Refused(
        f"{place} rejected the results ({reason}). {after_failure}",
        hint="Make the results' columns fit the table, then run this again.",
    )
