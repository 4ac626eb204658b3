"""Offsets in HBase as CDAP keeps them, one row a partition: its log saver, its metrics processor, and flowlets.

All numbers are 8 bytes, big-endian, signed, except where noted; -1 is "nothing yet". Sources: "Resolving Kafka
Offset Mismatches" with its dumps of ``cdap_system:log.meta`` and ``cdap_system:metrics.kafka.meta``, and CDAP's public
sources.

Log saver
    Row: a 4-byte prefix (100 log writer, 101 log metrics), the topic, the partition in 4 bytes. ``d:nextOffset``, and
    ``d:maxEventTime``, the largest event time of all processed records, in epoch ms. CDAP writes the table in
    transactions, and the cells' timestamps are transaction numbers: epoch ms times 1,000,000.
Metrics processor
    Row: ``TOPIC.PARTITION``, the partition in decimal with at least two digits, so that 7 is ``07`` and 123 is ``123``.
    ``d:o`` the offset.
Flowlet (module ``flowlet``)
    Row: the result of the flowlet's ``getStoreKey``, ``TOPIC:PARTITION`` unless it was overridden. Column ``d:c``,
    where CDAP's key-value tables keep values: the offset, followed by the 8-byte message id of the record *at* that
    offset. Old rows are the offset alone.

How a row is written. Thrift 1 has two kinds of writes: a compare-and-set of one cell, and an unconditional change of
several cells of one row in one step. HBase shows the cell with the largest timestamp, not the one written last.

- C1  A row is written cell by cell, each by compare-and-set with the value that was read, the offset last. So a kill
      leaves the old offset, or no row for any reader, and another program's write since the read survives.
- C2  CDAP's transactional tables stamp cells with transaction numbers, a million times larger than the server's clock:
      a cell written by C1 would never be visible. Such a row is written in one step, with a number between its cells'
      and the present. Another program's transaction since the read has a larger one, so it stays visible; and so does
      a later write than this one, if this one is carried out late.
- C3  Reading back decides what was written.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from reconciler.core import json_fields
from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.places import common
from reconciler.places.hbase.store import HBaseStore, UnreadableRow, unreadable, write_parts
from reconciler.places.hbase.table import Cells, HBaseTable, sorted_content
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult

FAMILY = b"d"
NEXT_OFFSET, MAX_EVENT_TIME = b"d:nextOffset", b"d:maxEventTime"
OFFSET = b"d:o"
NOTHING_YET = -1
TRANSACTIONS_PER_MS = 1_000_000
_FIRST_TRANSACTION_STAMP = 10**16
"""As milliseconds this would be 317,000 years, so it cannot be a clock's."""

Rows = dict[TopicPartition, Cells]
NewCells = dict[TopicPartition, dict[bytes, bytes]]


class NotARow(ValueError):
    """The cells do not have the layout's format; the message names the cell and the fault."""


@dataclass(frozen=True, slots=True)
class NewRow:
    """A row to write: its new offset, its current cells, and the stored offset that it was found from, if known."""

    key: TopicPartition
    stored: StoredOffset
    current: Cells
    found_from: StoredOffset | None = None


class RowReader(Protocol):
    """A table to read rows from."""

    def rows(self, keys: Sequence[bytes]) -> Mapping[bytes, Cells]:
        """Those of the rows that exist."""

    def scan_prefix(self, prefix: bytes) -> Mapping[bytes, Cells]:
        """The rows whose keys begin with ``prefix``."""


class CdapLayout(Protocol):
    """One of CDAP's layouts."""

    has_anchors: ClassVar[bool]
    """Its own programs keep what says which records were processed."""
    no_anchor_note: ClassVar[str]
    """Why a row may have no anchor, as the end of a sentence."""

    @property
    def columns(self) -> tuple[bytes, ...]:
        """The layout's own columns, the offset's first."""

    def row_key(self, key: TopicPartition) -> bytes: ...

    def key_prefix(self, topic: str | None) -> bytes:
        """The common beginning of the keys of a topic's rows, or of all rows."""

    def parse_key(self, row: bytes) -> TopicPartition | None:
        """None for a key that ``row_key`` never makes."""

    def read(self, cells: Cells) -> StoredOffset | None:
        """The offset in a row's own cells, None if there is none. Raises NotARow."""

    def new_cells(self, rows: Sequence[NewRow]) -> NewCells:
        """The cells to write into each row. A flowlet's may need the log: raises as ``message_ids`` does."""

    def with_hint(self, key: TopicPartition, anchor: Anchor) -> Anchor:
        """An anchor of the source, with the destination offset to try first where the layout knows one."""
        return anchor

    def find(self, table: RowReader, topics: frozenset[str] | None) -> Rows:
        """The rows of these topics, or of all, with all their cells."""
        found: Rows = {}
        for topic in [None] if topics is None else topics:
            for row, cells in table.scan_prefix(self.key_prefix(topic)).items():
                key = self.parse_key(row)
                if key is not None and topic in (None, key.topic):
                    found[key] = cells
        return found


