"""This product's own layout in HBase: a row for each group, topic and partition, its offset and anchor in one cell.

Row key: ``GROUP/TOPIC/PARTITION``; both names percent-encoded as UTF-8 (RFC 3986: all but letters, digits and
``_.-~``), so that no two rows share a key and each group's rows lie together; the partition in ten digits.

Cell ``o:v``, one JSON object in ASCII: ``{"format": "reconciler.hbase/1", "change": NUMBER, "nonce": TEXT, "offset",
"written_at_ms", "anchor": {"offset", "timestamp_ms", "id_base64", "fingerprint", "cluster_id", "topic_id", "names"},
"stay", "reason", "at_ms"}``. ``change`` counts the row's changes from 1. Unknown values are left out.

There is one cell because HBase's Thrift 1 interface has a compare-and-set for one cell only.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from reconciler.core import anchor_fields, json_fields
from reconciler.core.anchors import StoredOffset, TopicPartition
from reconciler.core.json_fields import FieldError, required
from reconciler.core.text import whole_number

FORMAT = "reconciler.hbase/1"
FAMILY = b"o"
COLUMN = b"o:v"
MAX_KEY_BYTES = 32_767
"""HBase's own limit."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change of a row: its number, its result, its reason, its time (epoch ms) and its stay."""

    change: int
    stored: StoredOffset
    reason: str
    at_ms: int
    stay: int | None = None


def row_key(group: str, topic: str, partition: int) -> bytes:
    """The row's key. HBase takes at most ``MAX_KEY_BYTES``; the caller checks."""
    return prefix(group, topic) + b"%010d" % partition


def prefix(group: str, topic: str | None = None) -> bytes:
    """The common beginning of the keys of a group's rows, of one topic or of all."""
    names = (group,) if topic is None else (group, topic)
    return "".join(quote(name, safe="") + "/" for name in names).encode()


def parse_row_key(row: bytes) -> tuple[str, TopicPartition] | None:
    """The group, and the topic's partition; None for a key that ``row_key`` never makes."""
    parts = row.split(b"/")
    if len(parts) != 3 or (number := whole_number(parts[2])) is None:
        return None
    try:
        group, topic = (unquote_to_bytes(part).decode() for part in parts[:2])
    except UnicodeDecodeError:
        return None
    key = TopicPartition(topic, number)
    return (group, key) if row_key(group, key.topic, key.partition) == row else None


def encode(entry: RowChange, nonce: str) -> bytes:
    """The cell's value; ``nonce`` distinguishes it from other writers' values of the same content and time."""
    content = {"format": FORMAT, "change": entry.change, "nonce": nonce, **anchor_fields.dump_stored(entry.stored)}
    stay = {} if entry.stay is None else {"stay": entry.stay}
    return json_fields.compact({**content, **stay, "reason": entry.reason, "at_ms": entry.at_ms}).encode()


def decode(value: bytes) -> RowChange:
    """Read a cell. Raises FieldError, and nothing else, for one that this product did not write."""
    content = json_fields.json_object(value.decode("ascii", "replace"))
    if content.get("format") != FORMAT:
        raise FieldError("format", f"is not {FORMAT!r}")
    change = required(json_fields.integer(content, "change"), "change")
    at_ms = required(json_fields.integer(content, "at_ms"), "at_ms")
    stored, reason = anchor_fields.load_stored(content), json_fields.string(content, "reason") or ""
    if stored is None:
        raise FieldError("offset", "is missing")
    return RowChange(change, stored, reason, at_ms, json_fields.integer(content, "stay", 1))
