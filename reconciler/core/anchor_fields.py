"""Anchors and stored offsets as fields of a JSON object. Formats that hold anchors differ in the fields' names."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.core import json_fields
from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.json_fields import FieldError


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The names of an anchor's fields in one format."""

    offset: str
    timestamp_ms: str
    id: str
    fingerprint: str
    cluster_id: str
    topic_id: str
    names: str

    @property
    def all(self) -> frozenset[str]:
        return frozenset(getattr(self, field) for field in self.__dataclass_fields__)


LONG = FieldNames("offset", "timestamp_ms", "id_base64", "fingerprint", "cluster_id", "topic_id", "names")
"""The names in lines that people read."""
SHORT = FieldNames("o", "t", "i", "f", "c", "p", "n")
"""The names where there is little space."""


def dump(anchor: Anchor, called: FieldNames) -> dict[str, object]:
    """All fields, None for unknown ones. ``names`` is left out where it is the default (``last``)."""
    fields: dict[str, object] = {
        called.offset: anchor.offset,
        called.timestamp_ms: anchor.timestamp_ms,
        called.id: None if anchor.id is None else base64.b64encode(anchor.id).decode(),
        called.fingerprint: anchor.fingerprint,
        called.cluster_id: anchor.cluster_id,
        called.topic_id: anchor.topic_id,
    }
    if anchor.names is not Names.LAST:
        fields[called.names] = anchor.names.value
    return fields


def known(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields without those that are None."""
    return {key: value for key, value in fields.items() if value is not None}


def load(fields: Mapping[str, object], called: FieldNames) -> Anchor:
    """Read the anchor; keys that are not its fields are ignored.

    Raises FieldError, with ``field`` None for an anchor that contradicts itself.
    """
    try:
        return Anchor(
            offset=json_fields.integer(fields, called.offset),
            timestamp_ms=json_fields.integer(fields, called.timestamp_ms),
            id=json_fields.base64_bytes(fields, called.id),
            fingerprint=json_fields.fingerprint_hex(fields, called.fingerprint),
            cluster_id=json_fields.string(fields, called.cluster_id),
            topic_id=json_fields.string(fields, called.topic_id),
            names=json_fields.names(fields, called.names),
        )
    except FieldError:
        raise
    except ValueError as err:
        raise FieldError(None, f"contradicts itself: {err}") from err


def load_optional(found: object) -> Anchor | None:
    """The anchor under ``anchor`` of a line that people read, or None for null. Unknown keys are faults.

    Raises FieldError that names the field within the line.
    """
    if found is None:
        return None
    if not isinstance(found, dict):
        raise FieldError("anchor", "is not a JSON object")
    try:
        json_fields.no_unknown(found, LONG.all)
        return load(found, LONG)
    except FieldError as err:
        raise FieldError(f"anchor.{err.field}" if err.field else "anchor", err.problem) from err


def dump_stored(stored: StoredOffset | None) -> dict[str, object]:
    """``offset``, ``written_at_ms``, ``anchor``; ``offset`` is null for None, and unknown values are left out."""
    fields: dict[str, object] = {"offset": None}
    if stored is not None:
        fields["offset"] = stored.offset
        if stored.written_at_ms is not None:
            fields["written_at_ms"] = stored.written_at_ms
        if stored.anchor is not None:
            fields["anchor"] = known(dump(stored.anchor, LONG))
    return fields


def load_stored(fields: Mapping[str, object]) -> StoredOffset | None:
    """The stored offset that ``dump_stored`` wrote; other keys are ignored. Raises FieldError."""
    offset = json_fields.integer(fields, "offset")
    if offset is None:
        return None
    anchor = fields.get("anchor")
    if anchor is not None and not isinstance(anchor, dict):
        raise FieldError("anchor", "is not a JSON object")
    found = None if anchor is None else load(anchor, LONG)
    return StoredOffset(offset, found, json_fields.integer(fields, "written_at_ms"))
