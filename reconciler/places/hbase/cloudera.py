"""Offsets in HBase as Cloudera's example for Spark Streaming keeps them: one row a batch, all partitions in it.

Row key: ``TOPIC:GROUP:EPOCH_MS``, the batch's time; family ``offsets`` (TTL 2,592,000 s); qualifier: the partition in
decimal; value: the next offset to read in decimal, or by the address the last processed one (``places.parameters``).
Source: "Offset Management For Apache Kafka With Apache Spark Streaming".

The format's reader fixes these rules:

- It scans backwards from ``TOPIC:GROUP:NOW`` (inclusive) to ``TOPIC:GROUP:0`` (exclusive) and takes the first row. It
  compares keys as bytes, so all times must have the same number of digits. It mistakes a row of a group ``GROUP:14``
  in between for one of ``GROUP``; this product does not, since it wants exactly 13 digits after ``TOPIC:GROUP:``.
- It counts the row's cells, of all families, and reads as many partitions from 0 on: a row must be dense, and hold
  nothing else. A partition that the row does not name starts at offset 0. So a partition without a stored offset that
  precedes one with an offset is written as ``00``: that reader takes it for 0, and this product for "nothing stored".
  Of last processed offsets that is ``-01``, for the same reason: ``00`` would skip record 0.
- It reads no other row. A partition that the latest row lacks has no stored offset, even if older rows have one.

A Kafka topic's name has no colon, so the first colon ends it; the last one begins the time.

The reader takes the latest row alone, so a write puts a *new* row of all the topic's partitions, unchanged ones
included, in one step. Thrift 1 has no compare-and-set for that:

    1. Read the latest row; the partitions are as expected.
    2. Put a row with a later time.
    3. Read the two latest rows: they must be this write's, and the one of step 1. Otherwise another program has
       written meanwhile: delete this write's row, and report a conflict.

A kill before the end of 2 has changed nothing for any reader; after it, the write is complete. Of two writers that
start from the same row, at least one finds the other's. Two within one millisecond put the same row: they carry out
one plan, since the job's location names one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from reconciler.core import text as decimal_text
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, ReconcilerError, Refused
from reconciler.core.text import NotDecimal
from reconciler.places import common
from reconciler.places.hbase.store import HBaseStore, partial_write, unreadable, write_parts
from reconciler.places.hbase.table import Cells, HBaseTable, sorted_content
from reconciler.places.parameters import Number
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult

FAMILY = b"offsets"
TTL_SECONDS = 2_592_000
DIGITS = 13
MAX_EPOCH_MS = 10**DIGITS - 1
"""In the year 2286."""
NOTHING = {Number.NEXT: b"00", Number.LAST: b"-01", Number.FIRST: b"00"}
"""Stands for a partition without a stored offset that precedes one with an offset."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TIME = re.compile(rb"[0-9]{13}")


class NotAnOffset(ValueError):
    """A cell of the family holds something other than an offset; the message names the column and the value."""


def is_topic(name: str) -> bool:
    """True for a name that Kafka allows: only such a topic can be in a key."""
    return _TOPIC.fullmatch(name) is not None


def key_prefix(topic: str, group: str) -> bytes:
    """The beginning of the keys of a topic's and group's rows; keys of other groups may begin with it too."""
    return f"{topic}:{group}:".encode()


def row_key(topic: str, group: str, epoch_ms: int) -> bytes:
    """The key of one batch's row. Raises ValueError for a time that does not fit into 13 digits."""
    if not 0 <= epoch_ms <= MAX_EPOCH_MS:
        raise ValueError(f"{epoch_ms} is not a time in {DIGITS} digits")
    return key_prefix(topic, group) + b"%013d" % epoch_ms


def epoch_of(row: bytes, prefix: bytes) -> int | None:
    """The time in a key that begins with ``prefix``; None if it is another group's."""
    rest = row[len(prefix) :]
    return int(rest) if row.startswith(prefix) and _TIME.fullmatch(rest) else None


