"""A copied checkpoint whose topic has one name on both clusters (policy ``identity``).

The anchors of the original are kept under that name, too. Record n is at n at the destination, at n + 100 at the
source.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from reconciler.checkpoints.clone import clone
from reconciler.checkpoints.reading import read_checkpoint
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import Change, Row, TopicPartition
from reconciler.state.start import CHECKPOINT_VARIABLE
from reconciler.stores.registry import open_store
from reconciler.tracking.asked import SourceSide
from reconciler.tracking.job import OF_ORIGINAL, JobReport
from reconciler.tracking.track import Tracker
from tests.checkpoints.checkpoint_files import NOW, PLANNED, Files
from tests.sinks.ends.test_tracked_ends import side_of
from tests.sinks.world import BEFORE, PER_BATCH, Query, under_one_name

STORED = BEFORE + 3 * PER_BATCH
RIGHT = 3 * PER_BATCH
AT = TopicPartition("o", 0)


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return under_one_name(tmp_path, 0)


def copied(query: Query) -> Files:
    """The copy that the hook makes before the first start at the destination."""
    assert query.start_at_destination()[CHECKPOINT_VARIABLE] == query.copy
    files = Files.at(Path(query.copy))
    assert start_of(files) == RIGHT
    return files


def start_of(files: Files) -> int:
    (position,) = read_checkpoint(str(files.path)).positions
    assert position.start is not None
    return position.start["o", 0]


def runs(query: Query, copy: Files, number: int, offset: int) -> None:
    """The query runs this batch on the copy, up to the offset."""
    copy.batch(number, {"o": {0: offset}})
    query.put_out(range(number, number + 1))


@pytest.mark.parametrize("ends", [(), (RIGHT + 10,), (RIGHT + 10, STORED), (RIGHT + 10, STORED + 10)])
def test_the_hook_starts_a_copy_where_it_is_whatever_was_kept_for_the_original(
    query: Query, ends: tuple[int, ...]
) -> None:
    """Also where the copy comes to the very number that the original stopped at, and behind it."""
    copy = copied(query)
    for number, offset in enumerate(ends, 3):
        runs(query, copy, number, offset)
    query.start_at_destination()
    (row,) = query.check(copy.path).plan.job().partitions
    now = ends[-1] if ends else RIGHT
    assert (row.verdict, row.stored_offset, row.resume_offset, row.replay_at_most) == (Verdict.MATCH, now, now, 0)


def test_the_original_can_be_planned_again(query: Query) -> None:
    before = query.check().plan.job()
    copied(query)
    assert query.check().plan.job() == before
    assert [(row.verdict, row.resume_offset) for row in before.partitions] == [(Verdict.MOVED, RIGHT)]


def test_an_anchor_of_the_copys_own_cluster_that_was_recorded_since_is_newer(query: Query) -> None:
    """The records between it and the stored offset may be unprocessed elsewhere: the bound is from there."""
    copy = copied(query)
    runs(query, copy, 3, RIGHT + 10)
    keep(query, StoredOffset(RIGHT + 10, anchor(RIGHT + 9, RIGHT + 9, "b"), NOW + 5000))
    runs(query, copy, 4, RIGHT + 20)
    (row,) = rows_of(query, copy)
    assert row.stored.anchor is not None
    assert (row.stored.anchor.offset, row.anchor_lag) == (RIGHT + 9, 10)


def test_the_source_is_not_asked_for_records_at_the_copys_numbers(query: Query) -> None:
    """``track``, of a configuration that names the copy while the lost source is back."""
    copy = copied(query)
    source = MemoryLog("lost")
    source.create("o", 1, "lost/o")
    for number in range(-BEFORE, 100):
        source.partition("o", 0).append(PLANNED + number, b"k%d" % number, b"v%d" % number)
    runs(query, copy, 3, STORED + 20)
    report = tracked(query, copy, side_of(query, source))
    assert (report.elsewhere, report.saved) == ((AT,), 0)


def test_a_copy_is_tracked_beside_its_original_in_a_store_of_its_own(query: Query) -> None:
    """Where the original's anchor is kept nothing takes its place: the original may be planned again by it."""
    copy = copied(query)
    runs(query, copy, 3, RIGHT + 10)
    here, before = side_of(query, query.log), query.check().plan.job()
    report = tracked(query, copy, here)
    assert (report.elsewhere, report.saved, report.without | report.lagging) == ((), 0, {AT: OF_ORIGINAL})
    assert query.check().plan.job() == before
    apart = partial(open_store, f"sqlite:///{query.folder}/anchors-back.db")
    report = tracked(query, copy, replace(here, open_anchors=apart))
    assert (report.exact, report.saved, report.without) == (1, 1, {})
    (row,) = apart().read("clicks")
    assert row.stored.anchor is not None
    assert (row.stored.offset, row.stored.anchor.offset, row.stored.cluster_id) == (RIGHT + 10, RIGHT + 9, "b")


