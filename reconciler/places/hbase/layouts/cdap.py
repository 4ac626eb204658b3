"""How CDAP keeps Kafka offsets in HBase, one row a partition: its log saver, its metrics processor, and flowlets.

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
Flowlet (``layouts.flowlet``)
    Row: the result of the flowlet's ``getStoreKey``, ``TOPIC:PARTITION`` unless it was overridden. Column ``d:c``,
    where CDAP's key-value tables keep values: the offset, followed by the 8-byte message id of the record *at* that
    offset. Old rows are the offset alone.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from reconciler.core import json_fields
from reconciler.core.anchors import Anchor, Names, StoredOffset, TopicPartition
from reconciler.places.hbase.layouts.cells import Cells

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
