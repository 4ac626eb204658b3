"""Offsets in another program's SQL table: a row for each topic and partition (and group), its columns mapped.

The store reads and writes only the mapped columns; in a new row, all others get their defaults. A batch is one
transaction: if any row has changed, nothing is written. The table has no room for anchors, unless its job writes the
time or the id of the last processed record into it.

A view is only read. A table with a row for every batch (``newest_by``) is only read, too: only its job knows the other
columns of a new row, and the value of ``newest_by`` in its next batch. ``MappedStore`` is the part that all databases
share; each adds its statements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from reconciler.core.anchors import UNKNOWN_PARTITION, Anchor, StoredOffset, shown
from reconciler.core.errors import ConfigError, NotNow, Refused
from reconciler.core.text import NotDecimal, offset_of, partition_of
from reconciler.near import tables_like
from reconciler.places import common
from reconciler.places.parameters import PARAMETER, Number, problem_of_number
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult

TABLE_PARAMETERS = (
    *("schema", "table", "topic", "partition", "offset", "group", "of_group", PARAMETER, "newest_by", "written_by"),
    *("time", "id"),
)
_REQUIRED = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class MappedTable:
    """An existing table and its columns. Names as in the catalog.

    ``group`` None: the table has no groups, and all its rows are one job's, that of ``of_group`` if it is given.
    ``newest_by`` None: a partition has one row; else it may have many, and the one with the greatest value counts.
    ``by_job``: only the job writes there. ``time``, ``id``: of the record before the offset; only a job writes them.
    """

    table: str
    topic: str
    partition: str
    offset: str
    group: str | None = None
    of_group: str | None = None
    number: Number = Number.NEXT
    newest_by: str | None = None
    by_job: bool = False
    time: str | None = None
    id: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that the store reads."""
        named = (self.topic, self.partition, self.offset, self.group, self.newest_by, self.time, self.id)
        return tuple(name for name in named if name is not None)


def table_in(own: Mapping[str, str], wrong: Callable[[str], ConfigError]) -> tuple[str | None, MappedTable | None]:
    """The schema and the table that an address names. ``own`` are the address's ``TABLE_PARAMETERS``, none empty.

    ``wrong`` makes the ConfigError to raise, of the end of a sentence about the address.
    """
    for name, value in own.items():
        common.check_name(f"{name} in a store's address", value)
    schema, table = own.get("schema"), own.get("table")
    if table is None:
        alone = [name for name in TABLE_PARAMETERS if name in own and name != "schema"]
        if alone:
            raise wrong(f"{alone[0]} goes with table only")
        return schema, None
    missing = [name for name in _REQUIRED if name not in own]
    if missing:
        raise wrong(f"table goes with {', '.join(_REQUIRED)}, and {missing[0]} is missing")
    if schema is None and "." in table:
        schema, _, table = table.partition(".")
    names = [own[name] for name in (*_REQUIRED, "group") if name in own]
    if len({*names}) != len(names):
        raise wrong("two of its columns are the same")
    if "group" in own and "of_group" in own:
        raise wrong("of_group says whose rows they are in a table without groups, and group names a column of them")
    number = own.get(PARAMETER, Number.NEXT.value)
    if problem := problem_of_number(number):
        raise wrong(f"{PARAMETER}={problem}")
    if own.get("written_by", "job") != "job":
        raise wrong(f"written_by={own['written_by']!a} is not job")
    newest_by, by_job = own.get("newest_by"), "newest_by" in own or "written_by" in own
    of_record = [name for name in ("time", "id") if name in own]
    if of_record and (not by_job or Number(number) is Number.FIRST):
        raise wrong(
            f"{of_record[0]} goes with newest_by or written_by=job, and not with {PARAMETER}={Number.FIRST.value}"
        )
    return schema, MappedTable(
        table,
        own["topic"],
        own["partition"],
        own["offset"],
        own.get("group"),
        own.get("of_group"),
        Number(number),
        newest_by,
        by_job=by_job,
        time=own.get("time"),
        id=own.get("id"),
    )


