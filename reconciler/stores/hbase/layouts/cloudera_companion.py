"""This product's own rows beside the rows of Cloudera's layout, in the same table.

Their keys begin with ``!reconciler:``, which no Kafka topic's name does, so that the format's readers never reach them.
They are in the family of anchors where the store has one, else in ``offsets``.

``!reconciler:TOPIC:GROUP:EPOCH_MS``: the meaning of the partitions of the row ``TOPIC:GROUP:EPOCH_MS``, a JSON object
each: ``{"offset", "written_at_ms", "anchor"}``. It holds as long as that row has the same offset. Without a family of
anchors it exists only where the row's time is not the offset's: for partitions that were carried over, or restored.

``!reconciler:TOPIC:GROUP:``, column ``claim``: ``{"format": "reconciler.hbase-claim/1", "nonce", "epoch_ms", "before",
"settled"}``: the time of this product's last row, written or intended; whether a reader has seen that row in place; and
the time of its row before that one which a reader has seen (null: none).
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.core.anchors import StoredOffset
from reconciler.formats import anchor_fields, decimal_text, json_fields
from reconciler.formats.json_fields import FieldError
from reconciler.stores.hbase.layouts.cells import decode_json
from reconciler.stores.hbase.layouts.cloudera import MAX_EPOCH_MS

FORMAT = "reconciler.hbase-claim/1"
CLAIM = b"claim"


@dataclass(frozen=True, slots=True)
class Claim:
    """The row that a writer (``nonce``) writes or wrote; ``before`` is this product's row that was in place then."""

    nonce: str
    epoch_ms: int
    before: int | None
    settled: bool

    @property
    def last_seen(self) -> int | None:
        """The last of this product's rows that a reader is known to have seen in place."""
        return self.epoch_ms if self.settled else self.before


def encode_claim(claim: Claim) -> bytes:
    content = {"format": FORMAT, "nonce": claim.nonce, "epoch_ms": claim.epoch_ms}
    return json_fields.compact({**content, "before": claim.before, "settled": claim.settled}).encode()


def decode_claim(value: bytes) -> Claim:
    """Raises FieldError, and nothing else, for a cell that this product did not write."""
    content = decode_json(value, FORMAT)
    nonce, epoch_ms = json_fields.string(content, "nonce"), json_fields.integer(content, "epoch_ms", 0, MAX_EPOCH_MS)
    settled = content.get("settled")
    if nonce is None or epoch_ms is None or not isinstance(settled, bool):
        raise FieldError(None, "lacks one of nonce, epoch_ms and settled")
    return Claim(nonce, epoch_ms, json_fields.integer(content, "before", 0, MAX_EPOCH_MS), settled)


def encode(stored: StoredOffset) -> bytes:
    return json_fields.compact(anchor_fields.dump_stored(stored)).encode()


def decode(value: bytes) -> StoredOffset | None:
    """Raises FieldError, and nothing else, for a cell that this product did not write."""
    return anchor_fields.load_stored(decode_json(value))


def partition_of(column: bytes) -> int | None:
    """The partition that a column is about, None for another column."""
    return decimal_text.partition_of(column.partition(b":")[2].decode("ascii", "replace"))
