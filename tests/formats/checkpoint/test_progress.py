"""A log that is behind its query's output is recognised by its files, and no other."""

from __future__ import annotations

import pytest

from reconciler.formats.checkpoint.progress import LateLog, LogEntry, Tracking, behind

BEGAN = 1_795_393_978_932
"""When PySpark 4.3.0 began a batch of five seconds in real-time mode."""


def entry(planned_s: float, file_s: float) -> LogEntry:
    return LogEntry(BEGAN + round(1000 * planned_s), BEGAN + round(1000 * file_s))


def test_missing_numbers_show_asynchronous_progress_tracking() -> None:
    found = behind(7, LogEntry(BEGAN + 3100, None), LogEntry(BEGAN, None), has_gaps=True)
    assert found == LateLog(Tracking.ASYNCHRONOUS, 7, 3100)
    assert found.words(240) == (
        "asynchronous progress tracking, or lost entries: what the query put out after batch 7 is in no file and is "
        "read again, up to one interval of its log (the last one in its log: 3.1 s, 240 offsets)"
    )


def test_entries_as_old_as_their_batches_end_show_real_time_mode() -> None:
    found = behind(2, entry(5.57, 10.7), entry(0, 5.5), has_gaps=False)
    assert found == LateLog(Tracking.REAL_TIME, 2, 5570, BEGAN + 10_700)
    assert "real-time mode: what the query put out after batch 2" in found.words()
    assert "up to one trigger's duration (the last one in its log: 5.6 s)" in found.words()


@pytest.mark.parametrize(
    ("last", "before", "why"),
    [
        (entry(5.5, 5.6), entry(0, 0.1), "written as each batch began"),
        (entry(5.5, 7.6), entry(0, 2.1), "the file system's clock is two seconds ahead"),
        (entry(60, 100_000), entry(0, 99_999.9), "a restored copy, all of whose files are new"),
        (entry(0.001, 100_000.001), entry(0, 100_000), "a restored copy of short batches"),
        (entry(60, 10_060), entry(0, 10_000), "a clock that is hours ahead"),
        (LogEntry(BEGAN, None), entry(-5, 0), "a file system that tells no times"),
        (LogEntry(None, BEGAN), entry(-5, 0), "an entry without a time"),
    ],
)
def test_no_other_log_is_behind(last: LogEntry, before: LogEntry, why: str) -> None:
    assert behind(2, last, before, has_gaps=False) is None, why