def topic_of(row: bytes) -> str | None:
    """The topic of any group's row, None for a key of another form."""
    name, colon, rest = row.partition(b":")
    text = name.decode("ascii", "replace")
    return text if colon and is_topic(text) and _TIME.fullmatch(rest.rpartition(b":")[2]) else None


def from_latest(prefix: bytes) -> bytes:
    """Where a backward scan for a group's latest row starts: after all its rows, and at none of them."""
    return prefix + b":"  # the character after the digits


def before_others(row: bytes, prefix: bytes) -> bytes:
    """Where a backward scan continues after a row of another form or group, without skipping a row of this group.

    The result is smaller than the row's own key where that is possible; otherwise it is that key, which the caller
    has to leave out.
    """
    rest = row[len(prefix) :]
    digits = len(rest) - len(rest.lstrip(b"0123456789"))
    if digits >= DIGITS:  # a longer key: the group's own rows are at most its first 13 digits
        return prefix + rest[:DIGITS]
    return prefix + rest[: digits + 1]  # no key that begins with these is the group's


def offset_of(column: bytes, value: bytes, number: Number = Number.NEXT) -> int | None:
    """The next offset to read by a partition's cell, None for "nothing stored". Raises NotAnOffset for other text."""
    if value == NOTHING[number]:
        return None
    try:
        return number.offset(decimal_text.offset_of(value))
    except NotDecimal as error:
        raise NotAnOffset(f"column {column.decode('ascii', 'replace')} {error}: {value[:40]!r}") from error


def column_of(partition: int) -> bytes:
    return FAMILY + b":%d" % partition


def partition_of(column: bytes) -> int | None:
    """The partition whose column it is, None for another column."""
    family, _, qualifier = column.partition(b":")
    return decimal_text.partition_of(qualifier.decode("ascii", "replace")) if family == FAMILY else None


def dense(texts: Mapping[int, bytes], number: Number = Number.NEXT) -> dict[bytes, bytes]:
    """The row of these offsets (text by partition), with ``NOTHING`` in every gap before the last one."""
    last = max(texts, default=-1)
    return {column_of(partition): texts.get(partition, NOTHING[number]) for partition in range(last + 1)}


def offset_texts(cells: Mapping[bytes, bytes], number: Number = Number.NEXT) -> dict[int, bytes]:
    """A row's unparsed offsets by partition, without the partitions that have none."""
    found = {partition_of(name): value for name, value in cells.items()}
    nothing = NOTHING[number]
    return {partition: value for partition, value in found.items() if partition is not None and value != nothing}


def offset_text(offset: int, number: Number = Number.NEXT) -> bytes:
    """An offset as this format writes it."""
    return b"%d" % number.kept(offset)


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
        return offset_texts({name: cell.value for name, cell in self.cells.items()}, self.number)

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
                found[number] = offset_of(column_of(number), text, self.number)
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
            topic = topic_of(row)
            found |= {topic} if topic is not None else set()
            name, colon, _ = row.partition(b":")
            start = name + b";" if colon else row + b"\0"  # after all rows of the topic
        raise self._wrong_layout()

    def backwards(self, topic: str, group: str) -> Iterator[BatchRow]:
        """The rows of a topic and group, the latest first. Rows of other groups in between are skipped unread."""
        prefix = key_prefix(topic, group)
        start, passed = from_latest(prefix), b""
        for _ in range(MOST_SCANS):
            page = self.table.scan(start, prefix, limit=2, reverse=True)
            row = next((name for name in page if name != passed), None)
            if row is None:
                return
            passed, epoch_ms = row, epoch_of(row, prefix)
            if epoch_ms is None:
                start = before_others(row, prefix)
                continue
            start = row
            cells = {name: cell for name, cell in page[row].items() if partition_of(name) is not None}
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
                rows.append(common.unreadable_row(key, unreadable(self.table, latest.row, fault), own))
            else:
                stored = StoredOffset(latest.offsets[number], None, latest.epoch_ms)
                rows.append(Row(key, stored, own))
        return sorted(rows, key=lambda row: row.key)

    def _wrong_layout(self) -> Refused:
        return Refused(
            f"The HBase table {self.table.name!r} is full of rows that are not of this layout.",
            hint="Correct the layout in the store's address, or give it a table of its own.",
        )


