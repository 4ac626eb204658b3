"""CDAP's layouts, one row a partition (``layouts.cdap``), as ``hbase_beside`` asks for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.ports import TopicPartition
from reconciler.stores.hbase.layouts import cdap
from reconciler.stores.hbase.layouts.companion import ROW_PREFIX
from reconciler.stores.hbase.table import Cells, HBaseTable

_log = logging.getLogger(__name__)

Rows = dict[TopicPartition, Cells]
PROBED = 256
"""Partitions looked for at a time where a flowlet's own function makes the keys."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A row to write: what it is to say, its cells now, and the stored offset that it was found from, if known."""

    key: TopicPartition
    stored: StoredOffset
    now: Cells
    found_from: StoredOffset | None = None


class CdapLayout(Protocol):
    """One of CDAP's layouts."""

    @property
    def columns(self) -> tuple[bytes, ...]:
        """The columns that are the layout's."""

    def row_key(self, key: TopicPartition) -> bytes: ...

    def find(self, table: HBaseTable, topics: frozenset[str] | None) -> Rows:
        """The rows of these topics, or of all, with all their cells."""

    def read(self, cells: Cells) -> StoredOffset | None:
        """What a row says by itself, None if it says nothing. Raises ``cdap.NotARow``."""

    def hinted(self, key: TopicPartition, anchor: Anchor) -> Anchor:
        """An anchor of the source, with an offset of the destination to try first, where one is known."""

    @property
    def without_anchor(self) -> str:
        """Why a row may have none, as the end of a sentence."""

    def cells(self, wanted: Sequence[Wanted]) -> dict[TopicPartition, dict[bytes, bytes]]:
        """What to write into each row. May ask elsewhere, and raise what that raises."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LogSaver:
    """``cdap_system:log.meta`` and its like: the rows of one prefix."""

    prefix: int
    columns: tuple[bytes, ...] = (cdap.NEXT_OFFSET, cdap.MAX_EVENT_TIME)

    def row_key(self, key: TopicPartition) -> bytes:
        return cdap.log_saver_key(self.prefix, key.topic, key.partition)

    def find(self, table: HBaseTable, topics: frozenset[str] | None) -> Rows:
        first = cdap.log_saver_prefix(self.prefix)
        starts = [first] if topics is None else [first + topic.encode() for topic in topics]
        return _beginning_with(table, starts, topics, lambda row: cdap.parse_log_saver_key(self.prefix, row))

    def read(self, cells: Cells) -> StoredOffset | None:
        return cdap.read_log_saver(cells)

    def hinted(self, key: TopicPartition, anchor: Anchor) -> Anchor:
        return anchor

    @property
    def without_anchor(self) -> str:
        return "its maxEventTime is not set"

    def cells(self, wanted: Sequence[Wanted]) -> dict[TopicPartition, dict[bytes, bytes]]:
        return {row.key: cdap.write_log_saver(row.stored, _largest_time(row)) for row in wanted}

    def close(self) -> None:
        """Nothing is held."""


def _largest_time(row: Wanted) -> int | None:
    """The largest event time processed so far, by the row that is replaced and the one that this was found from."""
    anchor = row.found_from.anchor if row.found_from else None
    times = (cdap.max_event_time(row.now), anchor.timestamp_ms if anchor else None)
    return max((time for time in times if time is not None), default=None)


@dataclass(frozen=True, slots=True)
class Metrics:
    """``cdap_system:metrics.kafka.meta``."""

    columns: tuple[bytes, ...] = (cdap.OFFSET, cdap.TIMESTAMP)

    def row_key(self, key: TopicPartition) -> bytes:
        return cdap.metrics_key(key.topic, key.partition)

    def find(self, table: HBaseTable, topics: frozenset[str] | None) -> Rows:
        starts = [b""] if topics is None else [topic.encode() + b"." for topic in topics]
        return _beginning_with(table, starts, topics, cdap.parse_metrics_key)

    def read(self, cells: Cells) -> StoredOffset | None:
        return cdap.read_metrics(cells)

    def hinted(self, key: TopicPartition, anchor: Anchor) -> Anchor:
        return anchor

    @property
    def without_anchor(self) -> str:
        return "it has no d:t as new as its offset (where anchors are tracked, say anchors=apart)"

    def cells(self, wanted: Sequence[Wanted]) -> dict[TopicPartition, dict[bytes, bytes]]:
        return {row.key: cdap.write_metrics(row.stored) for row in wanted}

    def close(self) -> None:
        """Nothing is held."""


class MessageIds(Protocol):
    """Where a flowlet's message ids come from: the log."""

    def at(self, places: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """The id of the first record at or behind each offset, None where there is none yet."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a flowlet's developer overrode. ``key``: the row of a topic's partition. ``find``: where a message id is."""

    key: Callable[[str, int], object] | None = None
    find: Callable[[str, int, int], object] | None = None


@dataclass(frozen=True, slots=True)
class Flowlet:
    """A key-value table that flowlets keep offsets in."""

    message_ids: MessageIds
    hooks: Hooks = field(default_factory=Hooks)
    column: bytes = cdap.VALUE

    @property
    def columns(self) -> tuple[bytes, ...]:
        return (self.column,)

    def row_key(self, key: TopicPartition) -> bytes:
        if self.hooks.key is None:
            return cdap.flowlet_key(key.topic, key.partition)
        try:
            row = self.hooks.key(key.topic, key.partition)
        except Exception as error:
            raise _bad_key(key, f"raised {type(error).__name__}: {error}") from error
        row = row.encode() if isinstance(row, str) else row
        if not isinstance(row, bytes) or not row:
            raise _bad_key(key, f"gave {row!r}")
        return row

    def find(self, table: HBaseTable, topics: frozenset[str] | None) -> Rows:
        if self.hooks.key is None:
            starts = [b""] if topics is None else [topic.encode() + b":" for topic in topics]
            return _beginning_with(table, starts, topics, cdap.parse_flowlet_key)
        if topics is None:
            raise ConfigError(
                "A flowlet's own key function leads from topics to rows, and not back.", hint="Name the topics to read."
            )
        return {key: cells for topic in topics for key, cells in self._probe(table, topic).items()}

    def _probe(self, table: HBaseTable, topic: str) -> Rows:
        found: Rows = {}
        for first in range(0, 2**31, PROBED):
            keys = {self.row_key(key): key for n in range(first, first + PROBED) if (key := TopicPartition(topic, n))}
            if len(keys) < PROBED:
                raise ConfigError(f"The key function gives two partitions of topic {topic!r} one row.")
            rows = table.rows(list(keys))
            found |= {keys[name]: cells for name, cells in rows.items()}
            if not rows:
                break
        return found

    def read(self, cells: Cells) -> StoredOffset | None:
        return cdap.read_flowlet(cells, self.column)

    def hinted(self, key: TopicPartition, anchor: Anchor) -> Anchor:
        number = cdap.message_id(anchor)
        if number is None or self.hooks.find is None:
            return anchor
        return replace(anchor, offset=self._hint(key, number))

    @property
    def without_anchor(self) -> str:
        return "its value is an offset without a message id"

    def _hint(self, key: TopicPartition, number: int) -> int | None:
        """Where the user's function says that the record is: tried, never trusted."""
        assert self.hooks.find is not None
        try:
            found = self.hooks.find(key.topic, key.partition, number)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            _log.warning("the find function raised %s for message %d: not used", type(error).__name__, number)
            return None
        return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 2**63 else None

    def cells(self, wanted: Sequence[Wanted]) -> dict[TopicPartition, dict[bytes, bytes]]:
        known = {row.key: cdap.message_id(row.stored.anchor) for row in wanted}
        asked = {row.key: row.stored.offset for row in wanted if known[row.key] is None and not row.stored.is_sentinel}
        known |= self.message_ids.at(asked) if asked else {}
        return {row.key: cdap.write_flowlet(row.stored.offset, known[row.key], self.column) for row in wanted}

    def close(self) -> None:
        self.message_ids.close()


def _bad_key(key: TopicPartition, what: str) -> ConfigError:
    return ConfigError(
        f"The key function {what} for {key.topic}:{key.partition}.", hint="It gives a row's key as bytes or text."
    )


def _beginning_with(
    table: HBaseTable,
    starts: Iterable[bytes],
    topics: frozenset[str] | None,
    parse: Callable[[bytes], tuple[str, int] | None],
) -> Rows:
    """The rows whose keys begin with one of ``starts`` and say that they are of these topics."""
    found: Rows = {}
    for start in starts:
        for name, cells in table.scan_prefix(start).items():
            parsed = None if name.startswith(ROW_PREFIX) else parse(name)
            if parsed is not None and (topics is None or parsed[0] in topics):
                found[TopicPartition(*parsed)] = cells
    return found
