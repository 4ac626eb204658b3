"""Which anchor belongs to which stored offset, if the two are kept in different stores. Pure.

A row may have two kept anchors: the *main* one, and one *aside* that an interrupted write left (see ``store``). Each
was made for one stored offset, its own ``StoredOffset.offset``, and belongs to a row only by these rules.

By offset, for rows that hold only a number (``by_offset``):

- An anchor made for the stored offset itself: the pair is exact. The anchor names the last record before that offset,
  even if a gap separates the two numbers.
- Made for an older offset: it lags. The job had processed the anchor's record when it stored the older offset, and has
  continued since; the difference bounds how many records it has processed after the anchor. One that names no record
  (at a log's start) still says whose number the stored offset is.
- Made for a later offset: the stored offset has been set back since, and the job may not have processed the anchor's
  record from there. The two do not belong together.
- An anchor aside belongs to a row in an exact pair. Beside a main one of another cluster, an offset that is neither's
  may be in either numbering: then the one that was written first counts, if it was made for an older offset, and says
  nothing of the numbering (``_of_either``). Its record was processed whichever of the two was in place.
- Where the store says whose number the row is (``Row.numbering``: a copied checkpoint), an anchor of another cluster
  does not belong to it: it was made for the original, under the same name. The exception is an exact pair that was
  written later: then the query has moved on to that cluster, where its offsets were right as they were.

By cluster, for a group's commits at a cluster that a mirror syncs them to (``by_cluster``): the row's number is always
that cluster's, while the rows that ``track`` copied from the source's group have the source's numbers. So an anchor of
this cluster pairs by offset, and an anchor of another cluster is a copied row, which has its own offset. A later number
than an anchor of this cluster was made for need not be the job's: a mirror may have put it over a correction. A check
finds out (``failover.unanchored``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from reconciler.core.anchors import Anchor, StoredOffset, real_topic_id
from reconciler.ports import Row, TopicPartition
from reconciler.stores.common import is_later, noted


@dataclass(frozen=True, slots=True)
class AnchorRows:
    """The rows of the anchor store for one row of the job's store."""

    main: Row | None = None
    aside: Row | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for row in (self.main, self.aside) if row is not None)


Pairing = Callable[[TopicPartition, Row | None, AnchorRows], Row | None]
"""Combines a row of the job's store (None: it has none) and the anchors kept for it into one row."""


def token(own: Row | None, kept: AnchorRows) -> str:
    """A version that changes whenever one of the rows changes."""
    return json.dumps([row and row.version for row in (own, kept.main, kept.aside)], separators=(",", ":"))


def by_offset(key: TopicPartition, own: Row | None, kept: AnchorRows) -> Row | None:
    """A bare row with the anchor that belongs to it, by the offset that the anchor was made for."""
    return None if own is None else _joined(own, kept, anchor_of(own, kept))


def anchor_of(own: Row, kept: AnchorRows) -> PairedAnchor:
    """The kept anchor that belongs to a bare row."""
    offset, numbers = own.stored.offset, own.numbering
    if numbers is None:
        return pair(offset, kept)
    for row in kept.rows:
        if row.stored.offset == offset and (_is_of(row, numbers.cluster_id) or _is_after(row, numbers.since_ms)):
            return PairedAnchor(row.stored.anchor, written_at_ms=row.stored.written_at_ms)
    main = kept.main if _is_of(kept.main, numbers.cluster_id) else None
    first = None if numbers.first is None else Row(own.key, numbers.first, "")
    rows = [row for row in (main, first) if row is not None]
    if not rows:
        return PairedAnchor(why="the anchors kept under this name are another cluster's" if kept.rows else "")
    fitting = [row for row in rows if row.stored.offset <= offset]
    return pair(offset, AnchorRows(max(fitting or rows, key=lambda row: row.stored.offset)))


def lacks_anchor(row: Row) -> bool:
    """True for a row that can be read, is not a sentinel, and has no anchor of its own."""
    return row.malformed is None and not row.stored.is_sentinel and row.stored.anchor is None


@dataclass(frozen=True, slots=True)
class PairedAnchor:
    """The anchor of a stored offset and by how many offsets it lags, or why there is none."""

    anchor: Anchor | None = None
    lag: int = 0
    why: str = ""
    written_at_ms: int | None = None

    @property
    def is_exact(self) -> bool:
        return self.anchor is not None and self.lag == 0


