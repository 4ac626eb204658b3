"""How far a query's output may be ahead of its offset log, as the log's own files show it. Nothing is opened here.

Spark writes ``offsets/N`` before batch N runs. The batch's output is then bounded by that entry, and a restart
repeats no other batch. Two kinds of queries write later, and a restart reads records again of which no file says that
they were put out:

- Asynchronous progress tracking writes an entry at most once an interval
  (``asyncProgressTrackingCheckpointIntervalMs``). The batches in between leave no file: their numbers are missing. (The
  files do not tell whether they were lost instead.)
- Real-time mode (4.1 and later) writes entry N when batch N *ends*, after the trigger's duration, though its records
  are put out as they come. Nothing in the entry says so. But its file is as much younger than the time in it as the
  batch took, and the files of two entries lie as far apart as the times in them (those of a restored copy do not).

So up to one interval, or one trigger's duration, is read again. Source: Spark 4.3.0
(``AsyncProgressTrackingMicroBatchExecution``, ``MicroBatchExecution.markMicroBatchEnd``), and checkpoints that PySpark
4.2.1 and 4.3.0 wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

LATE_MS = 4_000
"""Files at least so much younger than the time in them were written at a batch's end. Real-time mode takes 5 s or more;
clocks of a driver and of its file system differ less."""
MANY = 4
"""One batch of real-time mode takes no more than so many times as long as the one before it."""


class Tracking(Enum):
    """The way in which a query writes its progress late."""

    ASYNCHRONOUS = "asynchronous progress tracking, or lost entries"
    REAL_TIME = "real-time mode"


@dataclass(frozen=True, slots=True)
class LateLog:
    """A log that is behind the output. ``step_ms``: the time between its last two entries, if they say it.

    ``written_ms``: in real-time mode, when the last entry was written, at its batch's end.
    """

    tracking: Tracking
    batch: int
    step_ms: int | None = None
    written_ms: int | None = None

    def words(self, records: int | None = None) -> str:
        """The part that a restart reads again. ``records``: how many offsets the last step in the log had."""
        parts = [] if self.step_ms is None else [f"{self.step_ms / 1000:,.1f} s"]
        parts += [] if records is None else [f"{records:,} offsets"]
        last = f" (the last one in its log: {', '.join(parts)})" if parts else ""
        unit = "one trigger's duration" if self.tracking is Tracking.REAL_TIME else "one interval of its log"
        return (
            f"{self.tracking.value}: what the query put out after batch {self.batch} is in no file and is read again, "
            f"up to {unit}{last}"
        )


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the offset log: the time in it, and its file's. Epoch ms; None where it is not known."""

    planned_ms: int | None
    file_ms: int | None


def behind(batch: int, last: LogEntry, before: LogEntry, *, has_gaps: bool) -> LateLog | None:
    """The log whose last two entries these are; None if it is not behind, as far as its files show.

    ``has_gaps``: numbers are missing among all its entries.
    """
    planned = _between(before.planned_ms, last.planned_ms)
    if has_gaps:
        return LateLog(Tracking.ASYNCHRONOUS, batch, planned)
    late, apart = _between(last.planned_ms, last.file_ms), _between(before.file_ms, last.file_ms)
    if planned is None or late is None or apart is None:
        return None
    at_its_end = LATE_MS <= late <= MANY * planned and planned >= LATE_MS
    is_own_file = abs(apart - planned) <= max(apart, planned) / 4
    return LateLog(Tracking.REAL_TIME, batch, planned, last.file_ms) if at_its_end and is_own_file else None


def _between(earlier: int | None, later: int | None) -> int | None:
    return None if earlier is None or later is None else later - earlier
