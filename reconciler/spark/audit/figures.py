"""The figures that follow from one name's counts: one pure function, for numbers and for Spark's columns alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

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
    the copies on the last cluster, those that the job has not come to. ``rows``: in the output; without one, the same
    as ``read``.
    """

    held: Sequence[Any]
    read: Any
    ahead: Any
    rows: Any


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides how a name is judged.

    ``unique``: no two records share a name. ``from_first``: all records of the first log were written there, so that
    it knows how many there are; others may have a mirror's second copies. ``all_read``: every cluster's log was read.
    """

    unique: bool = False
    from_first: bool = False
    all_read: bool = True


def judge(n: Counts, rules: Rules, use: Any) -> dict[str, Any]:
    """Each of ``FIGURES`` for one name. ``use`` has ``least``, ``greatest`` and ``where`` for numbers, or for columns.

    The least that the job must have put out is what every log has, since a mirror may send twice, and 1 where not every
    log has it. The most is what the fullest log has. A copy that lies ahead of the job is not expected yet, unless a
    stay has come across the record already.
    """

    def above(value: Any) -> Any:
        return use.greatest(value, 0)

    most = reduce(use.greatest, n.held)
    in_a_log = most > 0
    once = use.where(in_a_log, 1, 0)
    may = once if rules.unique else most
    must = once if rules.unique or len(n.held) == 1 else use.greatest(reduce(use.least, n.held), once)
    if rules.from_first and not rules.unique:
        is_known = n.held[0] > 0
        may, must = use.where(is_known, n.held[0], may), use.where(is_known, n.held[0], must)
    due_may = may - use.least(n.ahead, above(may - n.read))
    due_must = use.least(must, due_may)
    lost = above(due_must - n.rows)
    doubled = use.where(in_a_log, above(n.rows - may), 0)
    return {
        "lost": lost,
        "lost_unread": use.least(lost, above(due_must - n.read)) if rules.all_read else 0,
        "possibly_lost": above(due_may - n.rows) - lost,
        "doubled": doubled,
        # Where a log is missing, what was read there is not known: each reading here may be the second one.
        "doubled_read_again": use.least(doubled, above(n.read - may) if rules.all_read else n.read),
        "possibly_doubled": use.where(in_a_log, above(use.least(n.rows, may) - must), 0),
        "unknown_rows": use.where(in_a_log, 0, n.rows),
    }
