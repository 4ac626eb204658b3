"""A job's counts after a round: only anchors that were written count as saved."""

from __future__ import annotations

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.ports import ClusterInfo, Row, TopicInfo, TopicPartition
from reconciler.stores.paired import AnchorRows, aside_of
from reconciler.tracking.job import JobReport, TrackedJob
from reconciler.tracking.lookback import LookbackResult

KEY = TopicPartition("events", 0)
OLD = StoredOffset(50, Anchor(offset=49, timestamp_ms=1, cluster_id="a"), 1)
NEW = StoredOffset(100, Anchor(offset=99, timestamp_ms=2, cluster_id="a"), 2)


@pytest.mark.parametrize(
    ("written", "saved"),
    [
        pytest.param([KEY, aside_of(KEY)], 1, id="one anchor is counted once"),
        pytest.param([KEY], 1, id="the row left behind stays"),
        pytest.param([aside_of(KEY)], 0, id="the anchor lost its race"),
    ],
)
def test_the_removal_of_a_row_left_behind_counts_as_no_anchor(written: list[TopicPartition], saved: int) -> None:
    left = Row(aside_of(KEY), StoredOffset(70, OLD.anchor, 1), "2")
    kept = {KEY: AnchorRows(Row(KEY, OLD, "1"), left)}
    rows = {KEY: Row(KEY, StoredOffset(100), "r")}
    job = TrackedJob(None, rows, kept, ClusterInfo("a", {"events": TopicInfo("events", None, (0,))}))  # type: ignore[arg-type]
    job.looked[KEY] = LookbackResult(NEW)
    assert [change.key for change in job.changes()] == [KEY, aside_of(KEY)]
    job.saved(written)
    report = job.report(JobReport("clicks", "memory:"), 3)
    assert (report.saved, report.exact, len(report.lagging)) == (saved, saved, 1 - saved)
