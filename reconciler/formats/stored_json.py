"""A stored offset with its anchor in a JSON object, for cells that people may look at."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.core.anchors import StoredOffset
from reconciler.formats import anchor_fields, json_fields
from reconciler.formats.anchor_fields import LONG
from reconciler.formats.json_fields import FieldError


def dump(stored: StoredOffset | None) -> dict[str, object]:
    """``offset``, ``written_at_ms``, ``anchor``; ``offset`` is null for None, and what is not known is left out."""
    fields: dict[str, object] = {"offset": None}
    if stored is not None:
        fields["offset"] = stored.offset
        if stored.written_at_ms is not None:
            fields["written_at_ms"] = stored.written_at_ms
        if stored.anchor is not None:
            fields["anchor"] = anchor_fields.known(anchor_fields.dump(stored.anchor, LONG))
    return fields


def load(fields: Mapping[str, object]) -> StoredOffset | None:
    """What ``dump`` wrote; other keys are not looked at. Raises FieldError."""
    offset = json_fields.integer(fields, "offset")
    if offset is None:
        return None
    anchor = fields.get("anchor")
    if anchor is not None and not isinstance(anchor, dict):
        raise FieldError("anchor", "is not a JSON object")
    known = None if anchor is None else anchor_fields.load(anchor, LONG)
    return StoredOffset(offset, known, json_fields.integer(fields, "written_at_ms"))
