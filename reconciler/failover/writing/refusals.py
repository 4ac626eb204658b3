"""Why ``apply`` writes nothing of a job, and writes the others.

A partition needs a decision, a clock is wrong, a row cannot be read, or only the job itself changes its offsets.

A clock: of two rows with anchors the later one counts. A row of the source that is dated long after now would be the
later one until that time, whatever the job writes here, and would set the job back to it again and again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from reconciler.clock import stamp
from reconciler.config.file import Job
from reconciler.failover.selection import Selected, written_ms
from reconciler.formats.plan import PartitionPlan
from reconciler.ports import UNKNOWN_PARTITION, Malformed, Row, TopicPartition
from reconciler.stores.registry import traits

AHEAD_MS = 10_000
"""How far the source's clock may be ahead: a job is hardly started, and has stored offsets, in less time."""


class Refusal(StrEnum):
    """Why a job is not written, as a clause."""

    UNDECIDED = "a partition needs a decision"
    CLOCK = "a row of the source is dated far ahead of this clock"
    UNREADABLE = "a row that the plan is about cannot be read any more"
    COPIED = "a checkpoint is only read, and corrected in a copy"
    STORED_BY_JOB = "its offsets are in a table, which only the job writes"

    @property
    def hint(self) -> str:
        """What to do for such a job, in sentences."""
        return HINTS[self]

    @property
    def is_of_store(self) -> bool:
        """True if it is for the kind of store, and for no single partition."""
        return self in (Refusal.COPIED, Refusal.STORED_BY_JOB)


HINTS = {
    Refusal.UNDECIDED: "Make a new plan with --set or --accept once it is decided.",
    Refusal.CLOCK: (
        "Correct the clock that is wrong, this one or the source's. If the source's was, correct the row's time, or "
        "run this again after that time."
    ),
    Refusal.UNREADABLE: "Make a new plan once that is done.",
    Refusal.COPIED: "Copy it to the plan's offsets: reconciler checkpoint clone PATH NEW_PATH --plan PLAN --job JOB.",
    Refusal.STORED_BY_JOB: (
        "Start the job by reconciler hook: it hands the offsets over, and the job stores them with its next "
        "transaction. Or give them to it by hand: reconciler show PLAN --starting-offsets."
    ),
}


def time_for(row: PartitionPlan, selected: Selected, now_ms: int) -> int:
    """The new row's time of writing (epoch ms): after the source's row.

    With one time for both, each side would count its own row, and a hook of the other side would start the job there.
    """
    return max(now_ms, _source_ms(row, selected) + 1)


def _source_ms(row: PartitionPlan, selected: Selected) -> int:
    """When the source's row was written (epoch ms); -1 where none can count as later than the new row."""
    source = selected.source
    if source is None or source.key == row.key or source.stored.anchor is None:
        return -1
    return written_ms(source)


def why_ahead(row: PartitionPlan, selected: Selected, now_ms: int) -> str | None:
    """Why no row can take the place of the source's, as a clause; None if one can."""
    dated_ms = _source_ms(row, selected)
    if dated_ms - now_ms <= AHEAD_MS:
        return None
    return (
        f"the row of {row.source_key} is dated {stamp(dated_ms)}, and here it is {stamp(now_ms)}: it would count as "
        "later than any row that the job writes here"
    )


def of_store(job: Job) -> Refusal | None:
    """Why no command writes to the job's store; None if ``apply`` does."""
    way = traits(job.store)
    if way.corrected_in_copy:
        return Refusal.COPIED
    return Refusal.STORED_BY_JOB if way.corrected_by_job else None


def unreadable(row: PartitionPlan, selected: Selected, rows: Mapping[TopicPartition, Row]) -> Malformed | None:
    """The row that cannot be read and is, or may be, the one that the plan is about.

    A person's offset goes beside such a row, never over it: a snapshot could not keep what it was.
    """
    beside = row.set_by_hand and (selected.replaced is None or selected.replaced.malformed is None)
    if selected.row is not None or beside:
        return None
    unplaced = [rows.get(TopicPartition(topic, UNKNOWN_PARTITION)) for topic in (row.source_topic, row.topic)]
    among = (selected.malformed, *(each.malformed for each in unplaced if each is not None))
    return next((bad for bad in among if bad is not None), None)
