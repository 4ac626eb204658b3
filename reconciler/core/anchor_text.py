"""Anchors as a short JSON text, for stores that keep one string beside an offset (commit metadata).

Format, version 1: ``{"v":1,"w":WRITTEN_AT_MS,"a":ANCHOR}``; an anchor is ``{"o":OFFSET,"t":TIMESTAMP_MS,
"i":ID_BASE64,"f":FINGERPRINT,"c":CLUSTER_ID,"p":TOPIC_ID,"n":NAMES}``. Unknown values are left out, and so
is ``n`` where it is ``last``. Readers ignore keys that they do not know. The text is ASCII.

The text stays within ``MAX_BYTES``, far below the 4096 bytes that a broker accepts by default
(``offset.metadata.max.bytes``). An id that is too long is left out; the fingerprint names the record as well. An
anchor with such an id and no fingerprint keeps only its timestamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reconciler.core import anchor_fields, json_fields
from reconciler.core.anchor_fields import SHORT
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.core.json_fields import FieldError

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
        content["a"] = anchor_fields.known(anchor_fields.dump(kept, SHORT))
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
        return Decoded(anchor=anchor_fields.load(fields, SHORT), written_at_ms=written_at_ms)
    except FieldError as err:
        raise FieldError(err.field or "a", err.problem) from err
