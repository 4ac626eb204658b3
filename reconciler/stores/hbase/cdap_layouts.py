"""CDAP's three layouts, one row a partition (``layouts.cdap``), as ``cdap.CdapStore`` uses them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.ports import TopicPartition
from reconciler.stores.hbase.layouts import cdap
from reconciler.stores.hbase.layouts.cells import COMPANION_PREFIX, Cells
from reconciler.stores.hbase.table import HBaseTable

_log = logging.getLogger(__name__)

Rows = dict[TopicPartition, Cells]
NewCells = dict[TopicPartition, dict[bytes, bytes]]
KeyParser = Callable[[bytes], tuple[str, int] | None]
PAGE = 256
"""Partitions read at a time where a flowlet's own function makes the keys."""


@dataclass(frozen=True, slots=True)
class NewRow:
    """A row to write: its new offset, its current cells, and the stored offset that it was found from, if known."""

    key: TopicPartition
    stored: StoredOffset
    current: Cells
    found_from: StoredOffset | None = None


class CdapLayout(Protocol):
    """One of CDAP's layouts."""

    @property
    def columns(self) -> tuple[bytes, ...]:
        """The layout's own columns."""

    @property
    def no_anchor_note(self) -> str:
        """Why a row may have no anchor, as the end of a sentence."""

    def row_key(self, key: TopicPartition) -> bytes: ...

    def find(self, table: HBaseTable, topics: frozenset[str] | None) -> Rows:
        """The rows of these topics, or of all, with all their cells."""

    def read(self, cells: Cells) -> StoredOffset | None:
        """The offset in a row's own cells, None if there is none. Raises ``cdap.NotARow``."""

    def with_hint(self, key: TopicPartition, anchor: Anchor) -> Anchor:
        """An anchor of the source, with the destination offset to try first where the layout knows one."""
        return anchor

    def new_cells(self, rows: Sequence[NewRow]) -> NewCells:
        """The cells to write into each row. May read the log, and raise what that raises."""


@dataclass(frozen=True, slots=True)
class LogSaver(CdapLayout):
    """``cdap_system:log.meta`` and its like: the rows of one prefix."""

    prefix: int
    columns: tuple[bytes, ...] = (cdap.NEXT_OFFSET, cdap.MAX_EVENT_TIME)

    @property
    def no_anchor_note(self) -> str:
        return "its maxEventTime is not set"

    def row_key(self, key: TopicPartition) -> bytes:
        return cdap.log_saver_key(self.prefix, key.topic, key.partition)

    def find(self, table: HBaseTable, topics: frozenset[str] | None) -> Rows:
        first = cdap.log_saver_prefix(self.prefix)
        prefixes = [first] if topics is None else [first + topic.encode() for topic in topics]
        return _rows_with_prefixes(table, prefixes, topics, lambda row: cdap.parse_log_saver_key(self.prefix, row))

    def read(self, cells: Cells) -> StoredOffset | None:
        return cdap.read_log_saver(cells)

    def new_cells(self, rows: Sequence[NewRow]) -> NewCells:
        return {row.key: cdap.write_log_saver(row.stored, _largest_time_ms(row)) for row in rows}


def _largest_time_ms(row: NewRow) -> int | None:
    """The largest event time so far, in the replaced row and in the stored offset that the new one was found from."""
    anchor = row.found_from.anchor if row.found_from else None
    times = (cdap.max_event_time(row.current), anchor.timestamp_ms if anchor else None)
    return max((time for time in times if time is not None), default=None)


@dataclass(frozen=True, slots=True)
class Metrics(CdapLayout):
    """``cdap_system:metrics.kafka.meta``."""

    columns: tuple[bytes, ...] = (cdap.OFFSET, cdap.TIMESTAMP)

    @property
    def no_anchor_note(self) -> str:
        return "it has no d:t as new as its offset (where anchors are tracked, set anchors=apart)"

    def row_key(self, key: TopicPartition) -> bytes:
        return cdap.metrics_key(key.topic, key.partition)

    def find(self, table: HBaseTable, topics: frozenset[str] | None) -> Rows:
        prefixes = [b""] if topics is None else [topic.encode() + b"." for topic in topics]
        return _rows_with_prefixes(table, prefixes, topics, cdap.parse_metrics_key)

    def read(self, cells: Cells) -> StoredOffset | None:
        return cdap.read_metrics(cells)

    def new_cells(self, rows: Sequence[NewRow]) -> NewCells:
        return {row.key: cdap.write_metrics(row.stored) for row in rows}


