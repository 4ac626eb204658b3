"""This product's own layout in HBase (``layouts.hbase_anchored``): offset and anchor in one cell.

A write is one compare-and-set of one cell, which HBase carries out whole or not at all. So no kill leaves an offset
with another's anchor, and a second ``apply`` finds each row either as it was or as it was to be.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from reconciler.core.errors import ConfigError, ReconcilerError, Refused
from reconciler.formats.json_fields import FieldError
from reconciler.ports import Capabilities, Change, HistoryEntry, Row, TopicPartition, WriteResult
from reconciler.stores import common
from reconciler.stores.hbase.layouts import anchored as layout
from reconciler.stores.hbase.layouts.cells import Cell
from reconciler.stores.hbase.table import Cells, HBaseTable
from reconciler.stores.hbase.writing import partly, put_if_unchanged

HISTORY_KEPT = 100
"""Versions that HBase keeps of a cell."""
FAMILIES = {layout.FAMILY: {"maxVersions": HISTORY_KEPT}}


@dataclass(frozen=True, slots=True)
class _Found:
    """A row's cell as it is now, and what it says."""

    value: bytes
    entry: layout.Entry

    @property
    def version(self) -> str | None:
        """None for a row that was deleted."""
        return None if self.entry.stored is None else hashlib.blake2b(self.value, digest_size=16).hexdigest()


class AnchoredStore:
    """Rows of one table. Raises what ``HBaseTable`` does, and Refused for a row that this product did not write."""

    def __init__(self, table: HBaseTable, address: str) -> None:
        self._table = table
        self._address = address

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(keeps_history=True)

    @property
    def address(self) -> str:
        return self._address

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows, ordered by topic and partition."""
        common.check_name("group's name", group)
        return [
            Row(key, found.entry.stored, version)
            for key, found in sorted(self._scan(group, topics).items())
            if found.entry.stored is not None and (version := found.version) is not None
        ]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each change, one after the other.

        Raises OutcomeUnknown where an answer was lost and cannot be found out, or only a part was written.
        """
        common.check_changes(group, changes)
        keys = {change.key: _row_key(group, change.key) for change in changes}
        rows = self._table.rows(list(keys.values()))
        now = {key: self._found(rows[name]) for key, name in keys.items() if name in rows}
        versions = {key: found.version for key, found in now.items() if found is not None and found.version is not None}
        lost = set(common.conflicts(changes, versions))
        written: list[TopicPartition] = []
        for change in changes:
            if change.key in lost:
                continue
            try:
                done = self._put(keys[change.key], now.get(change.key), change, reason, now_ms)
            except ReconcilerError as error:
                raise partly(error, len(written)) from error
            (written.append if done else lost.add)(change.key)
        return WriteResult(tuple(written), tuple(change.key for change in changes if change.key in lost))

    def history(self, group: str) -> list[HistoryEntry]:
        """The last changes of each of the group's rows, oldest first; those of one millisecond may show as one."""
        common.check_name("group's name", group)
        entries: list[HistoryEntry] = []
        for key in self._scan(group, None):
            versions = self._table.versions(_row_key(group, key), layout.COLUMN, HISTORY_KEPT)
            told = [self._entry(cell) for cell in reversed(versions)]
            if told and told[0].change == 1:
                told.insert(0, layout.Entry(0, None, "", 0))
            for before, after in pairwise(told):
                entries.append(HistoryEntry(key, before.stored, after.stored, after.reason, after.at_ms))
        return sorted(entries, key=lambda entry: entry.at_ms)

    def create(self) -> None:
        """Make the table, unless it is there."""
        self._table.create()

    def check_writable(self, group: str) -> None:
        """Raise Refused for a table that is missing, disabled or of another layout. Writes nothing."""
        common.check_name("group's name", group)
        self._table.check_usable()

    def close(self) -> None:
        self._table.close()

    def _scan(self, group: str, topics: Iterable[str] | None) -> dict[TopicPartition, _Found]:
        wanted = common.wanted_topics(topics)
        prefixes = [layout.prefix(group)] if wanted is None else [layout.prefix(group, topic) for topic in wanted]
        if any(len(prefix) > layout.MAX_KEY_BYTES for prefix in prefixes):
            raise _too_long(group)
        found: dict[TopicPartition, _Found] = {}
        for prefix in prefixes:
            for name, cells in self._table.scan_prefix(prefix).items():
                parsed, cell = layout.parse_row_key(name), self._found(cells)
                if parsed is not None and cell is not None:
                    found[TopicPartition(*parsed[1:])] = cell
        return found

    def _put(self, name: bytes, now: _Found | None, change: Change, reason: str, now_ms: int) -> bool:
        """True if the change was made, False if another came first."""
        if change.new is None and (now is None or now.entry.stored is None):
            return True
        number = 1 if now is None else now.entry.change + 1
        entry = layout.Entry(number, common.stamped(change, now_ms), reason, now_ms)
        value = layout.encode(entry, secrets.token_hex(8))
        return put_if_unchanged(self._table, name, layout.COLUMN, None if now is None else now.value, value)

    def _found(self, cells: Cells) -> _Found | None:
        cell = cells.get(layout.COLUMN)
        return None if cell is None else _Found(cell.value, self._entry(cell))

    def _entry(self, cell: Cell) -> layout.Entry:
        try:
            return layout.decode(cell.value)
        except FieldError as error:
            raise Refused(
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
