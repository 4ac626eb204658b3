"""How far a batch reads: a cap's share for each partition. No I/O.

A share is never above what the partition wants, and what one does not need goes to the others. The remainder rotates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reconciler.ports import TopicPartition

if TYPE_CHECKING:
    from reconciler.spark.ranges.planning import Caps


def taken(waiting: Mapping[TopicPartition, int], caps: Caps, *, turn: int) -> dict[TopicPartition, int]:
    """How many offsets of each partition the next batch takes, of those that wait. ``turn`` as in ``shares``."""
    most = caps.per_partition
    wants = [count if most is None else min(count, most) for count in waiting.values()]
    if caps.per_run is not None:
        wants = shares(wants, caps.per_run, turn=turn)
    return dict(zip(waiting, wants, strict=True))


def shares(wants: Sequence[int], total: int, *, turn: int = 0) -> list[int]:
    """Shares of ``total``, none above its want, as even as possible (P4). ``turn`` rotates who gets the remainder.

    shares([10, 2, 10], 12)  # [5, 2, 5]
    """
    given = [0] * len(wants)
    hungry = sorted((index for index, want in enumerate(wants) if want > 0), key=lambda index: wants[index])
    left = total
    while hungry:
        each = left // len(hungry)
        if wants[hungry[0]] > each:
            break
        index = hungry.pop(0)
        given[index] = wants[index]
        left -= wants[index]
    if hungry:
        each, rest = divmod(left, len(hungry))
        in_turn = sorted(hungry)
        for place, index in enumerate(in_turn):
            given[index] = each + (1 if (place - turn) % len(in_turn) < rest else 0)
    return given