def long(number: int) -> bytes:
    """8 bytes, big-endian."""
    return struct.pack(">q", number)


def number(column: bytes, value: bytes) -> int:
    """The number in a cell. Raises NotARow unless it is 8 bytes."""
    if len(value) != 8:
        raise NotARow(f"{column.decode('ascii', 'replace')} has {len(value)} bytes, not 8")
    found: int = struct.unpack(">q", value)[0]
    return found


def is_transaction(stamp: int) -> bool:
    """True for a cell's timestamp that is the number of a CDAP transaction, and not a time."""
    return stamp >= _FIRST_TRANSACTION_STAMP


def written_at_ms(stamp: int) -> int:
    """When a cell was written (epoch ms), from its timestamp."""
    return stamp // TRANSACTIONS_PER_MS if is_transaction(stamp) else stamp


def parse_decimal_key(row: bytes, separator: bytes, form: bytes) -> TopicPartition | None:
    """The key ``TOPIC``, ``separator``, and the partition in decimal ``form``; None for another key."""
    name, _, digits = row.rpartition(separator)
    topic = _topic(name)
    if topic is None or not digits.isdigit() or len(digits) > 10 or digits != form % int(digits):
        return None
    return TopicPartition(topic, int(digits)) if int(digits) <= json_fields.INT32_MAX else None


def _topic(name: bytes) -> str | None:
    try:
        return name.decode() or None
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True, slots=True)
class LogSaver(CdapLayout):
    """``cdap_system:log.meta`` and its like: the rows of one prefix."""

    has_anchors: ClassVar[bool] = True
    no_anchor_note: ClassVar[str] = "its maxEventTime is not set"

    prefix: int
    columns: tuple[bytes, ...] = (NEXT_OFFSET, MAX_EVENT_TIME)

    def row_key(self, key: TopicPartition) -> bytes:
        return self.key_prefix(key.topic) + struct.pack(">i", key.partition)

    def key_prefix(self, topic: str | None) -> bytes:
        return struct.pack(">i", self.prefix) + (topic or "").encode()

    def parse_key(self, row: bytes) -> TopicPartition | None:
        if len(row) < 9 or not row.startswith(self.key_prefix(None)):
            return None
        topic, partition = _topic(row[4:-4]), struct.unpack(">i", row[-4:])[0]
        return TopicPartition(topic, partition) if topic is not None and partition >= 0 else None

    def read(self, cells: Cells) -> StoredOffset | None:
        cell = cells.get(NEXT_OFFSET)
        if cell is None:
            return None
        offset, latest_ms = number(NEXT_OFFSET, cell.value), _max_event_time(cells)
        known = offset >= 0 and latest_ms is not None
        anchor = Anchor(timestamp_ms=latest_ms, names=Names.MAX_TIME) if known else None
        return StoredOffset(offset, anchor, written_at_ms(cell.at))

    def new_cells(self, rows: Sequence[NewRow]) -> NewCells:
        """The largest event time is a property of the processed records, not of offsets: it never becomes smaller."""
        return {row.key: self._cells(row) for row in rows}

    def _cells(self, row: NewRow) -> dict[bytes, bytes]:
        origin, anchor = row.found_from.anchor if row.found_from else None, row.stored.anchor
        is_processed = anchor is not None and not row.stored.is_sentinel and anchor.names is not Names.NEXT
        times = (
            _max_event_time(row.current),
            origin.timestamp_ms if origin is not None and origin.names is not Names.NEXT else None,
            anchor.timestamp_ms if anchor is not None and is_processed else None,
        )
        latest_ms = max((time for time in times if time is not None), default=NOTHING_YET)
        return {NEXT_OFFSET: long(row.stored.offset), MAX_EVENT_TIME: long(latest_ms)}


def _max_event_time(cells: Cells) -> int | None:
    """The largest event time so far (epoch ms), None for "nothing yet". Raises NotARow."""
    cell = cells.get(MAX_EVENT_TIME)
    found = NOTHING_YET if cell is None else number(MAX_EVENT_TIME, cell.value)
    return None if found == NOTHING_YET else found


@dataclass(frozen=True, slots=True)
class Metrics(CdapLayout):
    """``cdap_system:metrics.kafka.meta``."""

    has_anchors: ClassVar[bool] = False
    no_anchor_note: ClassVar[str] = ""

    columns: tuple[bytes, ...] = (OFFSET,)

    def row_key(self, key: TopicPartition) -> bytes:
        return f"{key.topic}.{key.partition:02d}".encode()

    def key_prefix(self, topic: str | None) -> bytes:
        return b"" if topic is None else topic.encode() + b"."

    def parse_key(self, row: bytes) -> TopicPartition | None:
        return parse_decimal_key(row, b".", b"%02d")

    def read(self, cells: Cells) -> StoredOffset | None:
        cell = cells.get(OFFSET)
        return None if cell is None else StoredOffset(number(OFFSET, cell.value), None, written_at_ms(cell.at))

    def new_cells(self, rows: Sequence[NewRow]) -> NewCells:
        return {row.key: {OFFSET: long(row.stored.offset)} for row in rows}


