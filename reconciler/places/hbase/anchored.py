"""This product's own layout in HBase (``layouts.anchored``): offset and anchor in one cell.

A write is one compare-and-set of one cell, which HBase carries out whole or not at all. So a kill cannot leave an
offset with another's anchor, and a second ``apply`` finds each row either unchanged or corrected.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reconciler.core.errors import ConfigError, ReconcilerError
from reconciler.core.json_fields import FieldError
from reconciler.places import common
from reconciler.places.hbase.layouts import anchored as layout
from reconciler.places.hbase.layouts.cells import Cells
from reconciler.places.hbase.store import HBaseStore, UnreadableRow, partial_write
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult

FAMILIES: Mapping[bytes, Mapping[str, int]] = {layout.FAMILY: {}}


@dataclass(frozen=True, slots=True)
class _CurrentRow:
    """A row's cell, and its content."""

    value: bytes
    entry: layout.RowChange

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
            return common.unread(key, error)
        if current is None:
            return None
        return Row(key, current.entry.stored, current.version, of_stay=current.entry.stay)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each change, one after the other.

        Raises OutcomeUnknown where an answer was lost and reading cannot replace it, or a part was written before an
        error.
        """
        common.check_changes(group, changes)
        names = {change.key: _row_key(group, change.key) for change in changes}
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
        return common.written(changes, lost)

    def _scan(self, group: str, topics: Iterable[str] | None) -> dict[TopicPartition, Cells]:
        wanted = common.wanted_topics(topics)
        prefixes = [layout.prefix(group)] if wanted is None else [layout.prefix(group, topic) for topic in wanted]
        if any(len(prefix) > layout.MAX_KEY_BYTES for prefix in prefixes):
            raise _too_long(group)
        found: dict[TopicPartition, Cells] = {}
        for prefix in prefixes:
            for name, cells in self._table.scan_prefix(prefix).items():
                key = layout.parse_row_key(name)
                if key is not None and layout.COLUMN in cells:
                    found[key[1]] = cells
        return found

    def _put(self, name: bytes, current: _CurrentRow | None, change: Change, reason: str, now_ms: int) -> bool:
        """True if the change was made, False if another writer was first."""
        number = 1 if current is None else current.entry.change + 1
        entry = layout.RowChange(number, common.stamped(change, now_ms), reason, now_ms, change.stay)
        value = layout.encode(entry, secrets.token_hex(8))
        return self._table.put_if_unchanged(name, layout.COLUMN, None if current is None else current.value, value)

    def _parsed(self, cells: Cells) -> _CurrentRow | None:
        cell = cells.get(layout.COLUMN)
        if cell is None:
            return None
        try:
            return _CurrentRow(cell.value, layout.decode(cell.value))
        except FieldError as error:
            raise UnreadableRow(
                f"The HBase table {self._table.name!r} holds a row that this product did not write: {error}.",
                hint="Correct or delete the row, or give this layout a table of its own.",
            ) from error


def _row_key(group: str, key: TopicPartition) -> bytes:
    name = layout.row_key(group, key.topic, key.partition)
    if len(name) > layout.MAX_KEY_BYTES:
        raise _too_long(group)
    return name


def _too_long(group: str) -> ConfigError:
    return ConfigError(
        f"The name of group {group[:40]!r}, or of its topic, is too long for a row of HBase.",
        hint="Choose another store.",
    )
