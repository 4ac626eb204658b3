"""The time of a new row, where the source's clock and this one differ.

Of two rows with anchors the later one counts. A row of the source that is dated long after now would be the later one
until that time, whatever the job writes here, and would set the job back to it again and again.
"""

from __future__ import annotations

from reconciler.clock import stamp
from reconciler.failover.selection import Selected, written_ms
from reconciler.formats.plan import PartitionPlan

AHEAD_MS = 10_000
"""How far the source's clock may be ahead: a job is hardly started, and has stored offsets, in less time."""
HINT = (
    "Correct the clock that is wrong, this one or the source's. If the source's was, correct the row's time, or run "
    "this again after that time."
)


def time_for(row: PartitionPlan, selected: Selected, now_ms: int) -> int:
    """The new row's time of writing (epoch ms): not before the source's row, which would count as the later one."""
    source = selected.source
    if source is None or source.key == row.key or source.stored.anchor is None:
        return now_ms
    return max(now_ms, written_ms(source))


def why_ahead(row: PartitionPlan, selected: Selected, now_ms: int) -> str | None:
    """Why no row can take the place of the source's; None if one can."""
    dated_ms = time_for(row, selected, now_ms)
    if dated_ms - now_ms <= AHEAD_MS:
        return None
    return (
        f"the row of {row.source_key} is dated {stamp(dated_ms)}, and here it is {stamp(now_ms)}: it would count as "
        "later than any row that the job writes here"
    )