class Undo(Exception):
    """Raised within a transaction to roll it back and still return ``result``."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class Again(NotNow):
    """Nothing was written, and the same transaction may succeed at once."""


class Found(NamedTuple):
    """A row as text. ``lacks``: a row of its partition has no ``newest_by``; ``ties``: its newest rows differ."""

    topic: str | None
    partition: str | None
    offset: str | None
    version: str = ""
    lacks: bool = False
    ties: bool = False
    time: str | None = None
    id: str | None = None


class MappedStore(ABC):
    """An offset store in an existing table. ``name`` is the table's, quoted.

    ``database`` has a ``place``, ``close``, and ``transaction(work, only_reads=False)``, which commits the work, or
    raises with nothing written, or raises OutcomeUnknown.
    """

    def __init__(self, database: Any, columns: MappedTable, name: str, address: str) -> None:
        self.address = address
        self.capabilities = Capabilities(writable=not columns.by_job, keeps_anchors=False, atomic_batches=True)
        self._database = database
        self._columns = columns
        self._name = name
        self._is_view: bool | None = None

    # ------------------------------------------------------------ each database's own

    @abstractmethod
    def _describe(self, db: Any) -> tuple[Sequence[str], bool] | None:
        """The table's columns, and whether it is a view; None if there is no such table."""

    @abstractmethod
    def _tables(self, db: Any) -> Iterable[tuple[str, str]]:
        """All tables: name, and name in full."""

    @abstractmethod
    def _select(self, db: Any, group: str, topics: Iterable[str] | None, *, lock: bool) -> Iterable[Found]:
        """The group's rows, of these topics or all. ``lock``: no other transaction changes them before the end."""

    @abstractmethod
    def _keep_others_out(self, db: Any) -> None:
        """Let no other transaction insert rows before this one ends."""

    @abstractmethod
    def _put(self, db: Any, group: str, changes: Sequence[Change], found: Mapping[TopicPartition, Row]) -> int:
        """Write the changes, of rows in ``found`` and of new ones. Returns how many rows changed."""

    @abstractmethod
    def _refuse_without_rights(self, db: Any) -> None:
        """Raise Refused if the database is read-only, or this user may not update the offsets."""

    def _quoted(self, name: str) -> str:
        return f'"{name}"'

    # ------------------------------------------------------------ an offset store

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows, ordered by topic and partition, without times of writing."""
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

        def work(db: Any) -> WriteResult:
            self._refuse_unwritable(db)
            if any(change.expected is None for change in changes):
                self._keep_others_out(db)
            found = self._rows(db, group, {change.key.topic for change in changes}, lock=True)
            conflicts = common.conflicts(changes, {key: row.version for key, row in found.items()})
            if conflicts:
                raise Undo(WriteResult(conflicts=conflicts))
            done = self._put(db, group, sorted(changes, key=lambda change: change.key), found)
            if done != len(changes):
                raise Refused(
                    f"{self._database.place} took {done} of {len(changes)} changes of"
                    f" {self._name} without an error; nothing was written.",
                    hint="A trigger, a rule or a row security policy of the table keeps back the others.",
                )
            return common.result_of(changes)

        return self._database.transaction(work)  # type: ignore[no-any-return]

    def create(self) -> None:
        """Raise Refused if the table does not exist: the program that owns it creates it."""
        self._database.transaction(self._check_table, only_reads=True)

    def check_writable(self, group: str) -> None:
        """Raise Refused if the database is read-only, or this user may not update the offsets. Writes nothing."""
        self._check_group(group)

        def work(db: Any) -> None:
            self._refuse_unwritable(db)
            self._refuse_without_rights(db)
            raise Undo(None)

        self._database.transaction(work)

    def close(self) -> None:
        self._database.close()

    # ------------------------------------------------------------ rows

    def _rows(
        self, db: Any, group: str, topics: Iterable[str] | None, *, lock: bool = False
    ) -> dict[TopicPartition, Row]:
        self._check_table(db)
        found: dict[TopicPartition, Row] = {}
        for each in self._select(db, group, topics, lock=lock):
            row = self._row(group, each)
            if row.malformed is None and (each.lacks or each.ties or row.key in found):
                row = self._malformed(group, row.key, *self._ambiguous(lacks_newest=each.lacks), version=each.version)
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

    def _row(self, group: str, found: Found) -> Row:
        topic, partition, offset, version, *_ = found
        number = None if partition is None else partition_of(partition)
        if topic is None or number is None:
            problem = f"its partition is {shown(partition)}"
            return self._malformed(group, TopicPartition(topic or "", UNKNOWN_PARTITION), problem, version=version)
        try:
            stored = StoredOffset(self._columns.number.offset(offset_of(offset or "")), _anchor(found))
        except NotDecimal as err:
            problem = f"its offset is {shown(offset)}, which {err}"
            return self._malformed(group, TopicPartition(topic, number), problem, version=version)
        except ValueError:
            problem = f"its time is {shown(found.time)}, neither milliseconds nor a date with a time"
            return self._malformed(group, TopicPartition(topic, number), problem, version=version)
        return Row(TopicPartition(topic, number), stored, f"{version}.{number}.{offset}")

    def _malformed(self, group: str, key: TopicPartition, problem: str, hint: str = "", *, version: str) -> Row:
        place = f"the table {self._columns.table} of {self._database.place}"
        hint = hint or "Correct the row, or the columns in the store's address."
        return common.malformed_row(key, problem, group=group, place=place, version=f"{version}.malformed", hint=hint)

    # ------------------------------------------------------------ group, table, columns

    def _check_group(self, group: str) -> None:
        place = f"the table {self._columns.table}"
        common.check_group(group, self._columns.of_group, place, why=": this table has no groups")

    def _refuse_unwritable(self, db: Any) -> None:
        """Raise Refused for a view, and where only the job writes."""
        self._check_table(db)
        place = f"{self._name} in {self._database.place}"
        if self._columns.by_job:
            raise common.written_by_job(f"The table {place}")
        if self._is_view:
            raise Refused(
                f"{place} is a view, or a foreign table, and is only read here; nothing was written.",
                hint="Name the table itself in the store's address. Or add &written_by=job to it, and start the job by "
                "reconciler hook: it begins at the plan's offsets, and stores its own.",
            )

    def _check_table(self, db: Any) -> None:
        """Raise Refused where the table or a column is missing; checked once."""
        if self._is_view is not None:
            return
        name, columns, quoted = self._name, self._columns, self._quoted
        described = self._describe(db)
        if described is None:
            like_it = tables_like(columns.table, list(self._tables(db)))
            group = f"{quoted(columns.group)} varchar(255) NOT NULL, " if columns.group else ""
            raise Refused(
                f"There is no table {name} in {self._database.place}.",
                hint=f"{like_it}Correct the store's address, or make the table, for example:"
                f" CREATE TABLE {name} ({group}{quoted(columns.topic)} varchar(255) NOT NULL,"
                f" {quoted(columns.partition)} integer NOT NULL, {quoted(columns.offset)} bigint NOT NULL).",
            )
        there, is_view = described
        for column in columns.names:
            if column not in there:
                raise Refused(
                    f'The table {name} in {self._database.place} has no column "{column}".',
                    hint=f"Correct the store's address; the table has: {', '.join(there)}.",
                )
        self._is_view = is_view


def _anchor(found: Found) -> Anchor | None:
    """The record before the offset, by the row's columns. Raises ValueError for a time that is none."""
    if found.time is None and found.id is None:
        return None
    time_ms = None if found.time is None else _milliseconds(found.time)
    return Anchor(timestamp_ms=time_ms, id=None if found.id is None else found.id.encode())


def _milliseconds(text: str) -> int:
    """Of a number of milliseconds since 1970, or a date with a time, in UTC unless it names another zone."""
    if text.isdecimal():
        return int(text)
    at = datetime.fromisoformat(text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
