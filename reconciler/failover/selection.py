"""The stored number of a destination partition, by what is recorded of it, and the row that a correction replaces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from reconciler.config.file import Config, Job
from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.policies import StartPlace
from reconciler.core.verdicts import Verdict
from reconciler.failover.recorded import Basis, Recorded, Undecided
from reconciler.formats.plan import PartitionPlan
from reconciler.ports import Malformed, Row, TopicPartition
from reconciler.state.stored import Stored
from reconciler.stores.common import noted
from reconciler.stores.registry import traits


@dataclass(frozen=True, slots=True)
class Selected:
    """The row that speaks, and the one that a correction replaces (under the destination's name), if any.

    ``source`` is the row of the source's name, whether it speaks or not.
    """

    row: Row | None
    replaced: Row | None
    source: Row | None = field(default=None, compare=False)
    malformed: Malformed | None = None
    """The row that may be the one that speaks, and cannot be read: then no other speaks."""
    recorded: Stored[Anchor] | None = None
    """What is recorded of the number; None where nothing is."""
    is_mirrors: bool = False
    """The row is a group's that a mirror keeps: the job's own number is not known."""

    @property
    def stored(self) -> StoredOffset | None:
        return self.row.stored if self.row else None

    @property
    def again(self) -> int:
        """Records from the stored number on that may be processed, by what is recorded."""
        return 0 if self.recorded is None else self.recorded.again

    @property
    def ahead(self) -> int:
        """Records after the anchor's that may be processed, by what is recorded."""
        return 0 if self.recorded is None else self.recorded.ahead

    @property
    def older(self) -> int:
        """Records between the anchor's and the stored number, by what is recorded."""
        return self.ahead - self.again

    @property
    def left(self) -> Stored[Anchor] | None:
        """The number, as a plan that leaves it keeps it; None if there is none."""
        if self.recorded is not None or self.row is None or self.row.stored.is_sentinel:
            return self.recorded
        return Stored(self.row.stored.offset, self.row.stored.anchor, 0, 0)


def of_mirror(row: Row) -> Selected:
    """The row of a group at the destination as a mirror's evidence, where nothing else is known of the job's number."""
    if row.malformed is not None:
        return Selected(None, row, malformed=row.malformed)
    return Selected(row, row, is_mirrors=True)


def of_record(
    found: Recorded | Undecided | None,
    row: Row | None,
    replaced: Row | None,
    key: TopicPartition,
    cluster_id: str,
    *,
    moved: bool,
    is_copied: bool,
) -> Selected:
    """What is recorded of a partition, as the row that speaks. ``row``: what its place holds under ``key``.

    ``moved``: the job lives on the destination, whose id is ``cluster_id``. ``is_copied``: the place is a checkpoint,
    whose copy is made for the number that it holds.
    """
    if isinstance(found, Undecided):
        return Selected(None, replaced, malformed=Malformed(found.why, found.hint))
    if found is None:
        is_unread = row is not None and row.malformed is None and row.stored.is_sentinel
        return Selected(row, replaced, None if moved else row) if is_unread else Selected(None, replaced)
    number, anchor = found.stored.number, _in_numbering_of(found, cluster_id, moved=moved)
    is_bare = found.basis is Basis.JOURNAL and (anchor is None or anchor.is_bare)
    if is_bare and not moved and not (is_copied and number):
        number, anchor = 0, Anchor()  # nothing was processed in this stay
    if row is not None and row.malformed is None and row.stored.offset == number:
        row = replace(row, stored=replace(row.stored, anchor=anchor))
    else:
        row = Row(key, StoredOffset(number, anchor), "" if row is None else row.version, note=_of_place(row))
    if found.basis is Basis.NOT_CHECKED and moved:
        row = replace(row, note=noted("not checked, as nothing is recorded of it", row.note))
    return Selected(row, replaced, None if moved else row, recorded=found.stored)


def _in_numbering_of(found: Recorded, cluster_id: str, *, moved: bool) -> Anchor | None:
    """The anchor, whose cluster is the destination exactly if the job lives there: two clusters may report one id."""
    anchor = found.stored.record
    if not moved:
        is_alike = anchor is not None and anchor.cluster_id == cluster_id
        return replace(anchor, cluster_id=None, topic_id=None) if anchor is not None and is_alike else anchor
    if anchor is None:
        return Anchor(cluster_id=cluster_id)
    is_unnamed = anchor.cluster_id is None and (anchor.offset is None or anchor.names is Names.MAX_TIME)
    return replace(anchor, cluster_id=cluster_id) if is_unnamed else anchor


def _of_place(row: Row | None) -> str:
    if row is None:
        return "its place holds no offset"
    return f"its place holds {row.stored.offset:,}" if row.malformed is None else ""


def is_own(row: Row, cluster_id: str) -> bool:
    """True if the row's offset is in this cluster's numbering, by its anchor."""
    return row.stored.anchor is not None and row.stored.anchor.cluster_id == cluster_id


def is_numbered_here(row: Row, cluster_id: str) -> bool:
    """True if the row's offset is in this cluster's numbering, by its anchor or by its store's own word."""
    return is_own(row, cluster_id) or row.numbered_by == cluster_id


def is_unread(stored: StoredOffset | None) -> bool:
    """True if nothing of the partition was processed: no row, or one that says so."""
    return stored is None or stored.is_unread


def by_key(rows: Iterable[Row]) -> dict[TopicPartition, Row]:
    return {row.key: row for row in rows}


Planned = tuple[PartitionPlan, Selected]
"""A plan's row, and the stored rows that it is about."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """What the corrections of a job must leave behind at the destination.

    ``new``: a row for a new partition, since the job may start it elsewhere without one. A job that starts at the
    earliest needs none: it starts there without one, also after retention has moved the earliest. A consumer group does
    not know that policy. ``in_copy``: a copy of the job's checkpoint, whose manifest names the cluster of its numbers.
    ``anchors_right``: a move gives a row that is right the destination's anchor. Not in a consumer group, which takes
    no commit of others once its consumers have started.
    """

    cluster_id: str
    new: bool
    in_copy: bool
    anchors_right: bool
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
        if row.verdict is Verdict.NEW and not row.set_by_hand:
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

    def completing(self, rows: Iterable[Planned]) -> list[Planned]:
        """The rows whose offset is right and whose anchor a move replaces: it is in another cluster's numbering."""
        return [each for each in rows if self._is_numbered_elsewhere(*each)]

    def _is_numbered_elsewhere(self, row: PartitionPlan, selected: Selected) -> bool:
        """True if a row that is right as it is has the anchor of another cluster, or of the topic before it was
        recreated: range batches read from no such row."""
        anchor = selected.row.stored.anchor if selected.row is not None else None
        if not self.anchors_right or anchor is None or anchor.cluster_id is None:
            return False
        return row.is_right and not anchor.numbered_by(self.cluster_id, row.topic_id)

    def _leaves_unclear(self, row: Row) -> bool:
        """True for a bare number whose kept anchor is another cluster's; in a checkpoint, for one without anchor, too:
        a batch that it repeats may end at another offset here."""
        if is_numbered_here(row, self.cluster_id):
            return False
        return self.in_copy or (row.anchor_lag is not None and row.stored.anchor is not None)
