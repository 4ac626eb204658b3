"""``track`` keeps the end of the running batch by itself, for a job that names its sinks."""

from __future__ import annotations

from functools import partial

import pytest

from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.positions import tracked_ends
from reconciler.formats.plan_sinks import SinkOutcome
from reconciler.kafka.memory import MemoryLog
from reconciler.stores.registry import open_store
from reconciler.tracking.asked import SourceSide
from reconciler.tracking.track import Round, Tracker
from tests.checkpoints.checkpoint_files import NOW, PLANNED
from tests.sinks.world import BEFORE, Query, query

__all__ = ["query"]


def track(query: Query) -> Round:
    """One round, beside the source that is alive."""
    source = MemoryLog("lost")
    source.create("o", 1, "lost/o")
    for number in range(-BEFORE, 100):
        source.partition("o", 0).append(PLANNED + number, b"k%d" % number, b"v%d" % number)
    config = query.config()
    tracker = Tracker(config, config.chosen("clicks"), side_of(query, source))
    try:
        return tracker.round()
    finally:
        tracker.close()


def side_of(query: Query, log: MemoryLog) -> SourceSide:
    """The cluster that a tracker reads, and the query's stores."""
    return SourceSide(
        reader=log,
        open_store=partial(open_store, kafka_client={}),
        open_anchors=partial(open_store, f"sqlite:///{query.folder}/anchors.db"),
        monotonic=lambda: 0.0,
        now_ms=lambda: NOW,
    )


@pytest.fixture
def unnamed(query: Query) -> Query:
    """Its configuration has no job for the end."""
    query.names_end = False
    return query


def test_the_end_of_a_running_batch_is_kept_and_proves_what_the_sink_has(unnamed: Query) -> None:
    unnamed.begin(3)
    start, end = track(unnamed).jobs
    assert (end.job, end.exact, end.saved, end.without) == ("clicks (end of batch)", 1, 1, {})
    assert start.exact == 1
    unnamed.put_out(range(3, 4))
    assert unnamed.sink().outcome is SinkOutcome.TAKEN
    made = unnamed.clone()
    assert (made.batch, made.repeats_empty, made.repeated_at_most) == (3, False, 0)


def test_between_two_batches_there_is_no_end_and_nothing_is_missing(unnamed: Query) -> None:
    _, end = track(unnamed).jobs
    assert (end.partitions, end.no_rows, end.without) == (0, "", {})


def test_the_end_of_a_batch_becomes_the_start_of_the_next(unnamed: Query) -> None:
    for number in (3, 4):
        unnamed.begin(number)
        start, end = track(unnamed).jobs
        assert (start.exact, start.lagging, end.exact) == (1, {}, 1)
        unnamed.put_out(range(number, number + 1))
        assert unnamed.sink().outcome is SinkOutcome.TAKEN
        unnamed.run(range(number, number + 1))
        assert unnamed.sink().outcome is SinkOutcome.FITS, "the end that was kept is where the next one begins"
        track(unnamed)
        assert unnamed.sink().outcome is SinkOutcome.FITS


def test_a_job_for_the_end_is_tracked_in_its_place(query: Query) -> None:
    config = query.config()
    assert tracked_ends(config, config.jobs) == []
    query.names_end = False
    (end,) = tracked_ends(query.config(), query.config().jobs)
    assert (end.group, end.store) == ("clicks", f"checkpoint:{query.files.path}?position=end")


def test_a_job_for_the_end_has_nothing_to_judge_between_two_batches(query: Query) -> None:
    """`plan` of all jobs, as the pages have it, does not stop because no batch is running."""
    config = query.config()
    checked = check(config, config.jobs, query.outside)
    assert [len(job.partitions) for job in checked.plan.jobs] == [1, 0]
    assert checked.stopped(config.policy.start) == []
    assert check(config, config.chosen("clicks-end"), query.outside).plan.verdict is Verdict.MATCH
