"""How CDAP keeps Kafka offsets in HBase: its log saver, its metrics processor, and flowlets that read Kafka.

All numbers are 8 bytes, big-endian, signed, except where noted; -1 is "nothing yet". Sources: "Resolving Kafka
Offset Mismatches" with its dumps of ``cdap_system:log.meta`` and ``cdap_system:metrics.kafka.meta``, and CDAP's public
sources.

Log saver
    Row: a 4-byte prefix (100 log writer, 101 log metrics), the topic, the partition in 4 bytes. ``d:nextOffset``, and
    ``d:maxEventTime``, the largest event time of all processed records, in epoch ms. CDAP writes the table in
    transactions, and the cells' timestamps are transaction numbers: epoch ms times 1,000,000.
Metrics processor
    Row: ``TOPIC.PARTITION``, the partition in decimal with at least two digits, so that 7 is ``07`` and 123 is ``123``.
    ``d:o`` the offset; ``d:t`` the last processed record's timestamp, in epoch ms, which this product adds. A time that
    was written before the offset belongs to an earlier offset and does not count.
Flowlet
    Row: the result of the flowlet's ``getStoreKey``, ``TOPIC:PARTITION`` unless it was overridden. Column ``d:c``,
    where CDAP's key-value tables keep values: the offset, followed by the 8-byte message id of the record *at* that
    offset. Old rows are the offset alone.
"""

from __future__ import annotations

import struct

from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.formats import json_fields
from reconciler.stores.hbase.layouts.cells import Cells

FAMILY = b"d"
NEXT_OFFSET, MAX_EVENT_TIME = b"d:nextOffset", b"d:maxEventTime"
OFFSET, TIMESTAMP = b"d:o", b"d:t"
VALUE = b"d:c"
NOTHING_YET = -1
TRANSACTIONS_PER_MS = 1_000_000
_FIRST_TRANSACTION_STAMP = 10**16
"""As milliseconds this would be 317,000 years, so it cannot be a clock's."""


class NotARow(ValueError):
    """The cells do not have the layout's format; the message names the cell and the fault."""


def long(number: int) -> bytes:
    """8 bytes, big-endian."""
    return struct.pack(">q", number)


def number(column: bytes, value: bytes) -> int:
    """The number in a cell. Raises NotARow unless it is 8 bytes."""
    if len(value) != 8:
        raise NotARow(f"{column.decode('ascii', 'replace')} has {len(value)} bytes, not 8")
    found: int = struct.unpack(">q", value)[0]
    return found


def written_at_ms(stamp: int) -> int:
    """When a cell was written (epoch ms), from its timestamp: a time, or the number of a CDAP transaction."""
    return stamp // TRANSACTIONS_PER_MS if stamp >= _FIRST_TRANSACTION_STAMP else stamp


def _topic(name: bytes) -> str | None:
    try:
        return name.decode() or None
    except UnicodeDecodeError:
        return None


def _parse_decimal_key(row: bytes, separator: bytes, form: bytes) -> tuple[str, int] | None:
    """Topic and partition of ``TOPIC``, ``separator``, and the partition in decimal ``form``; None for another key."""
    name, _, digits = row.rpartition(separator)
    topic = _topic(name)
    if topic is None or not digits.isdigit() or len(digits) > 10 or digits != form % int(digits):
        return None
    return (topic, int(digits)) if int(digits) <= json_fields.INT32_MAX else None


def _offset(cells: Cells, column: bytes) -> tuple[int, int]:
    """The offset in a column that is there, and when it was written (epoch ms)."""
    cell = cells[column]
    return number(column, cell.value), written_at_ms(cell.at)


# ---------------------------------------------------------------- log saver


def log_saver_key(prefix: int, topic: str, partition: int) -> bytes:
    return log_saver_prefix(prefix) + topic.encode() + struct.pack(">i", partition)


def log_saver_prefix(prefix: int) -> bytes:
    return struct.pack(">i", prefix)


def parse_log_saver_key(prefix: int, row: bytes) -> tuple[str, int] | None:
    """Topic and partition; None for a row of another prefix or form."""
    if len(row) < 9 or not row.startswith(log_saver_prefix(prefix)):
        return None
    topic, partition = _topic(row[4:-4]), struct.unpack(">i", row[-4:])[0]
    return (topic, partition) if topic is not None and partition >= 0 else None


def read_log_saver(cells: Cells) -> StoredOffset | None:
    """The row's stored offset, None where it has none. Raises NotARow."""
    if NEXT_OFFSET not in cells:
        return None
    offset, at_ms = _offset(cells, NEXT_OFFSET)
    latest = max_event_time(cells)
    known = offset >= 0 and latest is not None
    anchor = Anchor(timestamp_ms=latest, names=Names.MAX_TIME) if known else None
    return StoredOffset(offset, anchor, at_ms)


