"""The rows of a plan that are written, and the records that it reads again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reconciler.config.file import Config, Job
from reconciler.core.question import StartPlace
from reconciler.core.text import counted
from reconciler.core.verdicts import Position, Skips, Verdict
from reconciler.failover import positions
from reconciler.failover.numbers import Selected
from reconciler.places.registry import traits
from reconciler.plan.document import PartitionPlan, Plan
from reconciler.plan.start import skips_words
from reconciler.ports import Row, Traits

Planned = tuple[PartitionPlan, Selected]
"""A plan's row, and the stored rows that it is about."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """The rules by which a job's rows are corrected at the destination.

    ``new``: a new partition gets a row, since the job may start it elsewhere without one. A job that starts at the
    earliest needs none: it starts there without a row, also after retention has moved the earliest. A consumer group
    does not know that policy.
    """

    cluster_id: str
    new: bool
    traits: Traits

    @classmethod
    def of(cls, config: Config, job: Job, cluster_id: str) -> Corrections:
        own = traits(job.store)
        return cls(cluster_id, config.new_of(job).place is not StartPlace.EARLIEST or own.holds_commits, own)

    def include(self, row: PartitionPlan, selected: Selected) -> bool:
        """True if a planned row is to be written.

        A new partition gets a row where its job needs one, and where the job had stored offset 0: it may start
        elsewhere without one.
        """
        if row.resume_offset is None:
            return False
        if row.finding is Verdict.NEW and not row.set_by_hand:
            return self.new or row.stored_offset == 0
        return self._is_unclear(row, selected.row) or not self._is_in_place(row, selected)

    def _is_unclear(self, row: PartitionPlan, counts: Row | None) -> bool:
        """True if the row that counts has another name, or is of a checkpoint that is not a copy for this cluster.

        A batch that such a checkpoint repeats may end elsewhere.
        """
        if counts is None or counts.key.topic != row.topic:
            return True
        anchor = counts.stored.anchor
        numbered_by = {counts.numbered_by, None if anchor is None else anchor.cluster_id}
        return self.traits.corrected_in_copy and self.cluster_id not in numbered_by

    def _is_in_place(self, row: PartitionPlan, selected: Selected) -> bool:
        """True if the job would start at the planned offset without a write."""
        held, anchor = selected.replaced, None if selected.row is None else selected.row.stored.anchor
        if self.traits.corrected_by_job and selected.recorded is not None:
            return row.is_right and not selected.is_beyond  # until the job has written, the last plan's number counts
        if held is None:  # a job that has processed nothing starts without a row, too
            return row.is_right and not self.new and anchor is not None and anchor.is_bare
        return row.is_right and held.malformed is None and held.stored.offset == row.resume_offset

    def rows_to_reanchor(self, rows: Iterable[Planned]) -> list[Planned]:
        """Rows whose offset is right and whose anchor must be replaced: it is in another cluster's numbering."""
        return [each for each in rows if self._is_numbered_elsewhere(*each)]

    def _is_numbered_elsewhere(self, row: PartitionPlan, selected: Selected) -> bool:
        """True if a row with the right offset has an anchor of another cluster, or of a topic that was recreated since.

        Batches read from no such row. A consumer group takes no commit of others once its consumers have started.
        """
        anchor = selected.row.stored.anchor if selected.row is not None else None
        may_reanchor = self.traits.corrected_by_apply and not self.traits.holds_commits
        if anchor is None or anchor.cluster_id is None:
            return False
        return may_reanchor and row.is_right and not anchor.numbered_by(self.cluster_id, row.topic_id)


def replay_total(plan: Plan) -> str:
    """The replay over all partitions, as text."""
    return replay_sum(row for job in plan.jobs for row in job.partitions)


def outcome(plan: Plan) -> str:
    """The cost of a start by the plan, over all partitions: a clause without its full stop."""
    skipped = skips_sum(row.skips for job in plan.jobs for row in job.partitions)
    more = f", and {skipped} skipped by hand" if skipped else ""
    begun = sum(positions.records_of_empty_batch(row) for job in plan.jobs for row in job.partitions)
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
    of_batch = sum(positions.records_again_after_end(row) for row in every)
    count = of_batch + sum(row.replay_at_most or 0 for row in bounded)
    return count, not of_batch and all(row.replay_exact is not None for row in bounded)
