"""Offsets in CDAP's rows (``layouts.cdap``), with a companion row of this product beside each (``cdap_companion``).

Theory of operation. Thrift 1 has two kinds of writes: a compare-and-set of one cell, and an unconditional change of
several cells of one row in one step. A row of these layouts has several cells, and must hold nothing but them; so the
compare-and-set is on the row's companion, and the row follows in one step:

    1. Read row and companion; the row is as expected.
    2. Replace the companion by compare-and-set: it names the row's new content, and the old.
    3. Read row and companion again. Give up the write where the row has changed since 1.
    4. Write the row's cells together, with the timestamp that the companion names.
    5. Read row and companion again: both must be this write's.

After a kill between 2 and 4, row and companion still have their old meaning; after 4, the new one. Offset and anchor
belong together at every step, since a companion identifies the row's cells by value and timestamp. A second ``apply``
completes the write: a row's version covers its cells and its companion.

Of two writers that start from the same row, the second one's compare-and-set fails. Where one writer comes between the
other's steps 2 and 4, at most one reports success, and its cells stay: each write's timestamp is above those of earlier
writes, so a delayed request comes too late to have an effect.

Timestamps: HBase shows the cell with the largest one, not the one written last. CDAP's transactional tables stamp cells
with transaction numbers, a million times larger than the server's clock, so a plain write there would stay invisible.
A row's new cells therefore get a timestamp right above the old ones', or the server's own time of step 2, which the
job's next write, by the server's clock, cannot precede.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, OutcomeUnknown, ReconcilerError
from reconciler.formats import json_fields
from reconciler.formats.json_fields import FieldError
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult
from reconciler.stores import common
from reconciler.stores.hbase.layouts import cdap_companion
from reconciler.stores.hbase.layouts.cdap import CdapLayout, NewRow, NotARow
from reconciler.stores.hbase.layouts.cdap_companion import COLUMN, Companion, CompanionState, Meaning
from reconciler.stores.hbase.layouts.cells import Cells, HBaseCell, companion_row, sorted_content
from reconciler.stores.hbase.store import HBaseStore, UnreadableRow, partial_write, unreadable, write_parts
from reconciler.stores.hbase.table import HBaseTable

BATCH = 200
"""Rows written together."""
CLAIM_ATTEMPTS = 3
"""Tries to claim a companion while readers settle it."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A row and its companion as they were read; ``raw`` is the companion cell's value."""

    cells: Cells
    legacy: StoredOffset | None
    raw: bytes | None
    companion: Companion | None

    @property
    def meaning(self) -> Meaning | None:
        """The row's offset and anchor, None if there is no row."""
        return None if self.legacy is None else cdap_companion.meaning(self.companion, self.cells, self.legacy)

    @property
    def version(self) -> str | None:
        """Changes with every write of the row or its companion, and not when a reader settles the companion."""
        if self.legacy is None:
            return None
        content = json.dumps([sorted_content(self.cells), self.nonce])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    @property
    def nonce(self) -> str | None:
        """The last write's, None where there is no companion."""
        return self.companion.nonce if self.companion else None

    @property
    def floor(self) -> int:
        """A timestamp above all used ones, 0 where none was used."""
        stamps = [cell.at for cell in self.cells.values()] + ([self.companion.stamp] if self.companion else [])
        return max(stamps) + 1 if stamps else 0


@dataclass(frozen=True, slots=True)
class _Write:
    """The write of one row: the pair before it, the new cells, and their meaning."""

    key: TopicPartition
    name: bytes
    before: _Pair
    cells: Mapping[bytes, bytes]
    stored: StoredOffset | None
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def removed(self) -> list[bytes]:
        """Columns to delete."""
        return [name for name in self.before.cells if name not in self.cells]

    @property
    def intent(self) -> bytes:
        """The companion of step 2."""
        new = CompanionState({name: HBaseCell(value, 0) for name, value in self.cells.items()}, self.stored)
        others, meaning = [], self.before.meaning
        if meaning is not None:
            others.append(CompanionState(self.before.cells, meaning.stored))
            if self.removed and self.cells:  # two steps: a kill between them leaves the old row without these cells
                kept = {name: cell for name, cell in self.before.cells.items() if name in self.cells}
                others.append(CompanionState(kept, meaning.stored))
        companion = self.before.companion
        if companion is not None and companion.written is not None and not companion.settled:
            others.append(companion.written)
        return cdap_companion.encode(new, floor=self.before.floor, nonce=self.nonce, others=others)

    def is_claimed(self, pair: _Pair) -> bool:
        return pair.nonce == self.nonce

    def is_done(self, pair: _Pair) -> bool:
        return self.is_claimed(pair) and pair.companion is not None and pair.companion.is_in_place(pair.cells)


