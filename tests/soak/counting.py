"""What may come again, from what jobs have processed and what clusters hold. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from reconciler.state.plans import Numbers


class Place(NamedTuple):
    """Where one copy of a record is."""

    topic: str
    partition: int
    offset: int


Log = Mapping[str, list[Place]]
"""A cluster's records by their ids, each with all its copies."""


def again(processed: Counter[str]) -> int:
    """How often a record was processed that had been processed before."""
    return processed.total() - len(processed)


def delivered_late(known: Collection[str], then: Log, now: Log) -> int:
    """The copies that no plan could have shown: a mirror sent them after it, or sent an unread record twice.

    ``known``: the ids that a job had processed when it was planned. ``then``, ``now``: the log at the plan and now.
    """
    before = {name: len(then.get(name, ())) if name in known else 1 for name in now}
    return sum(max(0, len(copies) - before[name]) for name, copies in now.items())


def shown(plans: Mapping[int, Numbers], before: int) -> int:
    """The records that the plans after number ``before`` say come again at most. A move that was made twice counts
    once.
    """
    return max(
        (sum(each.row.again for each in plan.rows.values()) for plan in plans.values() if plan.number > before),
        default=0,
    )


def not_stored(known: Collection[str], plans: Mapping[int, Numbers], left: Log, names: Mapping[str, str]) -> int:
    """The records that a job had processed beyond the numbers from which its newest plan began.

    ``names``: by the origin of a stream, its topic on the cluster that was left.
    """
    if not plans:
        return 0
    rows = plans[max(plans)].rows
    stored = {(names[at.origin], at.partition): each.row.left.number for at, each in rows.items()}
    return sum(any(at.offset >= stored.get(at[:2], 0) for at in left.get(name, ())) for name in known)
