"""What a plan costs, over its partitions: the records that will be read again, and those that a person skips."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.core.text import counted
from reconciler.core.verdicts import Position, Skips
from reconciler.failover import positions
from reconciler.plan.document import PartitionPlan, Plan, skips_words


def replay_total(plan: Plan) -> str:
    """The replay over all partitions, as text."""
    return replay_sum(row for job in plan.jobs for row in job.partitions)


def outcome(plan: Plan) -> str:
    """What starting by the plan does, over all partitions: a clause without its full stop."""
    skipped = skips_sum(row.skips for job in plan.jobs for row in job.partitions)
    more = f", and {skipped} skipped by hand" if skipped else ""
    begun = sum(positions.records_of_empty_batch(row) for job in plan.jobs for row in job.partitions)
    if begun:
        more += f", and up to {counted(begun, 'record')} that the unfinished batch may have put out"
    return f"{replay_total(plan)} will be read again{more}"


def skips_sum(skips: Iterable[Skips | None]) -> str:
    """The records that several offsets skip, as text; empty if they skip none."""
    skipped = [each for each in skips if each is not None]
    if not skipped:
        return ""
    total = Skips(sum(each.at_least for each in skipped), sum(each.at_most for each in skipped))
    return skips_words(total)


def replay_sum(rows: Iterable[PartitionPlan]) -> str:
    """The replay over some partitions, as text. Of a repeated batch, what a mirror has sent again behind its end."""
    count, is_exact = _replay(list(rows))
    records = counted(count, "record")
    return records if is_exact else f"at most {records}"


def has_replay(rows: Iterable[PartitionPlan]) -> bool:
    """Whether ``replay_sum`` of them is above 0."""
    return _replay(list(rows))[0] > 0


def _replay(every: Sequence[PartitionPlan]) -> tuple[int, bool]:
    """The records, and whether exactly so many."""
    bounded = [row for row in every if row.replay_at_most is not None and row.position != Position.END]
    of_batch = sum(positions.records_again_after_end(row) for row in every)
    count = of_batch + sum(row.replay_at_most or 0 for row in bounded)
    return count, not of_batch and all(row.replay_exact is not None for row in bounded)
