"""This product's own row beside a CDAP row, which has no room for an anchor: one cell with the row's meaning.

The legacy row keeps exactly the bytes that its own programs expect. Its companion row has the key ``!reconciler:``
followed by the legacy row's key, in the same family. Its only cell, ``d:beside``, is a JSON object in ASCII:
``{"format": "reconciler.hbase-beside/1", "nonce", "floor", "settled", "states": [{"cells": {COLUMN: [VALUE_HEX,
STAMP]}, "offset", "written_at_ms", "anchor"}]}``.

A state names the legacy row's cells, by value and timestamp, and their meaning; no cells, and ``offset`` null: no row.
The first state is the last write, finished or intended. A null stamp in it stands for the larger of ``floor`` and the
companion cell's own timestamp. The other states are those that the row may be in until that write has happened. So a
legacy row either matches a state, whose anchor then belongs to it, or another program wrote it. Such a row takes no
anchor from a state, unless the companion is ``settled``: a reader has seen the first state in place.

A program that continued from a settled state counts in the same numbering, from an offset that is not smaller. If the
program left an anchor of its own, that anchor gets this numbering; otherwise the state's anchor lags behind.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.formats import anchor_fields, json_fields
from reconciler.formats.json_fields import FieldError
from reconciler.stores.hbase.layouts.cells import Cells, HBaseCell, decode_json

FORMAT = "reconciler.hbase-beside/1"
COLUMN = b"d:beside"
"""The companion's only column, in CDAP's family."""
MOST_STATES = 4


@dataclass(frozen=True, slots=True)
class CompanionState:
    """Cells of a legacy row, by column, and their meaning (None: there is no row)."""

    cells: Cells
    stored: StoredOffset | None


@dataclass(frozen=True, slots=True)
class Companion:
    """One companion cell; ``at`` is its own timestamp."""

    nonce: str
    floor: int
    at: int
    settled: bool
    states: tuple[CompanionState, ...]

    @property
    def stamp(self) -> int:
        """The timestamp that the first state's cells have, or are to get."""
        return max(self.floor, self.at)

    @property
    def written(self) -> CompanionState | None:
        """The state of the last write, finished or intended."""
        return self.states[0] if self.states else None

    def is_in_place(self, cells: Cells) -> bool:
        """True if these cells are the last write's."""
        return self.written is not None and self.written.cells == cells


@dataclass(frozen=True, slots=True)
class Meaning:
    """A legacy row's stored offset with its anchor, as far as known; ``lag``, ``anchored_ms`` as in ``ports.Row``."""

    stored: StoredOffset
    lag: int | None = None
    anchored_ms: int | None = None


def meaning(companion: Companion | None, cells: Cells, legacy: StoredOffset) -> Meaning:
    """The meaning of a legacy row with these cells; ``legacy`` is its meaning without a companion."""
    if companion is None:
        return Meaning(legacy)
    state = next((each for each in companion.states if each.cells == cells), None)
    if state is not None and state.stored is not None:
        return Meaning(state.stored)
    return continued(companion.written.stored if companion.settled and companion.written else None, legacy)


def continued(before: StoredOffset | None, legacy: StoredOffset) -> Meaning:
    """The meaning of a row that another program wrote after this product's row ``before`` was seen in place."""
    if before is None or before.anchor is None or legacy.is_sentinel or legacy.offset < before.offset:
        return Meaning(legacy)
    numbering = Anchor(cluster_id=before.anchor.cluster_id, topic_id=before.anchor.topic_id)
    if legacy.anchor is not None:
        time_ms, time_before_ms = legacy.anchor.timestamp_ms, before.anchor.timestamp_ms
        if time_ms is not None and time_before_ms is not None and time_ms < time_before_ms:
            return Meaning(legacy)  # offsets went on and time went back: not the same numbering
        numbered = replace(legacy.anchor, cluster_id=numbering.cluster_id, topic_id=numbering.topic_id)
        return Meaning(replace(legacy, anchor=numbered))
    if before.anchor.is_bare:
        return Meaning(replace(legacy, anchor=numbering))
    return Meaning(replace(legacy, anchor=before.anchor), legacy.offset - before.offset, before.written_at_ms)


def encode(new: CompanionState, *, floor: int, nonce: str, others: Sequence[CompanionState]) -> bytes:
    """The cell of an intended write. The timestamps of ``new``'s cells are not known yet, and ignored."""
    states = [_state_fields(new, stamped=False), *(_state_fields(state) for state in others[: MOST_STATES - 1])]
    return _cell_text(nonce, floor, settled=False, states=states)


def encode_settled(companion: Companion) -> bytes:
    """The cell of a write that a reader has seen in place."""
    states = [_state_fields(state) for state in companion.states[:1]]
    return _cell_text(companion.nonce, companion.floor, settled=True, states=states)


def decode(value: bytes, at: int) -> Companion:
    """Read a cell whose own timestamp is ``at``. Raises FieldError for one that this product did not write."""
    content = decode_json(value, FORMAT)
    nonce, floor = json_fields.string(content, "nonce"), json_fields.integer(content, "floor", 0)
    states, settled = content.get("states"), content.get("settled")
    if nonce is None or floor is None or not isinstance(states, list) or not isinstance(settled, bool):
        raise FieldError(None, "lacks one of nonce, floor, settled and states")
    return Companion(nonce, floor, at, settled, tuple(_state(state, max(floor, at)) for state in states))


def _cell_text(nonce: str, floor: int, *, settled: bool, states: list[dict[str, object]]) -> bytes:
    content = {"format": FORMAT, "nonce": nonce, "floor": floor, "settled": settled, "states": states}
    return json_fields.compact(content).encode()


def _state_fields(state: CompanionState, *, stamped: bool = True) -> dict[str, object]:
    cells = {
        name.decode("latin-1"): [cell.value.hex(), cell.at if stamped else None] for name, cell in state.cells.items()
    }
    return {"cells": cells, **anchor_fields.dump_stored(state.stored)}


def _state(fields: object, stamp: int) -> CompanionState:
    if not isinstance(fields, dict) or not isinstance(cells := fields.get("cells"), dict):
        raise FieldError("states", "holds a value that is not a state")
    found = {name.encode("latin-1", "replace"): _cell(cell, stamp) for name, cell in cells.items()}
    return CompanionState(found, anchor_fields.load_stored(fields))


def _cell(fields: object, stamp: int) -> HBaseCell:
    if not isinstance(fields, list) or len(fields) != 2 or not isinstance(fields[0], str):
        raise FieldError("cells", "holds a value that is not a cell")
    at = json_fields.integer({"stamp": fields[1]}, "stamp")
    try:
        return HBaseCell(binascii.unhexlify(fields[0]), stamp if at is None else at)
    except ValueError as err:
        raise FieldError("cells", "holds a value that is not in hex") from err
