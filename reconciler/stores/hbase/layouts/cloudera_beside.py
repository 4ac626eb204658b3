"""What this product remembers beside the rows of Cloudera's layout, in rows of its own in the same table.

Their keys begin with ``!reconciler:``, which no Kafka topic's name does, so that no reader of the format meets them.
They are in the family of anchors where there is one, else in ``offsets``.

``!reconciler:TOPIC:GROUP:EPOCH_MS``: what the partitions of the row ``TOPIC:GROUP:EPOCH_MS`` mean, a JSON object each:
``{"offset", "written_at_ms", "anchor"}``. It holds for an offset that is still in that row. Without a family of anchors
it is there only where the row's time is not the offset's: for partitions that were carried over, or put back.

``!reconciler:TOPIC:GROUP:``, column ``claim``: ``{"format": "reconciler.hbase-claim/1", "nonce", "epoch_ms", "before",
"settled"}``: the last row that was written, or was to be written; whether a reader saw it in place; and the one before
that was seen (null: none).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from reconciler.core.anchors import StoredOffset
from reconciler.formats import anchor_fields, decimal_text, json_fields
from reconciler.formats.json_fields import FieldError
from reconciler.stores.hbase.layouts.companion import ROW_PREFIX

FORMAT = "reconciler.hbase-claim/1"
CLAIM = b"claim"


@dataclass(frozen=True, slots=True)
class Claim:
    """Who writes, or wrote, which row; ``before`` is the row of ours that was in place before it."""

    nonce: str
    epoch_ms: int
    before: int | None
    settled: bool

    @property
    def last_seen(self) -> int | None:
        """The last of this product's rows that is known to have been in place."""
        return self.epoch_ms if self.settled else self.before


def row_of(legacy_row: bytes) -> bytes:
    """The key of the row beside a legacy row, or, of the part of its key that ends before the time, of its claim."""
    return ROW_PREFIX + legacy_row


def encode_claim(claim: Claim) -> bytes:
    content = {"format": FORMAT, "nonce": claim.nonce, "epoch_ms": claim.epoch_ms}
    more = {"before": claim.before, "settled": claim.settled}
    return json.dumps({**content, **more}, separators=(",", ":"), ensure_ascii=True).encode()


def decode_claim(value: bytes) -> Claim:
    """Raises FieldError, and nothing else, for what this product did not write."""
    content = json_fields.json_object(value.decode("ascii", "replace"))
    if content.get("format") != FORMAT:
        raise FieldError("format", f"is not {FORMAT!r}")
    nonce, epoch_ms = json_fields.string(content, "nonce"), json_fields.integer(content, "epoch_ms", 0)
    settled = content.get("settled")
    if nonce is None or epoch_ms is None or not isinstance(settled, bool):
        raise FieldError(None, "lacks one of nonce, epoch_ms and settled")
    return Claim(nonce, epoch_ms, json_fields.integer(content, "before", 0), settled)


def encode(stored: StoredOffset) -> bytes:
    return json.dumps(anchor_fields.dump_stored(stored), separators=(",", ":"), ensure_ascii=True).encode()


def decode(value: bytes) -> StoredOffset | None:
    """Raises FieldError, and nothing else, for what this product did not write."""
    return anchor_fields.load_stored(json_fields.json_object(value.decode("ascii", "replace")))


def partition_of(column: bytes) -> int | None:
    """The partition that a column is about, None for another column."""
    return decimal_text.partition_of(column.partition(b":")[2].decode("ascii", "replace"))
