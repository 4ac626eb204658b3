"""The anchor in a znode beside an offset, and whether the two belong together.

Format: the JSON of ``anchor_json`` with two more keys at its top, ``{"v":1,"w":…,"a":…,"s":STORED,"z":ZXID}``.
``s`` is the offset that the anchor was written for. ``z`` is there only where the anchor was put beside an offset that
was left as it was: the ``mzxid`` of that znode. An empty znode says that there was an anchor once.

ZooKeeper numbers all its changes (zxid), and the znodes that one transaction changes have one ``mzxid``. So:

- A1  In a znode of its own, an offset and its anchor belong together exactly if their ``mzxid`` are equal, or the
      anchor's ``z`` is the offset's. Whoever writes the offset alone (the job) parts them, even with the same number.
- A2  In a znode shared by partitions, they belong together if ``s`` is the offset: a change of another partition
      changes the ``mzxid``, too.
- A3  An anchor that does not belong to the offset still names a processed record, if it names one by its number
      (``names`` last). It lags by the difference of the numbers. Any other says nothing any more.
- A4  The time of writing is ``w`` for a pair, else the znode's own time of change: the job's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.formats import anchor_text, json_fields
from reconciler.formats.json_fields import FieldError


@dataclass(frozen=True, slots=True)
class Znode:
    """One znode as the server describes it: its bytes, data version, zxids of creation and of change, epoch ms."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    mtime_ms: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What the znode beside an offset says. Without an anchor, ``reason`` says why, as the end of a sentence."""

    anchor: Anchor | None = None
    written_at_ms: int | None = None
    offset: int | None = None
    seen_zxid: int | None = None
    reason: str | None = None


def encode(stored: StoredOffset, *, seen_zxid: int | None = None) -> bytes:
    """The znode's bytes for ``stored``. Raises ConfigError as ``anchor_json.encode`` does."""
    content = json.loads(anchor_text.encode(stored))
    content["s"] = stored.offset
    if seen_zxid is not None:
        content["z"] = seen_zxid
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode()


def decode(data: bytes) -> Kept:
    """Read any znode's bytes. Never raises: what is not ours yields a reason instead."""
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        return Kept(reason="the anchor's znode does not hold text")
    found = anchor_text.decode(text)
    try:
        content = json_fields.json_object(text)
        offset, seen = json_fields.integer(content, "s"), json_fields.integer(content, "z")
    except FieldError as err:
        return Kept(reason=found.reason or f"field {err.field!r} of the anchor's znode {err.problem}")
    return Kept(found.anchor, found.written_at_ms, offset, seen, found.reason)


def belongs(offset: int, node: Znode, beside: Znode, kept: Kept, *, shared: bool) -> bool:
    """A1 and A2."""
    if shared:
        return kept.offset == offset
    return node.mzxid in (beside.mzxid, kept.seen_zxid)


NOTHING_BESIDE = "nothing is beside it; a job that writes bare offsets needs anchors=apart in the address, and track"


@dataclass(frozen=True, slots=True)
class Pair:
    """A stored offset with its anchor, as far as the two say the same.

    ``lag``: how far the anchor lags, None where the two belong together or there is no anchor. ``note``: why there is
    no anchor, as the end of a sentence, where that is not plain.
    """

    stored: StoredOffset
    lag: int | None = None
    note: str = ""


def pair(offset: int, node: Znode, beside: Znode | None, *, shared: bool) -> Pair:
    """What ``offset``, as ``node`` says, and the znode beside it mean together: A1 to A4."""
    if beside is None or not beside.data:
        return Pair(StoredOffset(offset, None, node.mtime_ms), note=NOTHING_BESIDE)
    kept = decode(beside.data)
    if belongs(offset, node, beside, kept, shared=shared):
        return Pair(StoredOffset(offset, kept.anchor, kept.written_at_ms), note=_without(kept))
    anchor = kept.anchor
    bare = StoredOffset(offset, None, node.mtime_ms)
    if anchor is None:
        return Pair(bare, note=_without(kept))
    if anchor.offset is None or anchor.names is not Names.LAST:
        return Pair(bare, note="the offset was written without one, after one that does not say how far it lags")
    return Pair(StoredOffset(offset, anchor, node.mtime_ms), offset - anchor.offset - 1)


def _without(kept: Kept) -> str:
    """A znode of ours that holds a time and no anchor is nothing to wonder about."""
    return "" if kept.anchor is not None or kept.offset is not None else kept.reason or ""
