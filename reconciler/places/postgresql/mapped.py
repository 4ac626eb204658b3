"""Offsets in another program's table: a row for each topic and partition (and group), its columns mapped.

The store reads and writes only the mapped columns; in a new row, all others get their defaults. A batch is one
transaction: if any row has changed, nothing is written. The table has no room for anchors.

A view is only read. A table with a row for every batch (``newest_by``) is only read, too: only its job knows the other
columns of a new row, and the value of ``newest_by`` in its next batch.

- M1  The rows of the batch's topics are locked, compared, and then changed where they still hold the old offset.
- M2  Before rows are inserted, the table is locked against other writers: it may lack a unique constraint that would
      prevent two rows of one partition.
- M3  Numbers go to the server as text, and take their column's type there: any type works that shows an offset as
      decimal digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from psycopg import sql

from reconciler.core.anchors import UNKNOWN_PARTITION, StoredOffset, shown
from reconciler.core.errors import Refused
from reconciler.core.text import NotDecimal, offset_of, partition_of
from reconciler.near import tables_like
from reconciler.places import common
from reconciler.places.postgresql.address import MappedTable
from reconciler.places.postgresql.connection import Database, Session, Undo, identifier, quoted
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult

_TABLES = {"r", "p"}
"""``pg_class.relkind`` of relations whose rows have an ``xmin``: tables and partitioned tables."""
_VIEWS = {"v", "m", "f"}
"""Views, materialized views and foreign tables. They are only read."""

_NEWEST = (
    "SELECT {topic}::text, {partition}::text, min(coalesce({offset}::text, '')), min({newest_by}::text),"
    " bool_or(its_lack), min(coalesce({offset}::text, '')) <> max(coalesce({offset}::text, ''))"
    " FROM {table} JOIN (SELECT {topic} AS its_topic, coalesce({partition}::text, '') AS its_partition,"
    " max({newest_by}) AS its_newest, count(*) > count({newest_by}) AS its_lack FROM {table}"
    " WHERE {where} GROUP BY 1, 2) AS newest"
    " ON {topic} = its_topic AND coalesce({partition}::text, '') = its_partition"
    " AND ({newest_by} = its_newest OR its_newest IS NULL)"
    " WHERE {where} GROUP BY 1, 2 ORDER BY 1, 2"
)
"""One row a partition: the offset of its newest row, that row's value of ``newest_by``, whether a row lacks one, and
whether the newest rows differ. Grouping and joining by hash, it sorts no table, however long that is."""


class MappedStore:
    """An offset store in an existing table. Raises as ``OwnStore`` does."""

    def __init__(self, database: Database, schema: str | None, columns: MappedTable, address: str) -> None:
        self.address = address
        self.capabilities = Capabilities(writable=not columns.by_job, keeps_anchors=False, atomic_batches=True)
        self._database = database
        self._columns = columns
        self._schema = schema
        self._name = quoted(schema, columns.table)
        self._kind = ""

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows, ordered by topic and partition, without anchors and times."""
        self._check_group(group)
        wanted = common.wanted_topics(topics)
        found = self._database.transaction(lambda db: self._rows(db, group, wanted), only_reads=True)
        return [found[key] for key in sorted(found)]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """All changes, or none of them if any row is no longer as expected. ``reason`` is not kept.

        Raises OutcomeUnknown if COMMIT was not answered.
        """
        common.check_changes(group, changes)
        self._check_group(group)
        if not changes:
            return WriteResult()

        def work(db: Session) -> WriteResult:
            self._refuse_unwritable(db)
            if any(change.expected is None for change in changes):
                db.run(self._sql("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))
            found = self._rows(db, group, {change.key.topic for change in changes}, lock=True)
            conflicts = common.conflicts(changes, {key: row.version for key, row in found.items()})
            if conflicts:
                raise Undo(WriteResult(conflicts=conflicts))
            self._put(db, group, sorted(changes, key=lambda change: change.key), found)
            return common.result_of(changes)

        return self._database.transaction(work)

    def create(self) -> None:
        """Raise Refused if the table does not exist: the program that owns it creates it."""
        self._database.transaction(self._check_table, only_reads=True)

    def check_writable(self, group: str) -> None:
        """Raise Refused if the database is read-only, or this user may not update the offsets. Writes nothing."""
        self._check_group(group)

        def work(db: Session) -> None:
            self._refuse_unwritable(db)
            self._database.refuse_read_only(db)
            self._database.refuse_without(db, ("SELECT",), self._name)
            self._database.refuse_without(db, ("UPDATE",), self._name, self._columns.offset)

        self._database.transaction(work, only_reads=True)

    def close(self) -> None:
        self._database.close()

    # ------------------------------------------------------------ rows

    def _rows(
        self, db: Session, group: str, topics: Iterable[str] | None, *, lock: bool = False
    ) -> dict[TopicPartition, Row]:
        self._check_table(db)
        where = "(%s::text[] IS NULL OR {topic}::text = ANY(%s::text[])) AND {of_group}"
        names = None if topics is None else sorted(topics)
        values = (names, names, *self._of(group))
        if self._columns.newest_by:
            statement, values = self._sql(_NEWEST.replace("{where}", where)), (*values, *values)
        else:
            version = "xmin::text" if self._kind in _TABLES else "''"
            statement = self._sql(
                f"SELECT {{topic}}::text, {{partition}}::text, {{offset}}::text, {version}, false, false FROM {{table}}"
                f" WHERE {where} ORDER BY {{topic}}, {{partition}}" + (" FOR UPDATE" if lock else "")
            )
        found: dict[TopicPartition, Row] = {}
        for topic, partition, offset, version, lacks, ties in db.all(statement, values):
            row = self._row(group, topic, partition, offset, version)
            if row.malformed is None and (lacks or ties or row.key in found):
                row = self._malformed(group, row.key, *self._ambiguous(lacks_newest=lacks), version=version)
            found[row.key] = row
        return found

    def _ambiguous(self, *, lacks_newest: bool) -> tuple[str, str]:
        """Why no single row of a partition counts, and what to do."""
        newest_by = self._columns.newest_by
        if lacks_newest:
            return (
                f"a row of it has no value in {newest_by}",
                "Fill it in that row, or name another column that all rows have (&newest_by=COLUMN).",
            )
        if newest_by:
            return (
                f"two rows of it with other offsets have the greatest {newest_by}",
                "Name a column in which every newer row is greater (&newest_by=COLUMN), or delete the wrong row.",
            )
        groups = "" if self._columns.group else ", or &group=COLUMN if it has groups"
        return (
            "the table has two rows of it",
            "If the job adds a row for every batch, add &newest_by=COLUMN to the store's address, with the column that "
            f"is greatest in the newest row{groups}.",
        )

    def _row(self, group: str, topic: str | None, partition: str | None, offset: str | None, version: str) -> Row:
        number = None if partition is None else partition_of(partition)
        if topic is None or number is None:
            problem = f"its partition is {shown(partition)}"
            return self._malformed(group, TopicPartition(topic or "", UNKNOWN_PARTITION), problem, version=version)
        try:
            stored = StoredOffset(self._columns.number.offset(offset_of(offset or "")))
        except NotDecimal as err:
            problem = f"its offset is {shown(offset)}, which {err}"
            return self._malformed(group, TopicPartition(topic, number), problem, version=version)
        # A table's version is xmin, the transaction that wrote the row: it distinguishes 5 from a later 5.
        return Row(TopicPartition(topic, number), stored, f"{version}.{number}.{offset}")

    def _put(self, db: Session, group: str, changes: Sequence[Change], found: dict[TopicPartition, Row]) -> None:
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
        done += db.each(insert, made)
        if done != len(changes):
            raise Refused(
                f"{self._database.place} took {done} of {len(changes)} changes of"
                f" {self._name} without an error; nothing was written.",
                hint="A trigger, a rule or a row security policy of the table keeps back the others.",
            )

    def _malformed(self, group: str, key: TopicPartition, problem: str, hint: str = "", *, version: str) -> Row:
        place = f"the table {self._columns.table} of {self._database.place}"
        hint = hint or "Correct the row, or the columns in the store's address."
        return common.malformed_row(key, problem, group=group, place=place, version=f"{version}.malformed", hint=hint)

    # ------------------------------------------------------------ group, table, columns

    def _check_group(self, group: str) -> None:
        place = f"the table {self._columns.table}"
        common.check_group(group, self._columns.of_group, place, why=": this table has no groups")

    def _of(self, group: str) -> tuple[str, ...]:
        return (group,) if self._columns.group else ()

    def _refuse_unwritable(self, db: Session) -> None:
        """Raise Refused for a view, and where only the job writes."""
        self._check_table(db)
        place = f"{self._name} in {self._database.place}"
        if self._columns.by_job:
            raise common.written_by_job(f"The table {place}")
        if self._kind in _VIEWS:
            raise Refused(
                f"{place} is a view, or a foreign table, and is only read here; nothing was written.",
                hint="Name the table itself in the store's address. Or add &written_by=job to it, and start the job by "
                "reconciler hook: it begins at the plan's offsets, and stores its own.",
            )

    def _check_table(self, db: Session) -> None:
        """Raise Refused where the table or a column is missing; checked once."""
        if self._kind:
            return
        name = self._name
        kind = db.one("SELECT relkind::text FROM pg_class WHERE oid = to_regclass(%s)", (name,))
        if kind is None:
            columns = self._columns
            group = f'"{columns.group}" text NOT NULL, ' if columns.group else ""
            raise Refused(
                f"There is no table {name} in {self._database.place}.",
                hint=f"{self._tables_like_it(db)}Correct the store's address, or make the table, for example:"
                f" CREATE TABLE {name} ({group}"
                f'"{columns.topic}" text NOT NULL, "{columns.partition}" integer NOT NULL, "{columns.offset}" bigint'
                " NOT NULL).",
            )
        if kind[0] not in _TABLES | _VIEWS:
            raise Refused(
                f"{name} in {self._database.place} is neither a table nor a view.",
                hint="Name the table itself in the store's address.",
            )
        found = db.all(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum",
            (name,),
        )
        there = [column for (column,) in found]
        for column in self._columns.names:
            if column not in there:
                raise Refused(
                    f'The table {name} in {self._database.place} has no column "{column}".',
                    hint=f"Correct the store's address; the table has: {', '.join(there)}.",
                )
        self._kind = str(kind[0])

    def _tables_like_it(self, db: Session) -> str:
        """Tables of a like name in every schema, since the search path may lack the right one."""
        found = db.all(
            "SELECT relname::text, nspname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
            " WHERE relkind::text = ANY(%s) AND nspname !~ '^pg_' AND nspname <> 'information_schema'",
            (sorted(_TABLES | _VIEWS),),
        )
        return tables_like(self._columns.table, [(table, quoted(schema, table)) for table, schema in found])

    def _sql(self, text: str, **parts: sql.Composable) -> sql.Composable:
        columns: dict[str, Any] = {
            "topic": identifier(self._columns.topic),
            "partition": identifier(self._columns.partition),
            "offset": identifier(self._columns.offset),
            "of_group": sql.SQL("true"),
        }
        if self._columns.group:
            columns["of_group"] = sql.SQL("{}::text = %s").format(identifier(self._columns.group))
        if self._columns.newest_by:
            columns["newest_by"] = identifier(self._columns.newest_by)
        return sql.SQL(text).format(table=identifier(self._schema, self._columns.table), **columns, **parts)