def pair(offset: int, kept: AnchorRows) -> PairedAnchor:
    """The kept anchor that belongs to a bare stored offset."""
    for row in kept.rows:
        if row.stored.offset == offset:
            return PairedAnchor(row.stored.anchor, written_at_ms=row.stored.written_at_ms)
    if offset < 0 or kept.main is None or kept.main.stored.anchor is None:
        return PairedAnchor()
    if kept.aside is not None and kept.aside.stored.cluster_id != kept.main.stored.cluster_id:
        return _of_either(offset, kept.main.stored, kept.aside.stored)
    made_for, anchor = kept.main.stored.offset, kept.main.stored.anchor
    if made_for > offset:
        return PairedAnchor(why=_gone_back(made_for))
    why = f"its anchor was made for offset {made_for}, with no record before it" if anchor.is_bare else ""
    return PairedAnchor(anchor, offset - made_for, why, written_at_ms=kept.main.stored.written_at_ms)


def _of_either(offset: int, main: StoredOffset, aside: StoredOffset) -> PairedAnchor:
    """The anchor of an offset that continues ``main`` or, in another numbering, ``aside``: which of them is unknown.

    A correction is dated later than the row that it replaces, so both are safe with the earlier row: a rollback puts
    back the earlier one, and what it replaces may have been set by hand beyond records that were not processed.
    """
    restored = aside.anchor is not None and is_later(main, aside)
    first = aside if restored else main
    if first.offset > offset:
        return PairedAnchor(why=_gone_back(first.offset))
    lag = offset - min(main.offset, max(aside.offset, 0))
    if aside.anchor is None or first.anchor is None or first.anchor.is_bare:
        # An empty anchor is unresolved. Without one, the number would be taken for the source's.
        return PairedAnchor(Anchor(), lag, why=_IN_DOUBT)
    anchor = replace(first.anchor, cluster_id=None, topic_id=None)
    return PairedAnchor(anchor, lag, why=_IN_DOUBT, written_at_ms=first.written_at_ms)


_IN_DOUBT = "a write was interrupted and the job has gone on: which cluster numbers the stored offset is not known"


def _gone_back(made_for: int) -> str:
    return f"its anchor was made for the later offset {made_for}: the stored offset went back since"


def _joined(own: Row, kept: AnchorRows, found: PairedAnchor) -> Row:
    at_ms = own.stored.written_at_ms
    if at_ms is None and found.anchor is not None:
        at_ms = found.written_at_ms
    stored = StoredOffset(own.stored.offset, found.anchor, at_ms)
    lag = None if found.anchor is None else found.lag
    note = noted(found.why, own.note)
    stored_ms = found.written_at_ms if lag else None
    return replace(own, stored=stored, version=token(own, kept), anchor_lag=lag, note=note, anchored_ms=stored_ms)


def by_cluster(here: Callable[[], str], topic_id: Callable[[str], str | None] = lambda _: None) -> Pairing:
    """The rule for a group's commits at the cluster whose id ``here`` gives.

    ``topic_id``: a topic's id there, empty for no topic, None if unknown. Where both clusters report one id, it tells a
    copied row of a group that has none here.
    """

    def joined(key: TopicPartition, own: Row | None, kept: AnchorRows) -> Row | None:
        anchors = [row for row in kept.rows if row.stored.anchor is not None]
        if not anchors:
            return None if own is None else replace(own, version=token(own, kept))
        cluster = here()
        copy = kept.main if kept.main in anchors and not _is_of(kept.main, cluster) else None
        if own is None:
            if copy is None and kept.main in anchors and _is_of_another_topic(kept.main, topic_id):
                copy = kept.main
            return copy and Row(key, copy.stored, token(None, kept), anchor_lag=0, is_copy=True)
        if copy is not None and (own.stored.anchor is None or is_later(copy.stored, own.stored)):
            return _joined(own, kept, PairedAnchor(copy.stored.anchor, written_at_ms=copy.stored.written_at_ms))
        if own.stored.anchor is not None:
            stays = copy is not None and not _is_of(own, cluster)  # the copy would speak for the group's next commit
            return replace(own, version=token(own, kept), anchor_lag=0 if stays else own.anchor_lag)
        ours = [row for row in anchors if _is_of(row, cluster) and row.stored.offset <= own.stored.offset]
        best = max(ours, key=lambda row: row.stored.offset, default=kept.main)
        return _joined(own, kept, pair(own.stored.offset, AnchorRows(best)))

    return joined


def _is_of(row: Row | None, cluster: str) -> bool:
    return row is not None and row.stored.anchor is not None and row.stored.anchor.cluster_id == cluster


def _is_of_another_topic(row: Row, topic_id: Callable[[str], str | None]) -> bool:
    made_in = real_topic_id(row.stored.anchor.topic_id) if row.stored.anchor else None
    now = None if made_in is None else topic_id(row.key.topic)
    return now is not None and real_topic_id(now) != made_in


def _is_after(row: Row, time_ms: int | None) -> bool:
    at_ms = row.stored.written_at_ms
    return time_ms is not None and at_ms is not None and at_ms > time_ms