def test_a_copy_that_its_location_names_is_tracked_in_the_originals_place(query: Query) -> None:
    copy = copied(query)
    runs(query, copy, 3, RIGHT + 10)
    report = tracked(query, copy, side_of(query, query.log), in_copy=True)
    assert (report.exact, report.saved, report.without | report.lagging) == (1, 1, {})


def tracked(query: Query, copy: Files, side: SourceSide, *, in_copy: bool = False) -> JobReport:
    """One round beside a cluster."""
    config = query.config(copy.path)
    tracker = Tracker(config, [replace(job, in_copy=in_copy) for job in config.chosen("clicks")], side)
    try:
        return tracker.round().jobs[0]
    finally:
        tracker.close()


def test_two_copies_are_two_stays(query: Query) -> None:
    """A copy of the copy, for a third cluster, has that one's numbers."""
    copy = copied(query)
    runs(query, copy, 3, RIGHT + 10)
    query.log = third_cluster()
    config = query.config(copy.path)
    (row,) = check(config, config.jobs, query.outside).plan.job().partitions
    assert (row.resume_offset, row.replay_at_most) == (RIGHT - 20, 10), "its anchor is that of its first start"
    accepting = replace(config, jobs=(replace(config.jobs[0], sinks=()),))
    plan = check(accepting, accepting.jobs, query.outside).plan
    clone(copy.path, query.folder / "third", plan, config=accepting, outside=query.outside)
    (row,) = query.check(query.folder / "third").plan.job().partitions
    assert (row.verdict, row.resume_offset) == (Verdict.MATCH, RIGHT - 20)


def test_a_copy_made_again_on_its_own_cluster_has_an_anchor_that_lags_as_before(query: Query) -> None:
    """Nobody has tracked the ten records since its first start: elsewhere they may all come again."""
    copy = copied(query)
    runs(query, copy, 3, RIGHT + 10)
    again = copied_again(query, copy)
    assert [found_of(query, each) for each in (copy, again)] == [(Verdict.MATCH, RIGHT + 10, 0)] * 2
    query.log = third_cluster()
    assert [found_of(query, each) for each in (copy, again)] == [(Verdict.BOUNDED, RIGHT - 20, 10)] * 2


def copied_again(query: Query, copy: Files) -> Files:
    """A copy of the copy, for the same cluster."""
    config = query.config(copy.path)
    plan = check(config, config.jobs, query.outside).plan
    clone(copy.path, query.folder / "again", plan, config=config, outside=query.outside)
    return Files.at(query.folder / "again")


def found_of(query: Query, copy: Files) -> tuple[Verdict, int | None, int | None]:
    (row,) = query.check(copy.path).plan.job().partitions
    return row.verdict, row.resume_offset, row.replay_at_most


def third_cluster() -> MemoryLog:
    """Record n is at n - 20 there."""
    made = MemoryLog("c")
    made.create("o", 1)
    for number in range(20, 100):
        made.partition("o", 0).append(PLANNED + number, b"k%d" % number, b"v%d" % number)
    return made


# ---------------------------------------------------------------- anchors


def anchor(number: int, offset: int, cluster: str) -> Anchor:
    return Anchor(offset, PLANNED + number, None, fingerprint(b"k%d" % number, b"v%d" % number), cluster)


def keep(query: Query, stored: StoredOffset) -> None:
    store = open_store(f"sqlite:///{query.folder}/anchors.db")
    (there,) = store.read("clicks")
    store.write("clicks", [Change(AT, there.version, stored, restores=True)], reason="recording", now_ms=NOW)
    store.close()


def rows_of(query: Query, copy: Files) -> list[Row]:
    store = query.outside.open_store(f"checkpoint:{copy.path}")
    try:
        return store.read("clicks")
    finally:
        store.close()
