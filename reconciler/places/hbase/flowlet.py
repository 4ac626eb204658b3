"""CDAP's key-value tables in which flowlets keep offsets (see ``cdap``), and the message ids that their rows need."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import ClassVar

from reconciler.core import json_fields
from reconciler.core.anchors import Anchor, Names, Record, StoredOffset
from reconciler.core.errors import ConfigError, Refused
from reconciler.kafka.reader import KafkaLogReader
from reconciler.places.hbase.cdap import (
    CdapLayout,
    NewCells,
    NewRow,
    NotARow,
    RowReader,
    Rows,
    long,
    number,
    parse_decimal_key,
    written_at_ms,
)
from reconciler.places.hbase.table import Cells
from reconciler.ports import ReadRequest, TopicPartition

VALUE = b"d:c"
PAGE = 256
"""Partitions read at a time where a flowlet's own function makes the keys."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Flowlet(CdapLayout):
    """The rows of one key-value table.

    ``message_ids`` returns the id of the first record at or after each offset, None if there is none yet. A flowlet's
    developer may have overridden the key of a partition's row (``key_of``), and may supply an offset to try first for
    a message id (``find_message``).
    """

    has_anchors: ClassVar[bool] = True
    no_anchor_note: ClassVar[str] = "its value is an offset without a message id"

    message_ids: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]]
    key_of: Callable[[str, int], object] | None = None
    find_message: Callable[[str, int, int], object] | None = None
    column: bytes = VALUE

    @property
    def columns(self) -> tuple[bytes, ...]:
        return (self.column,)

    def row_key(self, key: TopicPartition) -> bytes:
        """Raises ConfigError for a key function that fails or gives no key."""
        if self.key_of is None:
            return f"{key.topic}:{key.partition}".encode()
        try:
            row = self.key_of(key.topic, key.partition)
        except Exception as error:
            raise _bad_key(key, f"raised {type(error).__name__}: {error}") from error
        row = row.encode() if isinstance(row, str) else row
        if not isinstance(row, bytes) or not row:
            raise _bad_key(key, f"returned {row!r}")
        return row

    def key_prefix(self, topic: str | None) -> bytes:
        return b"" if topic is None else topic.encode() + b":"

    def parse_key(self, row: bytes) -> TopicPartition | None:
        return parse_decimal_key(row, b":", b"%d")

    def find(self, table: RowReader, topics: frozenset[str] | None) -> Rows:
        if self.key_of is None:
            return CdapLayout.find(self, table, topics)
        if topics is None:
            raise ConfigError(
                "A flowlet's own key function cannot find the topics of existing rows.", hint="Name the topics to read."
            )
        return {key: cells for topic in topics for key, cells in self._rows_of(table, topic).items()}

    def _rows_of(self, table: RowReader, topic: str) -> Rows:
        """A topic's rows by the key function, page by page up to the first page without any row."""
        found: Rows = {}
        for first in range(0, 2**31, PAGE):
            keys = {self.row_key(key): key for n in range(first, first + PAGE) if (key := TopicPartition(topic, n))}
            if len(keys) < PAGE:
                raise ConfigError(f"The key function gives two partitions of topic {topic!r} one row.")
            rows = table.rows(list(keys))
            found |= {keys[name]: cells for name, cells in rows.items()}
            if not rows:
                break
        return found

    def read(self, cells: Cells) -> StoredOffset | None:
        cell = cells.get(self.column)
        if cell is None:
            return None
        if len(cell.value) not in (8, 16):
            raise NotARow(f"{self.column.decode('ascii', 'replace')} has {len(cell.value)} bytes, neither 8 nor 16")
        offset, anchor = number(self.column, cell.value[:8]), None
        if len(cell.value) == 16 and offset >= 0:
            anchor = Anchor(offset=offset, id=b"%d" % number(self.column, cell.value[8:]), names=Names.NEXT)
        return StoredOffset(offset, anchor, written_at_ms(cell.at))

    def with_hint(self, key: TopicPartition, anchor: Anchor) -> Anchor:
        message_id = message_id_of(anchor)
        if message_id is None or self.find_message is None:
            return anchor
        try:
            found = self.find_message(key.topic, key.partition, message_id)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            _log.warning("the find function raised %s for message %d: ignored", type(error).__name__, message_id)
            found = None
        hint = found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 2**63 else None
        return replace(anchor, offset=hint)

    def new_cells(self, rows: Sequence[NewRow]) -> NewCells:
        """Only the offset if there is no record at it yet."""
        ids = {row.key: message_id_of(row.stored.anchor) for row in rows}
        to_read = {row.key: row.stored.offset for row in rows if ids[row.key] is None and not row.stored.is_sentinel}
        ids |= self.message_ids(to_read) if to_read else {}
        return {row.key: {self.column: _value(row.stored.offset, ids[row.key])} for row in rows}


def _value(offset: int, message_id: int | None) -> bytes:
    return long(offset) + (b"" if message_id is None else long(message_id))


def message_id_of(anchor: Anchor | None) -> int | None:
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


def _bad_key(key: TopicPartition, what: str) -> ConfigError:
    return ConfigError(f"The key function {what} for {key}.", hint="It must return a row's key as bytes or text.")


TIMEOUT_S = 10.0


def message_ids(
    places: Mapping[TopicPartition, int],
    *,
    id_of: Callable[[Record], bytes | None],
    client: Mapping[str, str] | None,
    timeout_s: float = TIMEOUT_S,
) -> dict[TopicPartition, int | None]:
    """The id (by ``id_of``) of the first record at or after each offset, None where there is no such record or topic.

    ``client`` holds the cluster's librdkafka properties. Raises ConfigError without them, Unreachable without an answer
    in time, and Refused where the cluster refuses or a record has no id of 8 bytes.
    """
    if not client:
        raise ConfigError(
            "Writing a flowlet's row takes the cluster's client settings, and there are none.",
            hint="Set its bootstrap_servers under [clusters].",
        )
    with closing(KafkaLogReader(client, timeout_s=timeout_s)) as log:
        topics = log.describe({key.topic for key in places}).topics
        requests = [
            ReadRequest(key, offset, max_records=1)
            for key, offset in places.items()
            if key.topic in topics and topics[key.topic].has(key.partition)
        ]
        ids: dict[TopicPartition, int | None] = dict.fromkeys(places)
        for request, chunk in zip(requests, log.read(requests), strict=True):
            if chunk.records:
                ids[request.partition] = _number(request.partition, chunk.records[0], id_of)
    return ids


def _number(key: TopicPartition, record: Record, id_of: Callable[[Record], bytes | None]) -> int:
    found = id_of(record)
    number = as_message_id(found)
    if number is None:
        raise Refused(
            f"The record at {key}, offset {record.offset}, has no message id that is a number"
            f" of 8 bytes (the function returned {'nothing' if found is None else f'{len(found)} bytes'}).",
            hint="Correct id_of in the store's address: it must return a record's id as a whole number.",
        )
    return number