@dataclass(frozen=True, slots=True)
class Flowlet(CdapLayout):
    """A key-value table in which flowlets keep offsets.

    ``message_ids`` gives the id of the first record at or after each offset, None where there is none yet. A flowlet's
    developer may have overridden the key of a partition's row (``key_of``), and may know an offset to try first for a
    message id (``find_message``).
    """

    message_ids: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]]
    key_of: Callable[[str, int], object] | None = None
    find_message: Callable[[str, int, int], object] | None = None
    column: bytes = cdap.VALUE

    @property
    def columns(self) -> tuple[bytes, ...]:
        return (self.column,)

    @property
    def no_anchor_note(self) -> str:
        return "its value is an offset without a message id"

    def row_key(self, key: TopicPartition) -> bytes:
        """Raises ConfigError for a key function that fails or gives no key."""
        if self.key_of is None:
            return cdap.flowlet_key(key.topic, key.partition)
        try:
            row = self.key_of(key.topic, key.partition)
        except Exception as error:
            raise _bad_key(key, f"raised {type(error).__name__}: {error}") from error
        row = row.encode() if isinstance(row, str) else row
        if not isinstance(row, bytes) or not row:
            raise _bad_key(key, f"returned {row!r}")
        return row

    def find(self, table: HBaseTable, topics: frozenset[str] | None) -> Rows:
        if self.key_of is None:
            prefixes = [b""] if topics is None else [topic.encode() + b":" for topic in topics]
            return _rows_with_prefixes(table, prefixes, topics, cdap.parse_flowlet_key)
        if topics is None:
            raise ConfigError(
                "A flowlet's own key function cannot find the topics of existing rows.", hint="Name the topics to read."
            )
        return {key: cells for topic in topics for key, cells in self._rows_of(table, topic).items()}

    def _rows_of(self, table: HBaseTable, topic: str) -> Rows:
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
        return cdap.read_flowlet(cells, self.column)

    def with_hint(self, key: TopicPartition, anchor: Anchor) -> Anchor:
        number = cdap.message_id(anchor)
        if number is None or self.find_message is None:
            return anchor
        try:
            found = self.find_message(key.topic, key.partition, number)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            _log.warning("the find function raised %s for message %d: ignored", type(error).__name__, number)
            found = None
        hint = found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 2**63 else None
        return replace(anchor, offset=hint)

    def new_cells(self, rows: Sequence[NewRow]) -> NewCells:
        ids = {row.key: cdap.message_id(row.stored.anchor) for row in rows}
        to_read = {row.key: row.stored.offset for row in rows if ids[row.key] is None and not row.stored.is_sentinel}
        ids |= self.message_ids(to_read) if to_read else {}
        return {row.key: cdap.write_flowlet(row.stored.offset, ids[row.key], self.column) for row in rows}


def _bad_key(key: TopicPartition, what: str) -> ConfigError:
    return ConfigError(
        f"The key function {what} for {key.topic}:{key.partition}.", hint="It must return a row's key as bytes or text."
    )


def _rows_with_prefixes(
    table: HBaseTable, prefixes: Iterable[bytes], topics: frozenset[str] | None, parse: KeyParser
) -> Rows:
    """The rows of these topics (None: all) among those whose keys begin with one of ``prefixes``."""
    found: Rows = {}
    for prefix in prefixes:
        for name, cells in table.scan_prefix(prefix).items():
            key = None if name.startswith(COMPANION_PREFIX) else parse(name)
            if key is not None and (topics is None or key[0] in topics):
                found[TopicPartition(*key)] = cells
    return found
