"""Rows of a DataFrame, copied into a PostgreSQL table from the executors.

Values travel as Python objects and reach the server as text, which takes the type of the table's column. So a ``text``
column of the DataFrame fits a ``jsonb``, ``uuid`` or enum column. Times are sent with their zone.

Needs psycopg on the executors (the extra ``postgresql``). Each task connects to the server itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

from reconciler.core.errors import ConfigError, ReconcilerError, Refused, Unreachable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


def fields_of(results: DataFrame) -> FrameColumns:
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


def converted(rows: Iterable[Sequence[Any]], kinds: Sequence[str]) -> Iterator[list[Any]]:
    """The rows, with values of the types that psycopg expects."""
    special = {place: _CONVERTED[kind] for place, kind in enumerate(kinds) if kind in _CONVERTED}
    for row in rows:
        values = list(row)
        for place, convert in special.items():
            values[place] = convert(values[place])
        yield values


def copy(cursor: Any, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
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

    return psycopg.connect(with_connect_timeout(libpq), client_encoding="utf8", prepare_threshold=None)


def with_connect_timeout(libpq: str) -> str:
    """A statement may take minutes; connecting may not."""
    from psycopg import conninfo

    if "connect_timeout" in conninfo.conninfo_to_dict(libpq):
        return libpq
    return str(conninfo.make_conninfo(libpq, connect_timeout=CONNECT_TIMEOUT_S))


Task = Callable[[Iterator[Any]], list[tuple[int, int]]]


def on_executors(
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
