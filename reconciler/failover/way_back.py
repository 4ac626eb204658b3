"""A move to a cluster where the job has been before: what earlier stays had processed there counts. Pure.

``lefts`` is where the job was each time it left the cluster (``plans.left_at``); its numbers are the cluster's own.

- W1  An earlier stay had processed the records before the number where it left, at most up to ``furthest``. Those from
      the resume point on come again (A21).
- W2  Records that an earlier stay had not read, and that the other cluster never got, were processed by nobody. The
      job resumes at the first of them at the latest (decision 0018).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from reconciler.core.anchors import Anchor
from reconciler.state.stored import Stored

R = TypeVar("R")


def in_this_log(lefts: Sequence[Stored[Anchor]], cluster_id: str, topic_id: str | None) -> list[Stored[Anchor]]:
    """``lefts`` without those of a topic that was made anew since: its numbers began again.

    One whose record names no topic of this cluster stays: a number too many only shows more records than come again.
    """

    def is_of_another(left: Stored[Anchor]) -> bool:
        record = left.record
        if record is None or record.cluster_id != cluster_id:
            return False
        return not record.numbered_by(cluster_id, topic_id)

    return [each for each in lefts if not is_of_another(each)]


def unread_before(lefts: Sequence[Stored[R]], proven: int) -> range:
    """The offsets before the proven one in which W2 looks for records that the other cluster lacks."""
    return range(min(max((each.number for each in lefts), default=proven), proven), proven)


def again(lefts: Sequence[Stored[R]], proven: int, resume: int, ahead: int) -> int:
    """How many records come again at most, in offsets, from ``resume``: the proven offset, or one before it (W2).

    ``ahead``: records behind the anchor that the stay that is left may have processed.
    """
    return max([proven, *(each.furthest for each in lefts)]) - resume + ahead
