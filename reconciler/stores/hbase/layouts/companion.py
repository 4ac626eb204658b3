"""What this product remembers beside a row of a layout that has no room for anchors: one cell, in a row of its own.

The legacy row stays what its own programs make of it, to the byte. Its companion row has the key ``!reconciler:`` and
behind it the legacy row's key, in the same family. Its only cell, ``FAMILY:beside``, is a JSON object in ASCII:
``{"format": "reconciler.hbase-beside/1", "nonce", "floor", "settled", "states": [{"cells": {COLUMN: [VALUE_HEX,
STAMP]}, "offset", "written_at_ms", "anchor"}]}``.

A state says what the legacy row's cells are with it, by value and timestamp, and what they mean; no cells, and
``offset`` null: no row. The first state is the last one that was written, or was to be written: where its cells' stamp
is null, they were to be written with the larger of ``floor`` and the companion cell's own timestamp. The others are
what may be there as long as that has not happened. So whatever is found in the legacy row is either one of the states,
and then its anchor belongs to it, or another program's work, and then no anchor is taken from a state for it unless it
is ``settled``: some reader saw the first state in place.

A program that went on from a settled state counts in the same numbering, and its offset is not smaller. Its own anchor
gets that numbering; without one, the state's anchor lags behind.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.formats import anchor_fields, json_fields
from reconciler.formats.json_fields import FieldError
from reconciler.stores.hbase.layouts.cells import Cell

FORMAT = "reconciler.hbase-beside/1"
ROW_PREFIX = b"!reconciler:"
"""No Kafka topic's name begins like this, nor any prefix of CDAP's."""
QUALIFIER = b"beside"
MOST_STATES = 4


@dataclass(frozen=True, slots=True)
class State:
    """Cells of a legacy row, by column, and what they mean (None: there is no row)."""

    cells: Mapping[bytes, Cell]
    stored: StoredOffset | None


@dataclass(frozen=True, slots=True)
class Companion:
    """One companion cell as it was read, ``at`` this timestamp of its own."""

    nonce: str
    floor: int
    at: int
    settled: bool
    states: tuple[State, ...]

    @property
    def stamp(self) -> int:
        """The timestamp that the first state's cells have, or get."""
        return max(self.floor, self.at)

    @property
    def written(self) -> State | None:
        """The state that was written last, or was to be."""
        return self.states[0] if self.states else None

    def state_of(self, cells: Mapping[bytes, Cell]) -> State | None:
        """The state that these cells are, None if another program wrote them."""
        return next((state for state in self.states if state.cells == cells), None)

    def is_in_place(self, cells: Mapping[bytes, Cell]) -> bool:
        """True if what was to be written is there."""
        return self.written is not None and self.written.cells == cells


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a legacy row says, with all that is known; ``lag`` as ``ports.Row.anchor_lag``."""

    stored: StoredOffset
    lag: int | None = None


def row_of(legacy_row: bytes) -> bytes:
    """The key of a legacy row's companion."""
    return ROW_PREFIX + legacy_row


def column(family: bytes) -> bytes:
    """The companion's only column."""
    return family + b":" + QUALIFIER


def meaning(companion: Companion | None, cells: Mapping[bytes, Cell], legacy: StoredOffset) -> Meaning:
    """What a legacy row means, which by itself says ``legacy``."""
    state = companion.state_of(cells) if companion is not None else None
    if state is not None and state.stored is not None:
        return Meaning(state.stored)
    before = companion.written.stored if companion is not None and companion.settled and companion.written else None
    return going_on(before, legacy)


def going_on(before: StoredOffset | None, legacy: StoredOffset) -> Meaning:
    """What a row means that another program wrote after this product's was seen in place, which said ``before``."""
    if before is None or before.anchor is None or legacy.is_sentinel or legacy.offset < before.offset:
        return Meaning(legacy)
    if legacy.anchor is not None:
        times = legacy.anchor.timestamp_ms, before.anchor.timestamp_ms
        if times[0] is not None and times[1] is not None and times[0] < times[1]:
            return Meaning(legacy)  # offsets went on and time went back: not the same numbering
        numbered = replace(legacy.anchor, cluster_id=before.anchor.cluster_id, topic_id=before.anchor.topic_id)
        return Meaning(replace(legacy, anchor=numbered))
    if before.anchor.is_bare:
        numbered = Anchor(cluster_id=before.anchor.cluster_id, topic_id=before.anchor.topic_id)
        return Meaning(replace(legacy, anchor=numbered))
    return Meaning(replace(legacy, anchor=before.anchor), legacy.offset - before.offset)


def encode(new: State, *, floor: int, nonce: str, others: Sequence[State]) -> bytes:
    """The cell of a write that is about to happen: the first state's stamps are not known yet, and not looked at."""
    states = [_state_fields(new, stamped=False), *(_state_fields(state) for state in others[: MOST_STATES - 1])]
    return _text(nonce, floor, settled=False, states=states)


def encode_settled(companion: Companion) -> bytes:
    """The cell of a write that was seen in place."""
    states = [_state_fields(state) for state in companion.states[:1]]
    return _text(companion.nonce, companion.floor, settled=True, states=states)


def decode(value: bytes, at: int) -> Companion:
    """Read a cell whose own timestamp is ``at``. Raises FieldError for one that this product did not write."""
    content = json_fields.json_object(value.decode("ascii", "replace"))
    if content.get("format") != FORMAT:
        raise FieldError("format", f"is not {FORMAT!r}")
    nonce, floor = json_fields.string(content, "nonce"), json_fields.integer(content, "floor", 0)
    states, settled = content.get("states"), content.get("settled")
    if nonce is None or floor is None or not isinstance(states, list) or not isinstance(settled, bool):
        raise FieldError(None, "lacks one of nonce, floor, settled and states")
    return Companion(nonce, floor, at, settled, tuple(_state(state, max(floor, at)) for state in states))


def _text(nonce: str, floor: int, *, settled: bool, states: list[dict[str, object]]) -> bytes:
    content = {"format": FORMAT, "nonce": nonce, "floor": floor, "settled": settled, "states": states}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode()


def _state_fields(state: State, *, stamped: bool = True) -> dict[str, object]:
    cells = {
        name.decode("latin-1"): [cell.value.hex(), cell.at if stamped else None] for name, cell in state.cells.items()
    }
    return {"cells": cells, **anchor_fields.dump_stored(state.stored)}


def _state(fields: object, stamp: int) -> State:
    if not isinstance(fields, dict) or not isinstance(cells := fields.get("cells"), dict):
        raise FieldError("states", "holds what is not a state")
    found = {name.encode("latin-1", "replace"): _cell(cell, stamp) for name, cell in cells.items()}
    return State(found, anchor_fields.load_stored(fields))


def _cell(fields: object, stamp: int) -> Cell:
    if not isinstance(fields, list) or len(fields) != 2 or not isinstance(fields[0], str):
        raise FieldError("cells", "holds what is not a cell")
    at = json_fields.integer({"stamp": fields[1]}, "stamp")
    try:
        return Cell(binascii.unhexlify(fields[0]), stamp if at is None else at)
    except ValueError as err:
        raise FieldError("cells", "holds a value that is not in hex") from err