class CdapStore(HBaseStore):
    """Rows of one CDAP table. They belong to no group; a caller may read them only for ``of_group``, if that is given.

    ``keeps_anchors`` False: companions exist only during a write, and for rows that a rollback gave an older date.
    """

    def __init__(
        self,
        table: HBaseTable,
        layout: CdapLayout,
        address: str,
        *,
        keeps_anchors: bool = True,
        of_group: str | None = None,
    ) -> None:
        super().__init__(table, address)
        self._layout = layout
        self._keeps_anchors = keeps_anchors
        self.capabilities = Capabilities(keeps_anchors=keeps_anchors)
        self._of_group = of_group

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        self._check_group(group)
        faults: dict[TopicPartition, UnreadableRow] = {}
        pairs = self._with_companions(self._layout.find(self._table, common.wanted_topics(topics)), faults)
        for key, pair in pairs.items():
            self._settle(key, pair)
        rows = [row for key, pair in pairs.items() if (row := self._row(key, pair)) is not None]
        rows += [common.unread(key, error) for key, error in faults.items()]
        return sorted(rows, key=lambda row: row.key)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each change. ``reason`` is not kept.

        Raises OutcomeUnknown where an answer was lost, or a part was written before an error.
        """
        self._check_group(group)
        common.check_changes(group, changes)
        before = self._look([change.key for change in changes])
        versions = {key: pair.version for key, pair in before.items() if pair.version is not None}
        lost = set(common.conflicts(changes, versions))
        writes = self._writes([change for change in changes if change.key not in lost], before, now_ms)
        batches = (writes[start : start + BATCH] for start in range(0, len(writes), BATCH))
        return common.written(changes, lost | write_parts(batches, lambda batch: self._carry_out(batch, now_ms)))

    def _check_group(self, group: str) -> None:
        common.check_group(group, self._of_group, f"the store {self.address}", why=": this layout has no groups")

    # ------------------------------------------------------------ reading

    def _look(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, _Pair]:
        """Rows and companions by their keys; absent ones are empty pairs."""
        names = {key: self._layout.row_key(key) for key in keys}
        if len(set(names.values())) < len(names):
            raise ConfigError("The key function gives two partitions one row.", hint="Correct it.")
        rows = self._table.rows(list(names.values()))
        return self._with_companions({key: rows.get(name, {}) for key, name in names.items()})

    def _with_companions(
        self, rows: Mapping[TopicPartition, Cells], faults: dict[TopicPartition, UnreadableRow] | None = None
    ) -> dict[TopicPartition, _Pair]:
        """The rows with their companions. Unreadable rows go into ``faults``; without it, UnreadableRow is raised."""
        names = {key: companion_row(self._layout.row_key(key)) for key in rows}
        companions = self._table.rows(list(names.values()))
        pairs: dict[TopicPartition, _Pair] = {}
        for key, cells in rows.items():
            try:
                pairs[key] = self._pair(key, cells, companions.get(names[key], {}))
            except UnreadableRow as error:
                if faults is None:
                    raise
                faults[key] = error
        return pairs

    def _pair(self, key: TopicPartition, all_cells: Cells, companion_cells: Cells) -> _Pair:
        cells = {name: cell for name, cell in all_cells.items() if name in self._layout.columns}
        cell = companion_cells.get(COLUMN)
        row = self._layout.row_key(key)
        try:
            companion = None if cell is None else cdap_companion.decode(cell.value, cell.at)
            return _Pair(cells, self._layout.read(cells), None if cell is None else cell.value, companion)
        except FieldError as error:
            raise unreadable(self._table, companion_row(row), error) from error
        except NotARow as error:
            raise unreadable(self._table, row, error) from error

    def _settle(self, key: TopicPartition, pair: _Pair) -> None:
        """Record that a finished write was seen in place. Without write permission this does nothing."""
        companion = pair.companion
        if companion is None or companion.settled or not companion.is_in_place(pair.cells) or pair.legacy is None:
            return
        name = companion_row(self._layout.row_key(key))
        with suppress(ReconcilerError):
            self._table.check_and_put(name, COLUMN, pair.raw, cdap_companion.encode_settled(companion))

    def _row(self, key: TopicPartition, pair: _Pair) -> Row | None:
        meaning, version = pair.meaning, pair.version
        if meaning is None or version is None:
            return None
        stored, text = meaning.stored, _as_text(pair.cells)
        if not self._keeps_anchors:
            return Row(key, replace(stored, anchor=None), version, text=text)
        if stored.anchor is None:
            return Row(key, stored, version, meaning.lag, self._layout.no_anchor_note, text)
        if stored.anchor.cluster_id is None:
            stored = replace(stored, anchor=self._layout.with_hint(key, stored.anchor))
        return Row(key, stored, version, meaning.lag, text=text, anchored_ms=meaning.anchored_ms)

    # ------------------------------------------------------------ writing

    def _writes(self, changes: Sequence[Change], before: Mapping[TopicPartition, _Pair], now_ms: int) -> list[_Write]:
        """The rows to write, without the deletions of rows that do not exist."""
        stored = {change.key: common.stamped(change, now_ms) for change in changes}
        cells: dict[TopicPartition, Mapping[bytes, bytes]] = {key: {} for key, new in stored.items() if new is None}
        cells |= {change.key: old for change in changes if (old := self._restored_cells(change)) is not None}
        rows = [
            NewRow(change.key, new, before[change.key].cells, change.found_from)
            for change in changes
            if change.key not in cells and (new := stored[change.key]) is not None
        ]
        cells |= self._layout.new_cells(rows)
        return [
            _Write(key, self._layout.row_key(key), before[key], cells[key], new)
            for key, new in stored.items()
            if new is not None or before[key].legacy is not None
        ]

    def _restored_cells(self, change: Change) -> Mapping[bytes, bytes] | None:
        """The cells that a rollback restores, unless they say another offset; None for any other change."""
        if not change.restores or change.new is None or change.text is None:
            return None
        try:
            values = json_fields.json_object(change.text)
            cells = {name.encode("latin-1"): bytes.fromhex(str(value)) for name, value in values.items()}
            found = self._layout.read({name: HBaseCell(value, 0) for name, value in cells.items()})
        except (ValueError, NotARow):  # FieldError and UnicodeEncodeError are ValueErrors
            return None
        return cells if found is None or found.offset == change.new.offset else None

    def _carry_out(self, writes: Sequence[_Write], now_ms: int) -> set[TopicPartition]:
        """Steps 2 to 5 for some rows; the keys of those that another writer changed first."""
        lost: set[TopicPartition] = set()
        claimed: list[_Write] = []
        try:
            for write in writes:
                if self._claim(write):
                    claimed.append(write)
                else:
                    lost.add(write.key)
            lost |= self._put_rows(claimed)
            done = [write for write in claimed if write.key not in lost]
            after = self._look([write.key for write in done])
        except ReconcilerError as error:
            raise partial_write(error, rows_may_be_written=bool(claimed)) from error
        for write in done:
            if not write.is_done(after[write.key]):
                raise OutcomeUnknown(
                    f"{write.key} was written by another program at the same time.",
                    hint="Stop the other program, then run this again.",
                )
        for write in done:
            if not self._needs_companion(write, now_ms):
                self._remove_companion(write, after[write.key])
        return lost

    def _claim(self, write: _Write) -> bool:
        """Step 2. A reader may settle the companion meanwhile: that does not change the row."""
        before = write.before
        for _ in range(CLAIM_ATTEMPTS):
            if self._table.put_if_unchanged(companion_row(write.name), COLUMN, before.raw, write.intent):
                return True
            now = self._look([write.key])[write.key]
            if now.nonce is None or now.nonce != before.nonce or now.version != before.version:
                return False
            before = now
        return False

    def _put_rows(self, writes: Sequence[_Write]) -> set[TopicPartition]:
        """Steps 3 and 4; the keys of the rows that changed meanwhile."""
        lost = set()
        pairs = self._look([write.key for write in writes])
        for write in writes:
            pair = pairs[write.key]
            if pair.companion is None or not write.is_claimed(pair) or pair.cells != write.before.cells:
                lost.add(write.key)
                continue
            if write.removed:
                self._table.delete(write.name, write.removed, at=pair.companion.stamp)
            if write.cells:
                self._table.put(write.name, write.cells, at=pair.companion.stamp)
        return lost

    def _needs_companion(self, write: _Write, now_ms: int) -> bool:
        """False if the row's cells alone hold the offset and all that belongs to it."""
        return write.stored is not None and (self._keeps_anchors or write.stored.written_at_ms != now_ms)

    def _remove_companion(self, write: _Write, after: _Pair) -> None:
        """Remove a companion that is no longer needed; it would do no harm."""
        companion = after.companion
        if companion is None or companion.floor > companion.at:  # only the companion still knows this floor
            return
        with suppress(ReconcilerError):
            self._table.delete(companion_row(write.name), [COLUMN], at=companion.at)


def _as_text(cells: Cells) -> str:
    """A row's cells, byte for byte, for a rollback."""
    return json.dumps({name.decode("latin-1"): cell.value.hex() for name, cell in sorted(cells.items())})
