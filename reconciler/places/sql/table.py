"""The statements of a job's table in any SQL database.

- Q1  A write locks the rows of the batch's topics, compares them here, and changes them where they still hold the old
      offset. The comparison here is exact: many a server takes ``Events`` and ``events`` for equal.
- Q2  Values of a row go back to the server as they came: a number as a number, text as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.elements import quoted_name

from reconciler.core.errors import Refused
from reconciler.places.mapped_table import Found, MappedStore, MappedTable
from reconciler.places.sql.database import Database
from reconciler.ports import Change, Row, TopicPartition

_LOOSE = frozenset({"mysql", "mariadb", "mssql"})
"""Dialects whose columns may take different texts for equal."""
_TRANSACTIONS = frozenset({"innodb", "rocksdb", "tokudb", "ndb", "ndbcluster"})
"""Engines of MySQL's tables that can roll back."""


class SqlTable(MappedStore):
    """An offset store in an existing table, through SQLAlchemy."""

    def __init__(self, database: Database, schema: str | None, columns: MappedTable, address: str) -> None:
        name = ".".join(database.quoted(part) for part in (schema, columns.table) if part)
        super().__init__(database, columns, name, address)
        self._schema = schema
        self._table = sa.table(
            quoted_name(columns.table, True),
            *(sa.column(quoted_name(name, True)) for name in dict.fromkeys(columns.names)),
            schema=None if schema is None else quoted_name(schema, True),
        )
        of = self._table.c
        self._topic, self._partition, self._offset = of[columns.topic], of[columns.partition], of[columns.offset]
        self._group = None if columns.group is None else of[columns.group]
        self._newest_by = None if columns.newest_by is None else of[columns.newest_by]
        self._kept: dict[str, tuple[Any, ...]] = {}

    def _quoted(self, name: str) -> str:
        return str(self._database.quoted(name))

    def _describe(self, db: Any) -> tuple[Sequence[str], bool] | None:
        catalog = sa.inspect(db)
        try:
            columns = [each["name"] for each in catalog.get_columns(self._columns.table, self._schema)]
        except sa.exc.NoSuchTableError:
            return None
        return columns, self._columns.table in catalog.get_view_names(self._schema)

    def _tables(self, db: Any) -> Iterator[tuple[str, str]]:
        catalog = sa.inspect(db)
        names = [*catalog.get_table_names(self._schema), *catalog.get_view_names(self._schema)]
        return ((name, name) for name in names)

    # ------------------------------------------------------------ rows

    def _select(self, db: Any, group: str, topics: Iterable[str] | None, *, lock: bool) -> Iterator[Found]:
        """Rows whose topic and group are these to the letter. Those of a write are kept as the server has them."""
        wanted = None if topics is None else frozenset(topics)
        where = [] if wanted is None else [self._topic.in_(sorted(wanted))]
        if self._group is not None:
            where.append(self._group == group)
        tables, lacks = (self._table, sa.literal(0)) if self._newest_by is None else self._newest(db, where)
        columns = [self._topic, self._partition, self._offset, lacks]
        named = (self._columns.time, self._columns.id)
        columns += [sa.null() if name is None else self._table.c[name] for name in named]
        columns += [] if self._group is None else [self._group]
        statement = sa.select(*columns).select_from(tables).where(*where)
        if lock:
            self._refuse_without_rights(db)
            self._kept.clear()
            statement = statement.with_for_update()
        rows: dict[tuple[str | None, str | None], Found] = {}
        for values in db.execute(statement):
            topic, partition, offset, _, time, id, *of_group = map(_text, values)
            if of_group not in ([], [group]) or (wanted is not None and topic not in wanted):
                continue
            found = Found(topic, partition, offset, lacks=bool(values[3]), time=time, id=id)
            if lock:
                self._kept[f"{topic} {partition} {offset}"] = tuple(values[:3])
            before = rows.get((topic, partition))
            if before is not None:
                is_same = self._newest_by is not None and before.offset == offset
                found = found._replace(ties=before.ties or not is_same)
            rows[topic, partition] = found
        return iter(rows.values())

    def _newest(self, db: Any, where: Sequence[Any]) -> tuple[Any, Any]:
        """The table joined to the newest value of each partition, and whether a row lacks one.

        It sorts no table, however long that is.
        """
        assert self._newest_by is not None
        keys = [_exact(db, column) for column in (self._topic, self._group) if column is not None] + [self._partition]
        newest = (
            sa.select(
                *(key.label(f"key_{number}") for number, key in enumerate(keys)),
                sa.func.max(self._newest_by).label("newest"),
                (sa.func.count() - sa.func.count(self._newest_by)).label("lack"),
            )
            .where(*where)
            .group_by(*keys)
            .subquery()
        )
        same = [key.is_not_distinct_from(newest.c[f"key_{number}"]) for number, key in enumerate(keys)]
        is_newest = sa.or_(self._newest_by == newest.c.newest, newest.c.newest.is_(None))
        return self._table.join(newest, sa.and_(*same, is_newest)), newest.c.lack

    def _keep_others_out(self, db: Any) -> None:
        """Nothing: the transaction is serializable."""

    def _put(self, db: Any, group: str, changes: Sequence[Change], found: Mapping[TopicPartition, Row]) -> int:
        done = 0
        of = {} if self._group is None else {self._group.name: group}
        for change in changes:
            key, number = change.key, self._columns.number.kept(change.new.offset)
            if key not in found:
                values = {self._topic.name: key.topic, self._partition.name: key.partition, self._offset.name: number}
                done += db.execute(sa.insert(self._table).values({**values, **of})).rowcount
                continue
            kept = self._kept[f"{key.topic} {key.partition} {found[key].version.split('.', 2)[2]}"]
            at = dict(zip((self._topic.name, self._partition.name, self._offset.name), kept, strict=True)) | of
            where = [self._table.c[name] == value for name, value in at.items()]
            changed = db.execute(sa.update(self._table).where(*where).values({self._offset.name: number})).rowcount
            if changed > 1:
                raise Refused(
                    f"The table {self._name} in {self._database.place} takes other names for {key.topic!a} or for group"
                    f" {group!a}: {changed} rows would change; nothing was written.",
                    hint="Give these columns a collation that tells upper from lower case, or rename the group.",
                )
            done += changed
        return done

    def _refuse_without_rights(self, db: Any) -> None:
        """Raise Refused also for a table without transactions."""
        is_mysql = db.dialect.name in ("mysql", "mariadb")
        known = sa.inspect(db).get_table_options(self._columns.table, self._schema) if is_mysql else {}
        engine = next((str(value) for name, value in known.items() if name.endswith("_engine")), "InnoDB")
        if engine.lower() not in _TRANSACTIONS:
            raise Refused(
                f"The table {self._name} in {self._database.place} has the engine {engine}, without transactions;"
                " nothing was written.",
                hint=f"ALTER TABLE {self._name} ENGINE=InnoDB, or add &written_by=job to the store's address.",
            )
        db.execute(sa.update(self._table).where(sa.literal(1) == 0).values({self._offset.name: self._offset}))


def _exact(db: Any, column: Any) -> Any:
    """The column as what differs to the letter."""
    return sa.cast(column, sa.LargeBinary) if db.dialect.name in _LOOSE else column


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
