"""A job's existing table in PostgreSQL.

- M1  The rows of the batch's topics are locked, compared, and then changed where they still hold the old offset.
- M2  Before rows are inserted, the table is locked against other writers: it may lack a unique constraint that would
      prevent two rows of one partition.
- M3  Numbers go to the server as text, and take their column's type there: any type works that shows an offset as
      decimal digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from psycopg import sql

from reconciler.core.errors import Refused
from reconciler.places.mapped_table import Found, MappedStore, MappedTable
from reconciler.places.postgresql.connection import Database, Session, identifier, quoted
from reconciler.ports import Change, Row, TopicPartition

_TABLES = {"r", "p"}
"""``pg_class.relkind`` of relations whose rows have an ``xmin``: tables and partitioned tables."""
_VIEWS = {"v", "m", "f"}
"""Views, materialized views and foreign tables. They are only read."""

_NEWEST = (
    "SELECT {topic}::text, {partition}::text, min(coalesce({offset}::text, '')), min({newest_by}::text),"
    " bool_or(its_lack), min(coalesce({offset}::text, '')) <> max(coalesce({offset}::text, '')),"
    " min({time}::text), min({id}::text)"
    " FROM {table} JOIN (SELECT {topic} AS its_topic, coalesce({partition}::text, '') AS its_partition,"
    " max({newest_by}) AS its_newest, count(*) > count({newest_by}) AS its_lack FROM {table}"
    " WHERE {where} GROUP BY 1, 2) AS newest"
    " ON {topic} = its_topic AND coalesce({partition}::text, '') = its_partition"
    " AND ({newest_by} = its_newest OR its_newest IS NULL)"
    " WHERE {where} GROUP BY 1, 2 ORDER BY 1, 2"
)
"""One row a partition: the offset of its newest row, that row's value of ``newest_by``, whether a row lacks one, and
whether the newest rows differ. Grouping and joining by hash, it sorts no table, however long that is."""


class PostgresqlTable(MappedStore):
    """An offset store in an existing table. Raises as ``OwnStore`` does."""

    def __init__(self, database: Database, schema: str | None, columns: MappedTable, address: str) -> None:
        super().__init__(database, columns, quoted(schema, columns.table), address)
        self._schema = schema
        self._kind = ""

    def _select(self, db: Session, group: str, topics: Iterable[str] | None, *, lock: bool) -> Iterator[Found]:
        where = "(%s::text[] IS NULL OR {topic}::text = ANY(%s::text[])) AND {of_group}"
        names = None if topics is None else sorted(topics)
        values = (names, names, *self._of(group))
        if self._columns.newest_by:
            statement, values = self._sql(_NEWEST.replace("{where}", where)), (*values, *values)
        else:
            # A table's version is xmin, the transaction that wrote the row: it distinguishes 5 from a later 5.
            version = "xmin::text" if self._kind in _TABLES else "''"
            statement = self._sql(
                f"SELECT {{topic}}::text, {{partition}}::text, {{offset}}::text, {version}, false, false,"
                f" {{time}}::text, {{id}}::text FROM {{table}}"
                f" WHERE {where} ORDER BY {{topic}}, {{partition}}" + (" FOR UPDATE" if lock else "")
            )
        return (Found(*row) for row in db.all(statement, values))

    def _keep_others_out(self, db: Session) -> None:
        db.run(self._sql("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))

    def _put(self, db: Session, group: str, changes: Sequence[Change], found: Mapping[TopicPartition, Row]) -> int:
        of = self._of(group)
        where = "WHERE {topic}::text = %s AND {partition}::text = %s AND {offset}::text = %s AND {of_group}"

        def at(change: Change) -> tuple[str | None, ...]:
            return change.key.topic, str(change.key.partition), found[change.key].version.split(".", 2)[2], *of

        texts = {change.key: str(self._columns.number.kept(change.new.offset)) for change in changes}
        kept = [(texts[change.key], *at(change)) for change in changes if change.key in found]
        made = [(key.topic, str(key.partition), text, *of) for key, text in texts.items() if key not in found]
        columns = [self._columns.topic, self._columns.partition, self._columns.offset]
        columns += [self._columns.group] if self._columns.group else []
        insert = self._sql(
            "INSERT INTO {table} ({columns}) VALUES ({marks})",
            columns=sql.SQL(", ").join(map(identifier, columns)),
            marks=sql.SQL(", ").join([sql.Placeholder()] * len(columns)),
        )
        done = db.each(self._sql(f"UPDATE {{table}} SET {{offset}} = %s {where}"), kept)
        return done + db.each(insert, made)

    def _refuse_without_rights(self, db: Session) -> None:
        self._database.refuse_read_only(db)
        self._database.refuse_without(db, ("SELECT",), self._name)
        self._database.refuse_without(db, ("UPDATE",), self._name, self._columns.offset)

    def _of(self, group: str) -> tuple[str, ...]:
        return (group,) if self._columns.group else ()

    def _describe(self, db: Session) -> tuple[Sequence[str], bool] | None:
        name = self._name
        kind = db.one("SELECT relkind::text FROM pg_class WHERE oid = to_regclass(%s)", (name,))
        if kind is None:
            return None
        if kind[0] not in _TABLES | _VIEWS:
            raise Refused(
                f"{name} in {self._database.place} is neither a table nor a view.",
                hint="Name the table itself in the store's address.",
            )
        self._kind = str(kind[0])
        found = db.all(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum",
            (name,),
        )
        return [column for (column,) in found], self._kind in _VIEWS

    def _tables(self, db: Session) -> Iterator[tuple[str, str]]:
        """Those of every schema, since the search path may lack the right one."""
        found = db.all(
            "SELECT relname::text, nspname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
            " WHERE relkind::text = ANY(%s) AND nspname !~ '^pg_' AND nspname <> 'information_schema'",
            (sorted(_TABLES | _VIEWS),),
        )
        return ((table, quoted(schema, table)) for table, schema in found)

    def _sql(self, text: str, **parts: sql.Composable) -> sql.Composable:
        columns: dict[str, Any] = {
            "topic": identifier(self._columns.topic),
            "partition": identifier(self._columns.partition),
            "offset": identifier(self._columns.offset),
            "of_group": sql.SQL("true"),
        }
        for name in ("time", "id"):
            column = getattr(self._columns, name)
            columns[name] = sql.SQL("NULL") if column is None else identifier(column)
        if self._columns.group:
            columns["of_group"] = sql.SQL("{}::text = %s").format(identifier(self._columns.group))
        if self._columns.newest_by:
            columns["newest_by"] = identifier(self._columns.newest_by)
        return sql.SQL(text).format(table=identifier(self._schema, self._columns.table), **columns, **parts)
