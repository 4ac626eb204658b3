"""Reading a table of Cloudera's layout (``layouts.cloudera``) without reading its history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Refused
from reconciler.places import common
from reconciler.places.hbase.layouts import cloudera
from reconciler.places.hbase.layouts.cells import Cells, sorted_content
from reconciler.places.hbase.layouts.cloudera import NotAnOffset
from reconciler.places.hbase.store import unreadable
from reconciler.places.hbase.table import HBaseTable
from reconciler.places.numbers import Number
from reconciler.ports import Row, TopicPartition

MOST_SCANS = 10_000
"""Scans for one latest row, or for all topics, before the table counts as one of another layout."""
_FIRST_TOPIC = b"-"
"""No Kafka topic's name is smaller."""


@dataclass(frozen=True)
class BatchRow:
    """One row of the table: its key, its time (epoch ms), its partitions' cells by column, and their meaning."""

    row: bytes
    epoch_ms: int
    cells: Cells
    number: Number = Number.NEXT

    @property
    def version(self) -> str:
        """Another for every row."""
        content = json.dumps([self.epoch_ms, sorted_content(self.cells)])
        return hashlib.blake2b(content.encode(), digest_size=12).hexdigest()

    @cached_property
    def texts(self) -> dict[int, bytes]:
        """The unparsed offsets, by partition."""
        return cloudera.texts({name: cell.value for name, cell in self.cells.items()}, self.number)

    @cached_property
    def offsets(self) -> dict[int, int]:
        """The readable offsets by partition; ``faults`` has the others."""
        return {number: offset for number, offset in self._parsed.items() if isinstance(offset, int)}

    @cached_property
    def faults(self) -> dict[int, NotAnOffset]:
        """The partitions whose cell does not hold an offset."""
        return {number: error for number, error in self._parsed.items() if isinstance(error, NotAnOffset)}

    @cached_property
    def _parsed(self) -> dict[int, int | NotAnOffset | None]:
        found: dict[int, int | NotAnOffset | None] = {}
        for number, text in self.texts.items():
            try:
                found[number] = cloudera.offset_of(cloudera.column(number), text, self.number)
            except NotAnOffset as error:
                found[number] = error
        return found


class ClouderaRows:
    """The rows of one table.

    Raises as ``HBaseTable`` does on reading, and Refused for a row that does not fit the layout.
    """

    def __init__(self, table: HBaseTable, number: Number = Number.NEXT) -> None:
        self.table = table
        self.number = number

    def topics(self) -> set[str]:
        """All topics in the table, found with one scan a topic."""
        found: set[str] = set()
        start = _FIRST_TOPIC
        for _ in range(MOST_SCANS):
            row = next(iter(self.table.scan(start, b"", limit=1)), None)
            if row is None:
                return found
            topic = cloudera.topic_of(row)
            found |= {topic} if topic is not None else set()
            name, colon, _ = row.partition(b":")
            start = name + b";" if colon else row + b"\0"  # after all rows of the topic
        raise self._wrong_layout()

    def backwards(self, topic: str, group: str) -> Iterator[BatchRow]:
        """The rows of a topic and group, the latest first. Rows of other groups in between are skipped unread."""
        prefix = cloudera.prefix(topic, group)
        start, passed = cloudera.from_latest(prefix), b""
        for _ in range(MOST_SCANS):
            page = self.table.scan(start, prefix, limit=2, reverse=True)
            row = next((name for name in page if name != passed), None)
            if row is None:
                return
            passed, epoch_ms = row, cloudera.epoch_of(row, prefix)
            if epoch_ms is None:
                start = cloudera.before_others(row, prefix)
                continue
            start = row
            cells = {name: cell for name, cell in page[row].items() if cloudera.partition_of(name) is not None}
            yield BatchRow(row, epoch_ms, cells, self.number)
        raise self._wrong_layout()

    def latest(self, topic: str, group: str) -> BatchRow | None:
        """The latest row; None if there is none."""
        return next(self.backwards(topic, group), None)

    def latest_two(self, topic: str, group: str) -> list[BatchRow]:
        """The two latest rows, the latest first."""
        return list(islice(self.backwards(topic, group), 2))

    def rows_of(self, topic: str, latest: BatchRow | None) -> list[Row]:
        """The offsets in the latest row, by partition; all their versions change with every row."""
        if latest is None:
            return []
        rows, version = [], latest.version
        for number in latest.texts:
            key, own = TopicPartition(topic, number), f"{version}-{number}"
            if (fault := latest.faults.get(number)) is not None:
                rows.append(common.unread(key, unreadable(self.table, latest.row, fault), own))
            else:
                stored = StoredOffset(latest.offsets[number], None, latest.epoch_ms)
                rows.append(Row(key, stored, own))
        return sorted(rows, key=lambda row: row.key)

    def _wrong_layout(self) -> Refused:
        return Refused(
            f"The HBase table {self.table.name!r} is full of rows that are not of this layout.",
            hint="Correct the layout in the store's address, or give it a table of its own.",
        )
