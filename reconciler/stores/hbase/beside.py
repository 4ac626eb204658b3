"""Rows of a layout that is another program's, in HBase, with what this product knows of them beside it.

Theory of operation. Thrift 1 has two kinds of writes: a compare-and-set of one cell, and an unconditional change of
several cells of one row in one step. A row of these layouts has several cells, and must hold nothing but them; so the
compare-and-set is on the row's companion (``layouts.hbase_companion``), and the row follows in one step:

    1. Row and companion are read; the row is as expected.
    2. The companion is replaced by compare-and-set: it says what the row is to be, and what it was.
    3. Row and companion are read again. Where the row has changed since 1, the write is given up.
    4. The row's cells are written together, with the timestamp that the companion says.
    5. Row and companion are read again: both must be this write's.

Killed after 2, the row and its companion say what they said; killed after 4, what was to be said. Offset and anchor
belong together at every step, since a state names the row's cells by value and timestamp. A second ``apply`` does what
is missing: the version of a row is that of its cells and its companion.

Of two writers that start from the same row, the second one's compare-and-set fails. Of two where one came between the
other's steps 2 and 4, at most one reports success, and its cells stay: each write's timestamp is above that of those
before it, so that a request which was held up somewhere comes too late to count.

Timestamps: HBase shows the cell with the largest one, whatever came last. CDAP's transactional tables stamp cells with
transaction numbers, a million times larger than the server's clock: a plain write there would not be seen. So a row's
new cells get a timestamp right above the old ones', or the server's own time of step 2, which the job's next write, by
the server's clock, is not behind.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, OutcomeUnknown, ReconcilerError, Refused
from reconciler.formats.json_fields import FieldError
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult
from reconciler.stores import common
from reconciler.stores.hbase.cdap import CdapLayout, Wanted
from reconciler.stores.hbase.layouts import cdap
from reconciler.stores.hbase.layouts import companion as hbase_companion
from reconciler.stores.hbase.layouts.cells import Cell
from reconciler.stores.hbase.layouts.companion import Companion, Meaning, State
from reconciler.stores.hbase.table import Cells, HBaseTable
from reconciler.stores.hbase.writing import partly, put_if_unchanged

AT_ONCE = 200
"""Rows written together."""
CLAIMS = 3
"""How often a companion is claimed that readers settle at the same time."""
COMPANION = hbase_companion.column(cdap.FAMILY)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A row and its companion as they were read."""

    cells: Cells
    legacy: StoredOffset | None
    raw: bytes | None
    companion: Companion | None

    @property
    def meaning(self) -> Meaning | None:
        """What the row says, None if there is none."""
        return None if self.legacy is None else hbase_companion.meaning(self.companion, self.cells, self.legacy)

    @property
    def version(self) -> str | None:
        """Changes with every write of the row or its companion, and not when a reader settles the companion."""
        if self.legacy is None:
            return None
        content = sorted((name.hex(), cell.value.hex(), cell.at) for name, cell in self.cells.items())
        return hashlib.blake2b(json.dumps([content, self.nonce]).encode(), digest_size=16).hexdigest()

    @property
    def nonce(self) -> str | None:
        """The last write's, None where there is no companion."""
        return self.companion.nonce if self.companion else None

    def is_same_row(self, other: _Seen) -> bool:
        return self.cells == other.cells

    @property
    def floor(self) -> int:
        """A timestamp above all that were used, 0 where none was."""
        stamps = [cell.at for cell in self.cells.values()] + ([self.companion.stamp] if self.companion else [])
        return max(stamps) + 1 if stamps else 0


_NOTHING = _Seen({}, None, None, None)


@dataclass(frozen=True, slots=True)
class _Write:
    """One row on its way: what it was, the cells that it is to have, and what they are to mean."""

    key: TopicPartition
    name: bytes
    before: _Seen
    cells: Mapping[bytes, bytes]
    stored: StoredOffset | None
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def gone(self) -> list[bytes]:
        """Columns to delete."""
        return [name for name in self.before.cells if name not in self.cells]

    @property
    def intent(self) -> bytes:
        """The companion of step 2."""
        new = State({name: Cell(value, 0) for name, value in self.cells.items()}, self.stored)
        others, meaning = [], self.before.meaning
        if meaning is not None:
            others.append(State(self.before.cells, meaning.stored))
            if self.gone and self.cells:  # two steps: a kill between them leaves the row that was, less these cells
                kept = {name: cell for name, cell in self.before.cells.items() if name in self.cells}
                others.append(State(kept, meaning.stored))
        companion = self.before.companion
        if companion is not None and companion.written is not None and not companion.settled:
            others.append(companion.written)
        return hbase_companion.encode(new, floor=self.before.floor, nonce=self.nonce, others=others)

    def is_done(self, seen: _Seen) -> bool:
        return self.is_claimed(seen) and seen.companion is not None and seen.companion.is_in_place(seen.cells)

    def is_claimed(self, seen: _Seen) -> bool:
        return seen.nonce == self.nonce


