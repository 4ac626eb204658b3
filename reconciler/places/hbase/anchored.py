"""This product's own layout in HBase: a row for each group, topic and partition, its offset and anchor in one cell.

Row key: ``GROUP/TOPIC/PARTITION``; both names percent-encoded as UTF-8 (RFC 3986: all but letters, digits and
``_.-~``), so that no two rows share a key and the rows of a group are adjacent; the partition in ten digits.

Cell ``o:v``, one JSON object in ASCII: ``{"format": "reconciler.hbase/1", "change": NUMBER, "nonce": TEXT, "offset",
"written_at_ms", "anchor": {"offset", "timestamp_ms", "id_base64", "fingerprint", "cluster_id", "topic_id", "names"},
"stay", "reason", "at_ms"}``. ``change`` counts the row's changes from 1. Unknown values are left out.

HBase's Thrift 1 interface has a compare-and-set for one cell only, so one cell holds everything. HBase writes it
whole or not at all: a kill cannot leave an offset with another's anchor, and a second ``apply`` finds each row either
unchanged or corrected.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from reconciler.core import anchor_fields, json_fields
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, ReconcilerError
from reconciler.core.json_fields import FieldError, required
from reconciler.core.text import whole_number
from reconciler.places import common
from reconciler.places.hbase.store import HBaseStore, UnreadableRow, partial_write
from reconciler.places.hbase.table import Cells
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult

FORMAT = "reconciler.hbase/1"
FAMILY = b"o"
COLUMN = b"o:v"
MAX_KEY_BYTES = 32_767
"""HBase's own limit."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change of a row: its number, its result, its reason, its time (epoch ms) and its stay."""

    change: int
    stored: StoredOffset
    reason: str
    at_ms: int
    stay: int | None = None


def row_key(group: str, topic: str, partition: int) -> bytes:
    """The row's key. HBase takes at most ``MAX_KEY_BYTES``; the caller checks."""
    return key_prefix(group, topic) + b"%010d" % partition


def key_prefix(group: str, topic: str | None = None) -> bytes:
    """The common beginning of the keys of a group's rows, of one topic or of all."""
    names = (group,) if topic is None else (group, topic)
    return "".join(quote(name, safe="") + "/" for name in names).encode()


def parse_row_key(row: bytes) -> tuple[str, TopicPartition] | None:
    """The group, and the topic's partition; None for a key that ``row_key`` never makes."""
    parts = row.split(b"/")
    if len(parts) != 3 or (number := whole_number(parts[2])) is None:
        return None
    try:
        group, topic = (unquote_to_bytes(part).decode() for part in parts[:2])
    except UnicodeDecodeError:
        return None
    key = TopicPartition(topic, number)
    return (group, key) if row_key(group, key.topic, key.partition) == row else None


def encode(entry: RowChange, nonce: str) -> bytes:
    """The cell's value; ``nonce`` distinguishes it from other writers' values of the same content and time."""
    content = {"format": FORMAT, "change": entry.change, "nonce": nonce, **anchor_fields.dump_stored(entry.stored)}
    stay = {} if entry.stay is None else {"stay": entry.stay}
    return json_fields.compact({**content, **stay, "reason": entry.reason, "at_ms": entry.at_ms}).encode()


def decode(value: bytes) -> RowChange:
    """Read a cell. Raises FieldError, and nothing else, for one that this product did not write."""
    content = json_fields.json_object(value.decode("ascii", "replace"))
    if content.get("format") != FORMAT:
        raise FieldError("format", f"is not {FORMAT!r}")
    change = required(json_fields.integer(content, "change"), "change")
    at_ms = required(json_fields.integer(content, "at_ms"), "at_ms")
    stored, reason = anchor_fields.load_stored(content), json_fields.string(content, "reason") or ""
    if stored is None:
        raise FieldError("offset", "is missing")
    return RowChange(change, stored, reason, at_ms, json_fields.integer(content, "stay", 1))


@dataclass(frozen=True, slots=True)
class _CurrentRow:
    """A row's cell, and its content."""

    value: bytes
    entry: RowChange

    @property
    def version(self) -> str:
        return hashlib.blake2b(self.value, digest_size=16).hexdigest()


class AnchoredStore(HBaseStore):
    """Rows of this product in one table. Raises Refused for a row that another program wrote."""

    capabilities = Capabilities()

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        self._check_group(group)
        return [
            row
            for key, cells in sorted(self._scan(group, topics).items())
            if (row := self._row(group, key, cells)) is not None
        ]

    def _row(self, group: str, key: TopicPartition, cells: Cells) -> Row | None:
        try:
            current = self._parsed(cells)
        except UnreadableRow as error:
            return common.unreadable_row(key, error)
        if current is None:
            return None
        return Row(key, current.entry.stored, current.version, of_stay=current.entry.stay)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each change, one after the other.

        Raises OutcomeUnknown where an answer was lost and reading cannot replace it, or a part was written before an
        error.
        """
        common.check_changes(group, changes)
        names = {change.key: _checked_key(group, change.key) for change in changes}
        rows = self._table.rows(list(names.values()))
        current = {key: row for key, name in names.items() if (row := self._parsed(rows.get(name, {}))) is not None}
        lost = set(common.conflicts(changes, {key: row.version for key, row in current.items()}))
        written = 0
        for change in changes:
            if change.key in lost:
                continue
            try:
                done = self._put(names[change.key], current.get(change.key), change, reason, now_ms)
            except ReconcilerError as error:
                raise partial_write(error, rows_may_be_written=written > 0) from error
            if done:
                written += 1
            else:
                lost.add(change.key)
        return common.result_of(changes, lost)

    def _scan(self, group: str, topics: Iterable[str] | None) -> dict[TopicPartition, Cells]:
        wanted = common.wanted_topics(topics)
        prefixes = [key_prefix(group)] if wanted is None else [key_prefix(group, topic) for topic in wanted]
        if any(len(prefix) > MAX_KEY_BYTES for prefix in prefixes):
            raise _too_long(group)
        found: dict[TopicPartition, Cells] = {}
        for prefix in prefixes:
            for name, cells in self._table.scan_prefix(prefix).items():
                key = parse_row_key(name)
                if key is not None and COLUMN in cells:
                    found[key[1]] = cells
        return found

    def _put(self, name: bytes, current: _CurrentRow | None, change: Change, reason: str, now_ms: int) -> bool:
        """True if the change was made, False if another writer was first."""
        number = 1 if current is None else current.entry.change + 1
        entry = RowChange(number, common.with_time(change, now_ms), reason, now_ms, change.stay)
        value = encode(entry, secrets.token_hex(8))
        return self._table.put_if_unchanged(name, COLUMN, None if current is None else current.value, value)

    def _parsed(self, cells: Cells) -> _CurrentRow | None:
        cell = cells.get(COLUMN)
        if cell is None:
            return None
        try:
            return _CurrentRow(cell.value, decode(cell.value))
        except FieldError as error:
            raise UnreadableRow(
                f"The HBase table {self._table.name!r} holds a row that this product did not write: {error}.",
                hint="Correct or delete the row, or give this layout a table of its own.",
            ) from error


def _checked_key(group: str, key: TopicPartition) -> bytes:
    name = row_key(group, key.topic, key.partition)
    if len(name) > MAX_KEY_BYTES:
        raise _too_long(group)
    return name


def _too_long(group: str) -> ConfigError:
    return ConfigError(
        f"The name of group {group[:40]!r}, or of its topic, is too long for a row of HBase.",
        hint="Choose another store.",
    )