def max_event_time(cells: Cells) -> int | None:
    """The largest event time so far, None for "nothing yet". Raises NotARow."""
    cell = cells.get(MAX_EVENT_TIME)
    found = NOTHING_YET if cell is None else number(MAX_EVENT_TIME, cell.value)
    return None if found == NOTHING_YET else found


def write_log_saver(stored: StoredOffset, known_latest_ms: int | None) -> dict[bytes, bytes]:
    """The row's cells. ``known_latest_ms``: the largest event time (epoch ms) that was stored before.

    The largest time is a property of the processed records, not of offsets, so a correction never makes it smaller.
    Only an anchor that is itself such a time (an import, a rollback) replaces it.
    """
    anchor = stored.anchor
    if anchor is not None and anchor.names is Names.MAX_TIME:
        latest = anchor.timestamp_ms
    else:
        times = [known_latest_ms, None if anchor is None or stored.is_sentinel else anchor.timestamp_ms]
        latest = max((time for time in times if time is not None), default=None)
    return {NEXT_OFFSET: long(stored.offset), MAX_EVENT_TIME: long(NOTHING_YET if latest is None else latest)}


# ---------------------------------------------------------------- metrics processor


def metrics_key(topic: str, partition: int) -> bytes:
    return f"{topic}.{partition:02d}".encode()


def parse_metrics_key(row: bytes) -> tuple[str, int] | None:
    """Topic and partition; None for a row of another form."""
    return _parse_decimal_key(row, b".", b"%02d")


def read_metrics(cells: Cells) -> StoredOffset | None:
    """The row's stored offset, None where it has none. Raises NotARow."""
    if OFFSET not in cells:
        return None
    offset, at_ms = _offset(cells, OFFSET)
    time = cells.get(TIMESTAMP)
    anchor = None
    if time is not None and time.at >= cells[OFFSET].at and offset >= 0:
        anchor = Anchor(timestamp_ms=number(TIMESTAMP, time.value))
    return StoredOffset(offset, anchor, at_ms)


def write_metrics(stored: StoredOffset) -> dict[bytes, bytes]:
    """The row's cells; without ``d:t`` where the time of the last processed record is unknown."""
    cells, anchor = {OFFSET: long(stored.offset)}, stored.anchor
    if anchor is not None and anchor.timestamp_ms is not None and anchor.names is Names.LAST:
        cells[TIMESTAMP] = long(anchor.timestamp_ms)
    return cells


# ---------------------------------------------------------------- flowlet


def flowlet_key(topic: str, partition: int) -> bytes:
    """The key of a flowlet that does not override ``getStoreKey``."""
    return f"{topic}:{partition}".encode()


def parse_flowlet_key(row: bytes) -> tuple[str, int] | None:
    """Topic and partition of a key that was not overridden; None for a row of another form."""
    return _parse_decimal_key(row, b":", b"%d")


def read_flowlet(cells: Cells, column: bytes = VALUE) -> StoredOffset | None:
    """The row's stored offset, None where it has none. Raises NotARow."""
    cell = cells.get(column)
    if cell is None:
        return None
    if len(cell.value) not in (8, 16):
        raise NotARow(f"{column.decode('ascii', 'replace')} has {len(cell.value)} bytes, neither 8 nor 16")
    offset = number(column, cell.value[:8])
    anchor = None
    if len(cell.value) == 16 and offset >= 0:
        anchor = Anchor(offset=offset, id=b"%d" % number(column, cell.value[8:]), names=Names.NEXT)
    return StoredOffset(offset, anchor, written_at_ms(cell.at))


def write_flowlet(offset: int, message_id: int | None, column: bytes = VALUE) -> dict[bytes, bytes]:
    """The row's cell; the offset alone where no record is at it yet."""
    return {column: long(offset) + (b"" if message_id is None else long(message_id))}


def message_id(anchor: Anchor | None) -> int | None:
    """The id of the record at the offset, where the anchor names that record by a number of 8 bytes."""
    return None if anchor is None or anchor.names is not Names.NEXT else as_message_id(anchor.id)


def as_message_id(id_bytes: bytes | None) -> int | None:
    """An id's decimal text as a number of 8 bytes; None for any other id."""
    try:
        found = int(id_bytes) if id_bytes is not None else None
    except ValueError:
        return None
    if found is None or b"%d" % found != id_bytes or not json_fields.INT64_MIN <= found <= json_fields.INT64_MAX:
        return None
    return found
