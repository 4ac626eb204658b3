"""Anchors and stored offsets as fields of a JSON object, and as a short JSON text for a store's one string.

Formats that hold anchors differ in the fields' names.

The short text (commit metadata), version 1: ``{"v":1,"w":WRITTEN_AT_MS,"a":ANCHOR}``; an anchor is ``{"o":OFFSET,
"t":TIMESTAMP_MS,"i":ID_BASE64,"f":FINGERPRINT,"c":CLUSTER_ID,"p":TOPIC_ID,"n":NAMES}``. Unknown values are left out,
and so is ``n`` where it is ``last``. Readers ignore keys that they do not know. The text is ASCII.

It has at most ``MAX_BYTES``, far below the 4096 bytes that a broker accepts by default
(``offset.metadata.max.bytes``). An id that is too long is left out: the fingerprint names the record as well. An
anchor with such an id and no fingerprint keeps only its timestamp.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace

from reconciler.core import json_fields
from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.errors import ConfigError
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


def without_none(fields: Mapping[str, object]) -> dict[str, object]:
    """Only the fields that have a value."""
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
            fields["anchor"] = without_none(dump(stored.anchor, LONG))
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


VERSION = 1
MAX_BYTES = 1024
_BEGINS = '{"v":'
MAX_READ_CHARS = 65536
"""Longer texts are not parsed: no broker holds them."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The content of a text. Without an anchor, ``reason`` says why, as the end of a sentence."""

    anchor: Anchor | None = None
    written_at_ms: int | None = None
    reason: str | None = None
    damaged: bool = False
    """The text is of this format, and not as this product writes it."""


def encode(stored: StoredOffset) -> str:
    """The anchor and the time of writing as ASCII text of at most ``MAX_BYTES``; without the offset itself.

    Raises ConfigError where the cluster's or topic's id alone is too long (no Kafka cluster has such ids).
    """
    text = _text(stored, with_id=True)
    if len(text) > MAX_BYTES:
        text = _text(stored, with_id=False)
    if len(text) > MAX_BYTES:
        raise ConfigError(
            f"An anchor of {len(text)} bytes does not fit into commit metadata, even without its id.",
            hint="Its cluster id or topic id is not one that Kafka gives: correct it at the anchor's origin.",
        )
    return text


def decode(text: str | None) -> Decoded:
    """Read any metadata, also other programs'. Never raises: metadata of another kind gives a reason instead."""
    if not text:
        return Decoded(reason="there is no metadata beside the offset")
    if len(text) > MAX_READ_CHARS:
        return Decoded(reason=f"the metadata is longer than {MAX_READ_CHARS} characters")
    try:
        return _decode(json_fields.json_object(text))
    except FieldError as err:
        where = f"field {err.field!r} of the metadata" if err.field else "the metadata"
        return Decoded(reason=f"{where} {err.problem}", damaged=text.startswith(_BEGINS))


def _text(stored: StoredOffset, *, with_id: bool) -> str:
    content: dict[str, object] = {"v": VERSION}
    if stored.written_at_ms is not None:
        content["w"] = stored.written_at_ms
    if stored.anchor is not None:
        kept = stored.anchor if with_id else replace(stored.anchor, id=None)
        content["a"] = without_none(dump(kept, SHORT))
    return json_fields.compact(content)


def _decode(content: Mapping[str, object]) -> Decoded:
    version = content.get("v")
    if version is None:
        return Decoded(reason="the metadata is JSON of another program")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise FieldError("v", "is not a version number")
    if version > VERSION:
        return Decoded(reason=f"the metadata has format version {version}, of a newer release")
    written_at_ms = json_fields.integer(content, "w")
    fields = content.get("a")
    if fields is None:
        return Decoded(written_at_ms=written_at_ms, reason="the row was written without an anchor")
    if not isinstance(fields, dict):
        raise FieldError("a", "is not a JSON object")
    try:
        return Decoded(anchor=load(fields, SHORT), written_at_ms=written_at_ms)
    except FieldError as err:
        raise FieldError(err.field or "a", err.problem) from err
