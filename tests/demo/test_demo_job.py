"""The demo's PySpark job, without Spark: its queries wait for each other before it dies."""

from __future__ import annotations

import threading

import pytest

from reconciler.demo.job import meet


def test_waiting_for_a_query_that_never_comes_times_out() -> None:
    with pytest.raises(TimeoutError, match=r"did not come to batch 3 within 0\.01 s: one has failed"):
        meet(threading.Barrier(2), 3, timeout_s=0.01)


def test_queries_that_meet_in_time_continue() -> None:
    meeting = threading.Barrier(2)
    other = threading.Thread(target=meet, args=(meeting, 3))
    other.start()
    meet(meeting, 3)
    other.join()
    assert not meeting.broken
