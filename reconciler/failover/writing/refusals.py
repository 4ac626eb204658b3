"""Why ``apply`` writes nothing of a job, and writes the others.

A partition needs a decision, a row cannot be read, or the offsets are in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from reconciler.failover.numbers import Selected
from reconciler.plan.document import PartitionPlan
from reconciler.ports import UNKNOWN_PARTITION, Malformed, Row, TopicPartition


class Refusal(StrEnum):
    """Why a job is not written, as a clause."""

    UNDECIDED = "a partition needs a decision"
    UNREADABLE = "a row that the plan is about cannot be read any more"
    COPIED = "a checkpoint is only read, and corrected in a copy"

    @property
    def hint(self) -> str:
        """What to do for such a job, in sentences."""
        return HINTS[self]


HINTS = {
    Refusal.UNDECIDED: "Make a new plan with --set or --accept once it is decided.",
    Refusal.UNREADABLE: "Make a new plan once that is done.",
    Refusal.COPIED: "Copy it to the plan's offsets: reconciler checkpoint clone PATH NEW_PATH --plan PLAN --job JOB.",
}


def unreadable(row: PartitionPlan, selected: Selected, rows: Mapping[TopicPartition, Row]) -> Malformed | None:
    """The row that cannot be read and is, or may be, the one that the plan is about.

    A person's offset goes beside such a row, never over it.
    """
    beside = row.set_by_hand and (selected.replaced is None or selected.replaced.malformed is None)
    if selected.row is not None or beside:
        return None
    unplaced = [rows.get(TopicPartition(topic, UNKNOWN_PARTITION)) for topic in (row.source_topic, row.topic)]
    among = (selected.malformed, *(each.malformed for each in unplaced if each is not None))
    return next((bad for bad in among if bad is not None), None)
