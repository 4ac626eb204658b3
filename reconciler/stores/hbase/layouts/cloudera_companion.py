"""This product's own rows beside the rows of Cloudera's layout, in the same table.

Their keys begin with ``!reconciler:``, which no Kafka topic's name does, so that the format's readers never reach them.
They are in the family of anchors where the store has one, else in ``offsets``.

``!reconciler:TOPIC:GROUP:EPOCH_MS``: the meaning of the partitions of the row ``TOPIC:GROUP:EPOCH_MS``, a JSON object
each: ``{"offset", "written_at_ms", "anchor"}``. It holds as long as that row has the same offset. Without a family of
anchors it exists only where the row's time is not the offset's: for partitions that were carried over, or restored.

``!reconciler:TOPIC:GROUP:``, column ``claim``: ``{"format": "reconciler.hbase-claim/1", "nonce", "epoch_ms", "before",
"settled", "unseen"}``: the time of this product's last row, written or intended; whether a reader has seen that row in
place; the time of its row before that one which a reader has seen (null: none); and the times of rows in between that
other writers had claimed, and no reader had seen (left out: none).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler.core.anchors import StoredOffset
from reconciler.formats import anchor_fields, decimal_text, json_fields
from reconciler.formats.json_fields import FieldError
from reconciler.stores.hbase.layouts.cells import decode_json
from reconciler.stores.hbase.layouts.cloudera import MAX_EPOCH_MS

FORMAT = "reconciler.hbase-claim/1"
CLAIM = b"claim"


@dataclass(frozen=True, slots=True)
class Claim:
    """The row that a writer (``nonce``) writes or wrote; ``before`` is this product's row that was in place then.

    ``unseen``: rows that were claimed in between, ascending. Their writers ended, or are still about to put them.
    """

    nonce: str
    epoch_ms: int
    before: int | None
    settled: bool
    unseen: tuple[int, ...] = ()

    @property
    def last_seen(self) -> int | None:
        """The last of this product's rows that a reader is known to have seen in place."""
        return self.epoch_ms if self.settled else self.before

    @property
    def not_seen(self) -> tuple[int, ...]:
        """The rows that may have been put since, or may still be."""
        return () if self.settled else (*self.unseen, self.epoch_ms)

    def having_seen(self, epoch_ms: int) -> Claim:
        """The claim once a row has been seen in place: itself, unless that is one of those not seen yet."""
        if epoch_ms not in self.not_seen:
            return self
        if epoch_ms == self.epoch_ms:
            return replace(self, settled=True, unseen=())
        return replace(self, before=epoch_ms, unseen=tuple(each for each in self.unseen if each > epoch_ms))


def encode_claim(claim: Claim) -> bytes:
    content = {"format": FORMAT, "nonce": claim.nonce, "epoch_ms": claim.epoch_ms}
    unseen = {"unseen": claim.unseen} if claim.unseen else {}
    return json_fields.compact({**content, "before": claim.before, "settled": claim.settled, **unseen}).encode()


def decode_claim(value: bytes) -> Claim:
    """Raises FieldError, and nothing else, for a cell that this product did not write."""
    content = decode_json(value, FORMAT)
    nonce, epoch_ms = json_fields.string(content, "nonce"), json_fields.integer(content, "epoch_ms", 0, MAX_EPOCH_MS)
    settled = content.get("settled")
    if nonce is None or epoch_ms is None or not isinstance(settled, bool):
        raise FieldError(None, "lacks one of nonce, epoch_ms and settled")
    before, unseen = json_fields.integer(content, "before", 0, MAX_EPOCH_MS), content.get("unseen", [])
    if not isinstance(unseen, list):
        raise FieldError("unseen", "is not a list")
    times = [json_fields.integer({"unseen": each}, "unseen", 0, MAX_EPOCH_MS) for each in unseen]
    return Claim(nonce, epoch_ms, before, settled, tuple(json_fields.required(each, "unseen") for each in times))


def encode(stored: StoredOffset) -> bytes:
    return json_fields.compact(anchor_fields.dump_stored(stored)).encode()


def decode(value: bytes) -> StoredOffset | None:
    """Raises FieldError, and nothing else, for a cell that this product did not write."""
    return anchor_fields.load_stored(decode_json(value))


def partition_of(column: bytes) -> int | None:
    """The partition that a column is about, None for another column."""
    return decimal_text.partition_of(column.partition(b":")[2].decode("ascii", "replace"))
