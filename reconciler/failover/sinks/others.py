"""Sinks whose batches the job itself keeps track of: a function of the user's, or a table of batches in PostgreSQL.

``python:module:function`` is called with the name of the query's batches (its id, or ``app_id``) and returns the number
of the last batch that was taken, or None for none.

``postgresql://…?table=T`` is a table with a row for each batch, or for the last one: by default in the columns
``app_id`` (text) and ``batch_id`` (a whole number); ``app_column=`` and ``batch_column=`` name others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal

from reconciler.config.addresses import without_secrets
from reconciler.core.errors import ConfigError, ReconcilerError, Refused
from reconciler.core.json_fields import INT64_MAX
from reconciler.failover.sinks.taken import Taken
from reconciler.places.folder import one_line


class FunctionSink:
    """A sink that asks a function; ``name`` is its name in the configuration."""

    knows_queries = True
    takes_every_batch = False

    def __init__(self, name: str, function: Callable[..., object], app_id: str | None) -> None:
        self.shown = name
        self.app_id = app_id
        self._function = function

    def last_taken(self, app_id: str | None) -> Taken:
        """The function's return value. Raises Refused if it raises, or returns anything but a number or None."""
        try:
            last = self._function(app_id)
        except ReconcilerError:
            raise
        except Exception as error:
            raise self._refused(f"raised {type(error).__name__}: {one_line(error)}") from error
        if last is None:
            return Taken(None)
        if not isinstance(last, int) or isinstance(last, bool) or not 0 <= last <= INT64_MAX:
            raise self._refused(f"returned {last!r}, which is no number of a batch")
        return Taken(last)

    def has_queries(self) -> bool:
        """Not known: the function is asked about one name."""
        return False

    def _refused(self, why: str) -> Refused:
        return Refused(f"The sink {self.shown} {why}.", hint="Correct the function.")


class TableSink:
    """A table of batches in PostgreSQL. Raises as PostgreSQL's stores do."""

    knows_queries = True
    takes_every_batch = False

    def __init__(
        self, address: str, table: str, *, app_id: str | None, columns: tuple[str, str] = ("app_id", "batch_id")
    ) -> None:
        from reconciler.places.postgresql.address import parse

        self.shown = without_secrets(f"{address}{'&' if '?' in address else '?'}table={table}")
        self.app_id = app_id
        self._parsed = parse(address)
        schema = self._parsed.schema
        if schema is not None and "." in table:
            raise ConfigError(
                f"The sink {self.shown} names a schema twice.", hint="Leave out schema=, or the schema in table=."
            )
        self._table = (schema, table) if schema is not None else tuple(table.split(".", 1))
        self._columns = columns

    def last_taken(self, app_id: str | None) -> Taken:
        """The largest number of a batch under this name. One below 0, as a job writes it before its first, is none."""
        return self._largest(" WHERE {} = %s", app_id)

    def has_queries(self) -> bool:
        return self._largest("").batch is not None

    def _largest(self, where: str, *values: str | None) -> Taken:
        from reconciler.places.postgresql.connection import Database, identifier

        name, batch = map(identifier, self._columns)
        table = identifier(*self._table)
        parsed = self._parsed
        with closing(Database(parsed.libpq, parsed.place, timeout_s=parsed.timeout_s)) as database:
            statement = type(table)("SELECT max({}) FROM {}" + where).format(batch, table, name)
            row = database.transaction(lambda session: session.one(statement, values), only_reads=True)
        last = None if row is None else row[0]
        if last is not None and not _is_whole(last):
            raise Refused(
                f"The column {self._columns[1]!r} of the sink {self.shown} has no whole numbers: the largest of its "
                "values need not be the last batch.",
                hint="Name the column with the batches' numbers in batch_column=, or change its type to bigint.",
            )
        return Taken(None if last is None or last < 0 else int(last))


def _is_whole(value: object) -> bool:
    return (
        isinstance(value, int | float | Decimal)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value == int(value)
        and value <= INT64_MAX
    )