MOST_PARTITIONS = 100_000
"""The most partitions of one topic: a row has a cell for each of them, up to the last."""

Keys = set[TopicPartition]


class ClouderaStore(HBaseStore):
    """Rows of one table."""

    def __init__(self, table: HBaseTable, address: str, *, number: Number = Number.NEXT) -> None:
        super().__init__(table, address)
        self.capabilities = Capabilities(keeps_anchors=False)
        self._rows = ClouderaRows(table, number)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The offsets of the latest row of each topic, ordered by topic and partition."""
        self._check_group(group)
        wanted = self._rows.topics() if topics is None else {topic for topic in topics if is_topic(topic)}
        return [row for topic in sorted(wanted) for row in self._rows.rows_of(topic, self._rows.latest(topic, group))]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """A new row for each topic, in one step each, by compare-and-set.

        Raises OutcomeUnknown where an answer was lost, or a part was written before an error.
        """
        common.check_changes(group, changes)
        by_topic: dict[str, list[Change]] = {}
        for change in changes:
            if not is_topic(change.key.topic):
                raise ConfigError(
                    f"{change.key.topic[:80]!r} cannot be a topic in Cloudera's layout: Kafka allows no such name.",
                    hint="Correct the job's topics.",
                )
            by_topic.setdefault(change.key.topic, []).append(change)
        lost = write_parts(by_topic.items(), lambda part: self._write_topic(part[0], group, part[1], now_ms))
        return common.result_of(changes, lost)

    def _write_topic(self, topic: str, group: str, changes: Sequence[Change], now_ms: int) -> Keys:
        """Write one topic's changes. Returns the keys of the rows that another writer changed first."""
        before = self._rows.latest(topic, group)
        versions = {row.key: row.version for row in self._rows.rows_of(topic, before)}
        lost = set(common.conflicts(changes, versions))
        good = [change for change in changes if change.key not in lost]
        old = before.texts if before is not None else {}
        texts = _texts(old, good, self._rows.number)
        if texts == old or self._put(topic, group, before, texts, now_ms):
            return lost
        return lost | {change.key for change in good}

    def _put(self, topic: str, group: str, before: BatchRow | None, texts: Mapping[int, bytes], now_ms: int) -> bool:
        """Steps 2 and 3. False if another writer was first, and nothing was written."""
        if max(texts, default=0) >= MOST_PARTITIONS:
            raise ConfigError(
                f"Partition {max(texts)} of {topic!r} is too far behind the others: Cloudera's rows have no gaps.",
                hint="Correct the partition's number.",
            )
        epoch_ms = now_ms if before is None else max(now_ms, before.epoch_ms + 1)
        if epoch_ms > MAX_EPOCH_MS:
            raise ConfigError(f"This layout cannot hold the time {epoch_ms}.", hint="Set this machine's clock right.")
        row, old = row_key(topic, group, epoch_ms), [] if before is None else [(before.row, before.texts)]
        self._table.put(row, dense(texts, self._rows.number))
        try:
            found = [(each.row, each.texts) for each in self._rows.latest_two(topic, group)]
            if found == [(row, texts), *old]:
                return True
            self._table.delete_row(row)
        except ReconcilerError as error:
            raise partial_write(error, rows_may_be_written=True) from error
        return False


def _texts(old: Mapping[int, bytes], changes: Sequence[Change], number: Number) -> dict[int, bytes]:
    """The new row's offsets: the latest row's, with the changes put in."""
    return {**old, **{change.key.partition: offset_text(change.new.offset, number) for change in changes}}
