"""Records whose schema has another id here: a mirror between two schema registries changes it in the frame.

An anchor that was recorded with its frame is proven all the same: with the right id in the frame, the record has the
anchor's fingerprint. A registry counts its ids from 1, so they can be tried.
"""

from __future__ import annotations

from reconciler.core.anchors import FRAME_BYTES, Record, fingerprint, is_framed

MOST_SCHEMAS = 2**16
MOST_HASHED = 2**28
"""Bytes that are hashed for one record: some 0.3 s."""
MOST_RECORDS = 16
"""Records that are tried for one anchor: with ids that are not unique, many may have the anchor's id and time."""


class Renumbered:
    """Tells whether a record with one frame had the fingerprint ``wanted`` under another schema id."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._known: dict[int, bool] = {}

    def had(self, record: Record) -> bool:
        known = self._known.get(record.offset)
        if known is None:
            known = len(self._known) < MOST_RECORDS and self._is_under_some_id(record)
            self._known[record.offset] = known
        return known

    def _is_under_some_id(self, record: Record) -> bool:
        key, value = record.key, record.value
        if is_framed(key) == is_framed(value):
            return False
        ids = range(min(MOST_SCHEMAS, MOST_HASHED // (len(key or b"") + len(value or b""))))
        frames = (b"\0" + schema.to_bytes(4, "big") for schema in ids)
        if value is not None and is_framed(value):
            rest = value[FRAME_BYTES:]
            return any(fingerprint(key, frame + rest) == self._wanted for frame in frames)
        rest = b"" if key is None else key[FRAME_BYTES:]
        return any(fingerprint(frame + rest, value) == self._wanted for frame in frames)
