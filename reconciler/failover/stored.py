"""The stored number of a destination partition, by what is recorded of it, and the row that a correction replaces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.failover.recorded import Basis, Recorded, Undecided
from reconciler.places.common import noted
from reconciler.ports import Malformed, Row, TopicPartition
from reconciler.state.stored import Stored


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


def is_unread(stored: StoredOffset | None) -> bool:
    """True if nothing of the partition was processed: no row, or one that says so."""
    return stored is None or stored.is_unread
