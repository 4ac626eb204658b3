"""Offsets in HBase as Cloudera's example for Spark Streaming keeps them: one row a batch, all partitions in it.

Row key: ``TOPIC:GROUP:EPOCH_MS``, the batch's time; family ``offsets`` (TTL 2,592,000 s); qualifier: the partition in
decimal; value: the next offset to read in decimal, or by the address the last processed one (``stores.numbers``).
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
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.core import text as decimal_text
from reconciler.core.text import NotDecimal
from reconciler.places.numbers import Number

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


def prefix(topic: str, group: str) -> bytes:
    """The beginning of the keys of a topic's and group's rows; keys of other groups may begin with it too."""
    return f"{topic}:{group}:".encode()


def row_key(topic: str, group: str, epoch_ms: int) -> bytes:
    """The key of one batch's row. Raises ValueError for a time that does not fit into 13 digits."""
    if not 0 <= epoch_ms <= MAX_EPOCH_MS:
        raise ValueError(f"{epoch_ms} is not a time in {DIGITS} digits")
    return prefix(topic, group) + b"%013d" % epoch_ms


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


def column(partition: int) -> bytes:
    return FAMILY + b":%d" % partition


def partition_of(column: bytes) -> int | None:
    """The partition whose column it is, None for another column."""
    family, _, qualifier = column.partition(b":")
    return decimal_text.partition_of(qualifier.decode("ascii", "replace")) if family == FAMILY else None


def dense(texts: Mapping[int, bytes], number: Number = Number.NEXT) -> dict[bytes, bytes]:
    """The row of these offsets (text by partition), with ``NOTHING`` in every gap before the last one."""
    last = max(texts, default=-1)
    return {column(partition): texts.get(partition, NOTHING[number]) for partition in range(last + 1)}


def texts(cells: Mapping[bytes, bytes], number: Number = Number.NEXT) -> dict[int, bytes]:
    """A row's unparsed offsets by partition, without the partitions that have none."""
    found = {partition_of(name): value for name, value in cells.items()}
    nothing = NOTHING[number]
    return {partition: value for partition, value in found.items() if partition is not None and value != nothing}


def text(offset: int, number: Number = Number.NEXT) -> bytes:
    """An offset as this format writes it."""
    return b"%d" % number.kept(offset)