class BesideStore:
    """Rows of one CDAP table. They belong to no group: ``of_group``, if given, is the only one that may be asked for.

    ``keeps_anchors`` False: companions are made only while rows are written, and for rows that are put back with an
    older date. Raises what ``HBaseTable`` does, and Refused for rows that are not as the layout says.
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
        self._table = table
        self._layout = layout
        self._address = address
        self._keeps_anchors = keeps_anchors
        self._of_group = of_group

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(keeps_anchors=self._keeps_anchors)

    @property
    def address(self) -> str:
        return self._address

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The rows, ordered by topic and partition."""
        self._check_group(group)
        found = self._layout.find(self._table, common.wanted_topics(topics))
        seen = self._joined(found)
        for key, each in seen.items():
            self._settle(key, each)
        return [row for key in sorted(seen) if (row := self._row(key, seen[key])) is not None]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each change. ``reason`` is not kept.

        Raises OutcomeUnknown where an answer was lost, or a part was written before something failed.
        """
        self._check_group(group)
        common.check_changes(group, changes)
        before = self._look([change.key for change in changes])
        versions = {key: seen.version for key, seen in before.items() if seen.version is not None}
        lost = set(common.conflicts(changes, versions))
        writes = self._writes([change for change in changes if change.key not in lost], before, now_ms)
        done = [change.key for change in changes if change.key not in lost]
        begun = 0
        for start in range(0, len(writes), AT_ONCE):
            part = writes[start : start + AT_ONCE]
            try:
                lost |= self._carry_out(part, now_ms)
            except ReconcilerError as error:
                raise partly(error, begun) from error
            begun += len(part)
        written = tuple(key for key in done if key not in lost)
        return WriteResult(written, tuple(change.key for change in changes if change.key in lost))

    def create(self) -> None:
        """Make the table, unless it is there."""
        self._table.create()

    def check_writable(self, group: str) -> None:
        """Raise Refused for a table that is missing, disabled or of another layout. Writes nothing."""
        self._check_group(group)
        self._table.check_usable()

    def close(self) -> None:
        self._layout.close()
        self._table.close()

    def _check_group(self, group: str) -> None:
        common.check_name("group's name", group)
        if self._of_group is not None and group != self._of_group:
            raise ConfigError(
                f"The store {self._address} keeps the offsets of group {self._of_group!r}, not of {group!r}.",
                hint="Correct the job's group, or of_group= in the store's address.",
            )

    # ------------------------------------------------------------ looking

    def _look(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, _Seen]:
        """Rows and companions by their keys, also those that are not there."""
        names = {key: self._layout.row_key(key) for key in keys}
        if len(set(names.values())) < len(names):
            raise ConfigError("The key function gives two partitions one row.", hint="Correct it.")
        rows = self._table.rows(list(names.values()))
        return self._joined({key: rows.get(name, {}) for key, name in names.items()})

    def _joined(self, rows: Mapping[TopicPartition, Cells]) -> dict[TopicPartition, _Seen]:
        beside = {key: hbase_companion.row_of(self._layout.row_key(key)) for key in rows}
        companions = self._table.rows(list(beside.values()))
        return {key: self._seen(key, cells, companions.get(beside[key], {})) for key, cells in rows.items()}

    def _seen(self, key: TopicPartition, cells: Cells, beside: Cells) -> _Seen:
        mine = {name: cell for name, cell in cells.items() if name in self._layout.columns}
        cell = beside.get(COMPANION)
        try:
            companion = None if cell is None else hbase_companion.decode(cell.value, cell.at)
            legacy = self._layout.read(mine)
        except (FieldError, cdap.NotARow) as error:
            row = self._layout.row_key(key)
            row = hbase_companion.row_of(row) if isinstance(error, FieldError) else row
            raise Refused(
                f"The row {row!r} of HBase table {self._table.name!r} is not as this layout says: {error}.",
                hint="Correct the layout in the store's address, or correct or delete the row.",
            ) from error
        return _Seen(mine, legacy, None if cell is None else cell.value, companion)

    def _settle(self, key: TopicPartition, seen: _Seen) -> None:
        """Say beside a finished write that it was seen. Who may not write reads all the same."""
        companion = seen.companion
        if companion is None or companion.settled or not companion.is_in_place(seen.cells) or seen.legacy is None:
            return
        beside = hbase_companion.row_of(self._layout.row_key(key))
        with suppress(ReconcilerError):
            self._table.check_and_put(beside, COMPANION, seen.raw, hbase_companion.encode_settled(companion))

    def _row(self, key: TopicPartition, seen: _Seen) -> Row | None:
        meaning, version = seen.meaning, seen.version
        if meaning is None or version is None:
            return None
        stored, lag, note, text = meaning.stored, meaning.lag, "", _as_text(seen.cells)
        if not self._keeps_anchors:
            return Row(key, replace(stored, anchor=None), version, text=text)
        if stored.anchor is None:
            note = self._layout.without_anchor
        elif stored.anchor.cluster_id is None:
            stored = replace(stored, anchor=self._layout.hinted(key, stored.anchor))
        return Row(key, stored, version, lag, note, text)

    # ------------------------------------------------------------ writing

    def _writes(self, changes: Sequence[Change], before: Mapping[TopicPartition, _Seen], now_ms: int) -> list[_Write]:
        """The rows to write; those are left out that are to be deleted and are not there."""
        stored = {change.key: common.stamped(change, now_ms) for change in changes}
        cells: dict[TopicPartition, Mapping[bytes, bytes]] = {key: {} for key, new in stored.items() if new is None}
        cells |= {change.key: back for change in changes if (back := _put_back(change)) is not None}
        wanted = [
            Wanted(change.key, new, before[change.key].cells, change.found_from)
            for change in changes
            if change.key not in cells and (new := stored[change.key]) is not None
        ]
        cells |= self._layout.cells(wanted)
        return [
            _Write(key, self._layout.row_key(key), before[key], cells[key], new)
            for key, new in stored.items()
            if new is not None or before[key].legacy is not None
        ]

    def _carry_out(self, writes: Sequence[_Write], now_ms: int) -> set[TopicPartition]:
        """Steps 2 to 5 for some rows; the keys of those that others changed first."""
        lost: set[TopicPartition] = set()
        begun = 0
        try:
            for write in writes:
                if self._claim(write):
                    begun += 1
                else:
                    lost.add(write.key)
            lost |= self._put_rows([write for write in writes if write.key not in lost])
            done = [write for write in writes if write.key not in lost]
            after = self._look([write.key for write in done])
        except ReconcilerError as error:
            raise partly(error, begun) from error
        for write in done:
            if not write.is_done(after[write.key]):
                raise OutcomeUnknown(
                    f"{write.key.topic}:{write.key.partition} was written by another program at the same time.",
                    hint="Stop what else writes this store, then run this again.",
                )
        for write in done:
            if not self._needs_companion(write, now_ms):
                self._forget(write, after[write.key])
        return lost

    def _claim(self, write: _Write) -> bool:
        """Step 2. A reader that settles the companion meanwhile has not changed the row."""
        before = write.before
        for _ in range(CLAIMS):
            beside = hbase_companion.row_of(write.name)
            if put_if_unchanged(self._table, beside, COMPANION, before.raw, write.intent):
                return True
            now = self._look([write.key])[write.key]
            if now.nonce is None or now.nonce != before.nonce or now.version != before.version:
                return False
            before = now
        return False

    def _put_rows(self, writes: Sequence[_Write]) -> set[TopicPartition]:
        """Steps 3 and 4; the keys of the rows that changed meanwhile."""
        lost = set()
        now = self._look([write.key for write in writes])
        for write in writes:
            seen = now[write.key]
            if seen.companion is None or not write.is_claimed(seen) or not seen.is_same_row(write.before):
                lost.add(write.key)
                continue
            if write.gone:
                self._table.delete(write.name, write.gone, at=seen.companion.stamp)
            if write.cells:
                self._table.put(write.name, write.cells, at=seen.companion.stamp)
        return lost

    def _needs_companion(self, write: _Write, now_ms: int) -> bool:
        """False where the row says by itself all that it is to say."""
        return write.stored is not None and (self._keeps_anchors or write.stored.written_at_ms != now_ms)

    def _forget(self, write: _Write, after: _Seen) -> None:
        """Remove a companion that is of no use any more; left behind, it would do no harm."""
        companion = after.companion
        if companion is None or companion.floor > companion.at:  # without it, nobody would know of this floor
            return
        with suppress(ReconcilerError):
            self._table.delete(hbase_companion.row_of(write.name), [COMPANION], at=companion.at)


def _put_back(change: Change) -> Mapping[bytes, bytes] | None:
    """The cells that a rollback brings, None for any other change."""
    if not change.restores or change.new is None or change.text is None:
        return None
    return {name.encode("latin-1"): bytes.fromhex(value) for name, value in json.loads(change.text).items()}


def _as_text(cells: Cells) -> str:
    """A row's cells, to the byte, for a rollback."""
    return json.dumps({name.decode("latin-1"): cell.value.hex() for name, cell in sorted(cells.items())})
