"""The anchor in a znode beside an offset, and whether the two belong together.

Format: the JSON of ``formats.anchor_text`` with two more top-level keys, ``{"v":1,"w":…,"a":…,"s":STORED,"z":ZXID}``.
``s`` is the offset that the anchor was written for. ``z`` exists only where the anchor was written beside an offset
that stayed unchanged: the ``mzxid`` of that offset's znode. An empty znode is what remains of a deleted row.

ZooKeeper numbers all its changes (zxid), and all znodes that one transaction changes get the same ``mzxid``. So:

- A1  In a znode of its own, an offset and its anchor belong together exactly if their ``mzxid`` are equal, or the
      anchor's ``z`` is the offset's. A job that writes the offset alone separates them, even with the same number.
- A2  In a znode shared by partitions, they belong together if ``s`` is the offset: a change of another partition
      changes the ``mzxid``, too.
- A3  An anchor that does not belong to the offset still names a processed record, if it names one by its number
      (``names`` last). It lags by the difference of the numbers. Any other anchor is useless then.
- A4  The time of writing is ``w`` for a pair, else the znode's own time of change: the job's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.formats import anchor_text, json_fields
from reconciler.formats.json_fields import FieldError

NOTHING_BESIDE = (
    "nothing is beside it; for a job that writes bare offsets let track keep anchors in the [anchors] store (with one "
    "topic name on both sides, that needs anchors=apart in the address)"
)


@dataclass(frozen=True, slots=True)
class Znode:
    """One znode as the server describes it: its bytes, data version, zxids of creation and of change, epoch ms."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    mtime_ms: int


@dataclass(frozen=True, slots=True)
class AnchorNode:
    """The content of the znode beside an offset. Without an anchor, ``reason`` says why, as the end of a sentence."""

    anchor: Anchor | None = None
    written_at_ms: int | None = None
    offset: int | None = None
    seen_zxid: int | None = None
    reason: str | None = None


def encode(stored: StoredOffset, *, seen_zxid: int | None = None) -> bytes:
    """The znode's bytes for ``stored``. Raises ConfigError as ``anchor_text.encode`` does."""
    content = json.loads(anchor_text.encode(stored))
    content["s"] = stored.offset
    if seen_zxid is not None:
        content["z"] = seen_zxid
    return json_fields.compact(content).encode()


def decode(data: bytes) -> AnchorNode:
    """Read any znode's bytes. Never raises: another program's bytes yield a reason instead of an anchor."""
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        return AnchorNode(reason="the anchor's znode does not hold text")
    found = anchor_text.decode(text)
    try:
        content = json_fields.json_object(text)
        offset, seen = json_fields.integer(content, "s"), json_fields.integer(content, "z")
    except FieldError as err:
        return AnchorNode(reason=found.reason or f"field {err.field!r} of the anchor's znode {err.problem}")
    return AnchorNode(found.anchor, found.written_at_ms, offset, seen, found.reason)


@dataclass(frozen=True, slots=True)
class PairedOffset:
    """A stored offset with its anchor, if there is a usable one.

    ``lag``: how far the anchor lags, None where the two belong together or there is no anchor. ``note``: why there is
    no anchor, as the end of a sentence, where that needs an explanation. ``anchored_ms``: as ``ports.Row.anchored_ms``.
    """

    stored: StoredOffset
    lag: int | None = None
    note: str = ""
    anchored_ms: int | None = None


def pair(offset: int, node: Znode, beside: Znode | None, *, shared: bool) -> PairedOffset:
    """The meaning of ``offset``, read from ``node``, and of the znode beside it: A1 to A4."""
    bare = StoredOffset(offset, None, node.mtime_ms)
    if beside is None or not beside.data:
        return PairedOffset(bare, note=NOTHING_BESIDE)
    content = decode(beside.data)
    anchor = content.anchor
    # A time without an anchor is ordinary, and needs no note.
    note = "" if anchor is not None or content.offset is not None else content.reason or ""
    belong = content.offset == offset if shared else node.mzxid in (beside.mzxid, content.seen_zxid)
    if belong:
        return PairedOffset(StoredOffset(offset, anchor, content.written_at_ms), note=note)
    if anchor is None:
        return PairedOffset(bare, note=note)
    if anchor.offset is None or anchor.names is not Names.LAST:
        return PairedOffset(
            bare, note="the offset was written without one, after one that does not say how far it lags"
        )
    lag = offset - anchor.offset - 1
    return PairedOffset(replace(bare, anchor=anchor), lag, anchored_ms=content.written_at_ms)
