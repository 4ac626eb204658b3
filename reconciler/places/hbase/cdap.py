"""Offsets in CDAP's rows (``layouts.cdap``), which hold nothing but their own programs' cells.

Theory of operation. Thrift 1 has two kinds of writes: a compare-and-set of one cell, and an unconditional change of
several cells of one row in one step. HBase shows the cell with the largest timestamp, not the one written last.

- C1  A row is written cell by cell, each by compare-and-set with what was read, the offset last. So a kill leaves the
      old offset, or no row for any reader, and what another program has written since the read stays.
- C2  CDAP's transactional tables stamp cells with transaction numbers, a million times larger than the server's clock:
      what C1 writes there would never be visible. Such a row is written in one step, with a number between its cells'
      and the present. Another program's transaction since the read has a larger one, so it stays visible; and so does
      a later write than this one, if this one is carried out late.
- C3  Reading back decides what was written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.places import common
from reconciler.places.hbase.layouts.cdap import TRANSACTIONS_PER_MS, CdapLayout, NewRow, NotARow, is_transaction
from reconciler.places.hbase.layouts.cells import Cells, sorted_content
from reconciler.places.hbase.store import HBaseStore, UnreadableRow, unreadable, write_parts
from reconciler.places.hbase.table import HBaseTable
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult

BATCH = 200
"""Rows written together."""


@dataclass(frozen=True, slots=True)
class _Current:
    """A row's own cells, and the offset in them; None where there is no row."""

    cells: Cells
    stored: StoredOffset | None

    @property
    def version(self) -> str | None:
        """Changes with every write of the row."""
        if self.stored is None:
            return None
        return hashlib.blake2b(json.dumps(sorted_content(self.cells)).encode(), digest_size=16).hexdigest()

    @property
    def stamp(self) -> int:
        """The largest timestamp of the cells; 0 without cells."""
        return max((cell.at for cell in self.cells.values()), default=0)


@dataclass(frozen=True, slots=True)
class _Write:
    """The write of one row: its cells before, and the new ones."""

    key: TopicPartition
    before: _Current
    cells: Mapping[bytes, bytes]

    def is_done(self, now: _Current) -> bool:
        return {name: now.cells[name].value for name in self.cells if name in now.cells} == self.cells


class CdapStore(HBaseStore):
    """Rows of one CDAP table. They belong to no group: a caller may read them only for ``of_group``, if it is given."""

    def __init__(self, table: HBaseTable, layout: CdapLayout, address: str, *, of_group: str | None = None) -> None:
        super().__init__(table, address)
        self._layout = layout
        self.capabilities = Capabilities(keeps_anchors=layout.has_anchors)
        self._of_group = of_group

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        self._check_group(group)
        rows: list[Row] = []
        for key, cells in sorted(self._layout.find(self._table, common.wanted_topics(topics)).items()):
            try:
                row = self._row(key, self._current(key, cells))
            except UnreadableRow as error:
                row = common.unread(key, error)
            rows += [row] if row is not None else []
        return rows

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each change.

        Raises OutcomeUnknown where an answer was lost, or a part was written before an error.
        """
        self._check_group(group)
        common.check_changes(group, changes)
        before = self._look([change.key for change in changes])
        versions = {key: current.version for key, current in before.items() if current.version is not None}
        lost = set(common.conflicts(changes, versions))
        writes = self._writes([change for change in changes if change.key not in lost], before)
        batches = (writes[start : start + BATCH] for start in range(0, len(writes), BATCH))
        return common.written(changes, lost | write_parts(batches, lambda batch: self._carry_out(batch, now_ms)))

    def _check_group(self, group: str) -> None:
        common.check_group(group, self._of_group, f"the store {self.address}", why=": this layout has no groups")

    # ------------------------------------------------------------ reading

    def _look(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, _Current]:
        """Rows by their keys; absent ones have no cells."""
        names = {key: self._layout.row_key(key) for key in keys}
        if len(set(names.values())) < len(names):
            raise ConfigError("The key function gives two partitions one row.", hint="Correct it.")
        rows = self._table.rows(list(names.values()))
        return {key: self._current(key, rows.get(name, {})) for key, name in names.items()}

    def _current(self, key: TopicPartition, all_cells: Cells) -> _Current:
        cells = {name: cell for name, cell in all_cells.items() if name in self._layout.columns}
        try:
            return _Current(cells, self._layout.read(cells))
        except NotARow as error:
            raise unreadable(self._table, self._layout.row_key(key), error) from error

    def _row(self, key: TopicPartition, current: _Current) -> Row | None:
        stored, version = current.stored, current.version
        if stored is None or version is None:
            return None
        if stored.anchor is None:
            return Row(key, stored, version, note=self._layout.no_anchor_note)
        return Row(key, replace(stored, anchor=self._layout.with_hint(key, stored.anchor)), version)

    # ------------------------------------------------------------ writing

    def _writes(self, changes: Sequence[Change], before: Mapping[TopicPartition, _Current]) -> list[_Write]:
        new = [NewRow(each.key, each.new, before[each.key].cells, each.found_from) for each in changes]
        return [_Write(key, before[key], cells) for key, cells in self._layout.new_cells(new).items()]

    def _carry_out(self, writes: Sequence[_Write], now_ms: int) -> set[TopicPartition]:
        """Write the rows; the keys of those that another program changed first."""
        for write in writes:
            self._write(write, now_ms)
        now = self._look([write.key for write in writes])  # C3
        return {write.key for write in writes if not write.is_done(now[write.key])}

    def _write(self, write: _Write, now_ms: int) -> None:
        name, before = self._layout.row_key(write.key), write.before
        if is_transaction(before.stamp):  # C2
            age = now_ms * TRANSACTIONS_PER_MS - before.stamp
            self._table.put(name, write.cells, at=before.stamp + 1 + max(0, age) // 1000)
        else:  # C1
            for column in sorted(write.cells, key=lambda column: column == self._layout.columns[0]):
                cell = before.cells.get(column)
                old = None if cell is None else cell.value
                if old != write.cells[column]:
                    self._table.put_if_unchanged(name, column, old, write.cells[column])
