"""This product's own layout in HBase: a row for each group, topic and partition, its offset and anchor in one cell.

Row key: ``GROUP/TOPIC/PARTITION``; both names percent-encoded as UTF-8 (RFC 3986: all but letters, digits and
``_.-~``), so that no two rows share a key and each group's rows lie together; the partition in ten digits.

Cell ``o:v``, one JSON object in ASCII: ``{"format": "reconciler.hbase/1", "change": NUMBER, "nonce": TEXT, "offset",
"written_at_ms", "anchor": {"offset", "timestamp_ms", "id_base64", "fingerprint", "cluster_id", "topic_id", "names"},
"reason", "at_ms"}``. ``change`` counts the row's changes from 1. ``offset`` null: the row was deleted; its cell stays,
so that a row made anew differs from all before it. What is not known is left out.

One cell, because HBase's Thrift 1 interface has a compare-and-set for one cell only; the family keeps old versions of
it, which are the history.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from reconciler.core.anchors import StoredOffset
from reconciler.formats import anchor_fields, json_fields
from reconciler.formats.json_fields import FieldError

FORMAT = "reconciler.hbase/1"
FAMILY = b"o"
COLUMN = b"o:v"
MAX_KEY_BYTES = 32_767
"""HBase's own limit."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of a row: its number, what came of it (None: deleted), why, and when (epoch ms)."""

    change: int
    stored: StoredOffset | None
    reason: str
    at_ms: int


def row_key(group: str, topic: str, partition: int) -> bytes:
    """The row's key; at most ``MAX_KEY_BYTES`` for names that HBase can hold."""
    return prefix(group, topic) + b"%010d" % partition


def prefix(group: str, topic: str | None = None) -> bytes:
    """What the keys of a group's rows begin with, of one topic or of all."""
    names = (group,) if topic is None else (group, topic)
    return "".join(quote(name, safe="") + "/" for name in names).encode()


def parse_row_key(row: bytes) -> tuple[str, str, int] | None:
    """Group, topic and partition; None for a key that ``row_key`` never makes."""
    parts = row.split(b"/")
    if len(parts) != 3 or not parts[2].isdigit():
        return None
    try:
        group, topic = (unquote_to_bytes(part).decode() for part in parts[:2])
    except UnicodeDecodeError:
        return None
    found = group, topic, int(parts[2])
    return found if row_key(*found) == row else None


def encode(entry: Entry, nonce: str) -> bytes:
    """The cell's value; ``nonce`` tells it from what others write with the same content at the same time."""
    told = {"reason": entry.reason, "at_ms": entry.at_ms}
    content = {
        "format": FORMAT,
        "change": entry.change,
        "nonce": nonce,
        **anchor_fields.dump_stored(entry.stored),
        **told,
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode()


def decode(value: bytes) -> Entry:
    """Read a cell. Raises FieldError, and nothing else, for one that this product did not write."""
    content = json_fields.json_object(value.decode("ascii", "replace"))
    if content.get("format") != FORMAT:
        raise FieldError("format", f"is not {FORMAT!r}")
    change, at_ms = _required(content, "change"), _required(content, "at_ms")
    return Entry(change, anchor_fields.load_stored(content), json_fields.string(content, "reason") or "", at_ms)


def _required(content: Mapping[str, object], field: str) -> int:
    value = json_fields.integer(content, field)
    if value is None:
        raise FieldError(field, "is missing")
    return value