BATCH = 200
"""Rows written together."""


@dataclass(frozen=True, slots=True)
class _Current:
    """A row's own cells, and the offset in them; None where there is no row."""

    cells: Cells
    stored: StoredOffset | None

    @property
    def version(self) -> str | None:
        """Changes with every write of the row."""
        if self.stored is None:
            return None
        return hashlib.blake2b(json.dumps(sorted_content(self.cells)).encode(), digest_size=16).hexdigest()

    @property
    def stamp(self) -> int:
        """The largest timestamp of the cells; 0 without cells."""
        return max((cell.at for cell in self.cells.values()), default=0)


@dataclass(frozen=True, slots=True)
class _Write:
    """The write of one row: its cells before, and the new ones."""

    key: TopicPartition
    before: _Current
    cells: Mapping[bytes, bytes]

    def is_done(self, now: _Current) -> bool:
        return {name: now.cells[name].value for name in self.cells if name in now.cells} == self.cells


class CdapStore(HBaseStore):
    """Rows of one CDAP table. They belong to no group: a caller may read them only for ``of_group``, if it is given."""

    def __init__(self, table: HBaseTable, layout: CdapLayout, address: str, *, of_group: str | None = None) -> None:
        super().__init__(table, address)
        self._layout = layout
        self.capabilities = Capabilities(keeps_anchors=layout.has_anchors)
        self._of_group = of_group

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        self._check_group(group)
        rows: list[Row] = []
        for key, cells in sorted(self._layout.find(self._table, common.wanted_topics(topics)).items()):
            try:
                row = self._row(key, self._current(key, cells))
            except UnreadableRow as error:
                row = common.unreadable_row(key, error)
            rows += [row] if row is not None else []
        return rows

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each change.

        Raises OutcomeUnknown where an answer was lost, or a part was written before an error.
        """
        self._check_group(group)
        common.check_changes(group, changes)
        before = self._look([change.key for change in changes])
        versions = {key: current.version for key, current in before.items() if current.version is not None}
        lost = set(common.conflicts(changes, versions))
        writes = self._writes([change for change in changes if change.key not in lost], before)
        batches = (writes[start : start + BATCH] for start in range(0, len(writes), BATCH))
        return common.result_of(changes, lost | write_parts(batches, lambda batch: self._carry_out(batch, now_ms)))

    def _check_group(self, group: str) -> None:
        common.check_group(group, self._of_group, f"the store {self.address}", why=": this layout has no groups")

    # ------------------------------------------------------------ reading

    def _look(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, _Current]:
        """Rows by their keys; absent ones have no cells."""
        names = {key: self._layout.row_key(key) for key in keys}
        if len(set(names.values())) < len(names):
            raise ConfigError("The key function gives two partitions one row.", hint="Correct it.")
        rows = self._table.rows(list(names.values()))
        return {key: self._current(key, rows.get(name, {})) for key, name in names.items()}

    def _current(self, key: TopicPartition, all_cells: Cells) -> _Current:
        cells = {name: cell for name, cell in all_cells.items() if name in self._layout.columns}
        try:
            return _Current(cells, self._layout.read(cells))
        except NotARow as error:
            raise unreadable(self._table, self._layout.row_key(key), error) from error

    def _row(self, key: TopicPartition, current: _Current) -> Row | None:
        stored, version = current.stored, current.version
        if stored is None or version is None:
            return None
        if stored.anchor is None:
            return Row(key, stored, version, note=self._layout.no_anchor_note)
        return Row(key, replace(stored, anchor=self._layout.with_hint(key, stored.anchor)), version)

    # ------------------------------------------------------------ writing

    def _writes(self, changes: Sequence[Change], before: Mapping[TopicPartition, _Current]) -> list[_Write]:
        new = [NewRow(each.key, each.new, before[each.key].cells, each.found_from) for each in changes]
        return [_Write(key, before[key], cells) for key, cells in self._layout.new_cells(new).items()]

    def _carry_out(self, writes: Sequence[_Write], now_ms: int) -> set[TopicPartition]:
        """Write the rows. Returns the keys of the rows that another program changed first."""
        for write in writes:
            self._write(write, now_ms)
        now = self._look([write.key for write in writes])  # C3
        return {write.key for write in writes if not write.is_done(now[write.key])}

    def _write(self, write: _Write, now_ms: int) -> None:
        name, before = self._layout.row_key(write.key), write.before
        if is_transaction(before.stamp):  # C2
            age = now_ms * TRANSACTIONS_PER_MS - before.stamp
            self._table.put(name, write.cells, at=before.stamp + 1 + max(0, age) // 1000)
        else:  # C1
            for column in sorted(write.cells, key=lambda column: column == self._layout.columns[0]):
                cell = before.cells.get(column)
                old = None if cell is None else cell.value
                if old != write.cells[column]:
                    self._table.put_if_unchanged(name, column, old, write.cells[column])
