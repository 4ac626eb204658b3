"""Chooses the record of the source that an anchor names, for a stored offset without one.

The rule is the last record before the stored offset: the last one processed, whatever gap a transaction marker or
compaction left after it. Compaction may have removed records in that gap which the destination still holds; then the
anchor is kept as made for the offset right after its record, so that the gap counts as lag, and so as replay.

If no record is left before it, the record *at* the stored offset serves: it was not processed, and every record before
it was (``Names.NEXT``). It must be at that very offset, or in a log that is not compacted: else records between the two
that only the destination still holds would be skipped. For the same reason no record is named if retention has passed
the stored offset.

At offset 0 of a log without a record there, no record was processed and none can be named. Then the numbering alone is
kept (``Anchor.is_bare``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from reconciler.core.anchors import Anchor, Identity, Names, Record, StoredOffset
from reconciler.core.errors import NotRead
from reconciler.core.probes import Search, ask_edges, ask_read
from reconciler.core.scan import last_before


@dataclass(frozen=True, slots=True)
class TrackedOffset:
    """One stored offset in a partition of the source.

    ``compacted``: whether compaction may have removed records; None (not known) counts as yes.
    """

    offset: int
    cluster_id: str
    topic_id: str | None
    compacted: bool | None


@dataclass(frozen=True, slots=True)
class LookbackResult:
    """The anchored offset to keep, or ``why`` there is none, as the end of a sentence."""

    kept: StoredOffset | None
    why: str = ""


def look_back(place: TrackedOffset, identity: Identity) -> Search[LookbackResult]:
    """Find the record that an anchor for this place names."""
    try:
        return (yield from _look_back(place, identity))
    except NotRead as error:
        return LookbackResult(None, str(error).rstrip("."))


def last_in(begin: int, end: int) -> Callable[[], Search[Record | None]]:
    """The search for the last record from ``begin`` to before ``end``; one that starts over asks for its edges."""
    started = False

    def search() -> Search[Record | None]:
        nonlocal started
        start, again = begin, started
        started = True
        if again:
            edges = yield from ask_edges()
            if edges.end < end:
                return None  # the log was cut: its numbers are no longer those of the batch
            start = max(start, edges.start)
        return (yield from last_before(end, start))

    return search


def _look_back(place: TrackedOffset, identity: Identity) -> Search[LookbackResult]:
    edges = yield from ask_edges()
    offset, start, end = place.offset, edges.start, edges.end
    if offset > end:
        return LookbackResult(None, f"the source's log ends at {end}, before the stored offset")
    last = yield from last_before(offset, start)
    if last is not None:
        made_for = offset if place.compacted is False else last.offset + 1
        return LookbackResult(StoredOffset(made_for, _anchor(place, identity, last)))
    if offset < start:
        return LookbackResult(None, f"retention has removed the records around it: the source's log begins at {start}")
    if offset < end:
        chunk = yield from ask_read(offset, 1)
        following = chunk.records[0] if chunk.records else None
        if following is not None and (following.offset == offset or place.compacted is False):
            anchor = replace(_anchor(place, identity, following), names=Names.NEXT)
            return LookbackResult(StoredOffset(offset, anchor))
    if offset == 0:
        numbering = Anchor(cluster_id=place.cluster_id, topic_id=place.topic_id)
        return LookbackResult(StoredOffset(0, numbering))
    return LookbackResult(None, "no record is left in the source's log before it, nor at it")


def _anchor(place: TrackedOffset, identity: Identity, record: Record) -> Anchor:
    return identity.anchor_of(record, cluster_id=place.cluster_id, topic_id=place.topic_id)
