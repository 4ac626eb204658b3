"""A copy of a checkpoint where no [anchors] store has its anchors: it has them itself."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from reconciler.config.file import Config
from reconciler.core.errors import Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.outside import Outside
from reconciler.hook.start import Start
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import OffsetStore
from reconciler.stores.registry import open_store
from reconciler.tracking.track import Tracker
from tests.checkpoints.checkpoint_files import PLANNED, Files
from tests.sinks.ends.test_tracked_ends import side_of
from tests.sinks.world import PER_BATCH, Query, query
from tests.starting import start_of, state_in_memory

__all__ = ["query"]

RIGHT = 3 * PER_BATCH


def without_store(query: Query) -> tuple[Config, Outside]:
    """The configuration has no [anchors]; the time of the checkpoint's own entry places its offset."""
    query.extra = '[policy]\nno_anchor = "row-time"'
    config = query.config()
    outside = replace(query.outside, open_store=partial(open_store, kafka_client={}))
    return replace(config, anchor_store=None, jobs=(replace(config.jobs[0], sinks=()),)), outside


def start(query: Query, config: Config, outside: Outside) -> Start:
    """The hook's start; the first makes the copy."""
    query.state = query.state or state_in_memory(config.jobs[0])
    made = start_of(config, query.folder, state=query.state)
    made.correct(check(made.config, (made.job,), outside), outside, lambda plan: None)
    return made


def test_the_hook_starts_on_its_copy_again_and_again(query: Query) -> None:
    query.log = MemoryLog("b")
    query.log.create("a.o", 1)
    for number in range(100):  # the entry's own time is that of record 20
        query.log.partition("a.o", 0).append(PLANNED - 20 + number, b"k%d" % number, b"v%d" % number)
    config, outside = without_store(query)
    start(query, config, outside)
    copy = Files.at(Path(query.copy))
    for number in (3, 4):
        made = start(query, config, outside)
        (row,) = check(made.config, (made.job,), outside).plan.job().partitions
        assert (row.verdict, row.stored_offset, row.resume_offset) == (
            Verdict.MATCH,
            row.stored_offset,
            row.stored_offset,
        )
        query.run(range(number, number + 1), copy, "a.o", 0)


def test_an_anchor_store_that_fails_while_the_copy_is_made_costs_no_later_start(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    config = query.config()
    opener = query.outside.open_store

    def failing(address: str) -> OffsetStore:
        if address == config.anchor_store:
            raise Unreachable("It does not answer.")
        return opener(address)

    start(query, config, replace(query.outside, open_store=failing))
    assert "its anchors were not kept" in caplog.text
    start(query, config, query.outside)


def test_the_anchor_of_a_copys_beginning_is_not_kept_for_a_later_offset(query: Query) -> None:
    """``track``, beside the cluster that the copy runs on, looks each offset up."""
    query.start_at_destination()
    copy = Files.at(Path(query.copy))
    query.run(range(3, 4), copy, "a.o", 0)
    config = query.config(copy.path)
    config = replace(config, jobs=(replace(config.jobs[0], topics=("a.o",), sinks=()),))
    tracker = Tracker(config, config.jobs, side_of(query, query.log))
    try:
        assert tracker.round().jobs[0].exact == 1
    finally:
        tracker.close()
    (kept,) = open_store(f"sqlite:///{query.folder}/anchors.db").read("clicks", ["a.o"])
    assert kept.stored.anchor is not None
    assert (kept.stored.offset, kept.stored.anchor.offset) == (RIGHT + PER_BATCH, RIGHT + PER_BATCH - 1)
