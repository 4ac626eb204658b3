"""Which rows of a plan are written, and what the corrections of a job must leave behind at the destination. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.config.file import Config, Job
from reconciler.core.policies import StartPlace
from reconciler.core.verdicts import Verdict
from reconciler.failover.stored import Selected
from reconciler.places.registry import traits
from reconciler.plan.document import PartitionPlan
from reconciler.ports import Row

Planned = tuple[PartitionPlan, Selected]
"""A plan's row, and the stored rows that it is about."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """What the corrections of a job must leave behind at the destination.

    ``new``: a row for a new partition, since the job may start it elsewhere without one. A job that starts at the
    earliest needs none: it starts there without one, also after retention has moved the earliest. A consumer group does
    not know that policy. ``in_copy``: a copy of the job's checkpoint, whose manifest names the cluster of its numbers.
    ``reanchors``: a move gives a row that is right the destination's anchor. Not in a consumer group, which takes
    no commit of others once its consumers have started.
    """

    cluster_id: str
    new: bool
    in_copy: bool
    reanchors: bool
    by_job: bool = False
    """Only the job writes there: until it has, what the last plan recorded is its number."""

    @classmethod
    def of(cls, config: Config, job: Job, cluster_id: str) -> Corrections:
        way = traits(job.store)
        new = config.new_of(job).place is not StartPlace.EARLIEST or way.holds_commits
        return cls(
            cluster_id,
            new,
            way.corrected_in_copy,
            way.corrected_by_apply and not way.holds_commits,
            way.corrected_by_job,
        )

    def include(self, row: PartitionPlan, selected: Selected) -> bool:
        """True if a planned row is one of them.

        A row that is right where the job will look is left alone, if it stays clear whose number it is.

        A new partition gets a row where its job needs one, and where the job had stored offset 0: it may start
        elsewhere without one.
        """
        if row.resume_offset is None:
            return False
        if row.finding is Verdict.NEW and not row.set_by_hand:
            return self.new or row.stored_offset == 0
        speaks = selected.row
        if speaks is None or speaks.key.topic != row.topic or self._leaves_unclear(speaks):
            return True
        held = selected.replaced
        if self.by_job and selected.recorded is not None:
            return not row.is_right
        if held is None and row.is_right and not self.new and speaks.stored.anchor is not None:
            return not speaks.stored.anchor.is_bare  # the job has processed nothing, and starts there without a row
        return not row.is_right or held is None or held.malformed is not None or held.stored.offset != row.resume_offset

    def rows_to_reanchor(self, rows: Iterable[Planned]) -> list[Planned]:
        """Rows whose offset is right and whose anchor must be replaced: it is in another cluster's numbering."""
        return [each for each in rows if self._is_numbered_elsewhere(*each)]

    def _is_numbered_elsewhere(self, row: PartitionPlan, selected: Selected) -> bool:
        """True if a row that is right as it is has the anchor of another cluster, or of the topic before it was
        recreated: range batches read from no such row."""
        anchor = selected.row.stored.anchor if selected.row is not None else None
        if not self.reanchors or anchor is None or anchor.cluster_id is None:
            return False
        return row.is_right and not anchor.numbered_by(self.cluster_id, row.topic_id)

    def _leaves_unclear(self, row: Row) -> bool:
        """True for a checkpoint that is not a copy made for this cluster: a batch that it repeats may end elsewhere."""
        return self.in_copy and not self._is_copy_for_this_cluster(row)

    def _is_copy_for_this_cluster(self, row: Row) -> bool:
        anchor = row.stored.anchor
        return row.numbered_by == self.cluster_id or (anchor is not None and anchor.cluster_id == self.cluster_id)
