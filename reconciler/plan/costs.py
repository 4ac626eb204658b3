"""The records that a plan reads again or skips, as numbers and as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.core.text import counted
from reconciler.core.verdicts import Position, Skips, Verdict
from reconciler.plan.document import PartitionPlan, Plan
from reconciler.plan.start import skips_words


def records_again_after_end(row: PartitionPlan) -> int:
    """The most records of a repeated batch that come again behind its proven end, sent again by a mirror.

    0 for all rows but such an end: a batch without a proven one is repeated empty.
    """
    counts = row.position == Position.END and row.finding is Verdict.EXACT and not row.set_by_hand
    return (row.replay_at_most or 0) if counts else 0


def records_of_empty_batch(row: PartitionPlan) -> int:
    """The most records that a batch without a proven end may have written before it stopped; 0 for other rows."""
    is_proven = row.position != Position.END or row.finding is Verdict.EXACT or row.set_by_hand
    return 0 if is_proven else row.replay_at_most or 0


def records_of_batch(row: PartitionPlan) -> int:
    """The most records of a repeated batch that may come again in later ones; 0 for all rows but its ends."""
    return records_again_after_end(row) + records_of_empty_batch(row)


def replay_total(plan: Plan) -> str:
    """The replay over all partitions, as text."""
    return replay_sum(row for job in plan.jobs for row in job.partitions)


def outcome(plan: Plan) -> str:
    """The cost of a start by the plan, over all partitions: a clause without its full stop."""
    skipped = skips_sum(row.skips for job in plan.jobs for row in job.partitions)
    more = f", and {skipped} skipped by hand" if skipped else ""
    begun = sum(records_of_empty_batch(row) for job in plan.jobs for row in job.partitions)
    if begun:
        more += f", and up to {counted(begun, 'record')} that the unfinished batch may have written"
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
    """True if ``replay_sum`` of them is above 0."""
    return _replay(list(rows))[0] > 0


def _replay(every: Sequence[PartitionPlan]) -> tuple[int, bool]:
    """The number of records, and whether it is exact."""
    bounded = [row for row in every if row.replay_at_most is not None and row.position != Position.END]
    of_batch = sum(records_again_after_end(row) for row in every)
    count = of_batch + sum(row.replay_at_most or 0 for row in bounded)
    return count, not of_batch and all(row.replay_exact is not None for row in bounded)
