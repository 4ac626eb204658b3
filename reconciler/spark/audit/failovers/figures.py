"""The figures that follow from one name's counts: one pure function, for numbers and for Spark's columns alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

FIGURES = (
    "lost",
    "lost_unread",
    "possibly_lost",
    "doubled",
    "doubled_read_again",
    "possibly_doubled",
    "unknown_rows",
)
"""``lost_unread``: of the lost ones, those that no stay read. ``doubled_read_again``: those that two stays read."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How often one name occurs. Numbers, or Spark's columns.

    ``held``: in each cluster's log. ``read``: how often the job's stays came across it, on all clusters. ``ahead``: of
    the copies on the last cluster, those that the job has not come to. ``rows``: in the sink.
    """

    held: Sequence[Any]
    read: Any
    ahead: Any
    rows: Any


class Operations(Protocol):
    """What arithmetic signs do not offer."""

    def least(self, one: Any, other: Any) -> Any: ...

    def greatest(self, one: Any, other: Any) -> Any: ...

    def where(self, condition: Any, then: Any, otherwise: Any) -> Any: ...


def judge(n: Counts, *, unique: bool, use: Operations) -> dict[str, Any]:
    """Each of ``FIGURES`` for one name.

    The least that the job must have put out is what every log has, since a mirror may send twice, and 1 where not every
    log has it. The most is what the fullest log has. A copy that lies ahead of the job is not expected yet, unless a
    stay has come across the record already.
    """

    def above(value: Any) -> Any:
        return use.greatest(value, 0)

    most = reduce(use.greatest, n.held)
    in_a_log = most > 0
    once = use.where(in_a_log, 1, 0)
    may = once if unique else most
    must = once if unique or len(n.held) == 1 else use.greatest(reduce(use.least, n.held), once)
    due_may = may - use.least(n.ahead, above(may - n.read))
    due_must = use.least(must, due_may)
    lost = above(due_must - n.rows)
    doubled = use.where(in_a_log, above(n.rows - may), 0)
    return {
        "lost": lost,
        "lost_unread": use.least(lost, above(due_must - n.read)),
        "possibly_lost": above(due_may - n.rows) - lost,
        "doubled": doubled,
        "doubled_read_again": use.least(doubled, above(n.read - may)),
        "possibly_doubled": use.where(in_a_log, above(use.least(n.rows, may) - must), 0),
        "unknown_rows": use.where(in_a_log, 0, n.rows),
    }
