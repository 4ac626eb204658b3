"""The end of a repeated batch in a copy: which records it has, and which come again behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.config.file import load_config
from reconciler.core.verdicts import Position, Verdict
from reconciler.failover.check import check
from reconciler.failover.checkpoint.clone import clone
from reconciler.failover.sinks.files import FileSink
from reconciler.failover.sinks.guard import Taken
from reconciler.places.checkpoint.reading import read_checkpoint
from reconciler.plan.costs import has_replay, outcome, replay_sum
from tests.failover.checkpoint.checkpoint_files import PLANNED, Files, log, new
from tests.failover.checkpoint.test_clone_rules import below, keep, with_anchors, world_of
from tests.failover.sinks.world import Query, query
from tests.memory_log import MemoryLog
from tests.plan.test_start_offsets import row as planned_row

__all__ = ["below", "query"]


def append(there: MemoryLog, partition: int, numbers: range) -> None:
    for number in numbers:
        there.partition("a.o", partition).append(PLANNED + number, b"k%d" % number, b"v%d" % number)


def begun(files: Files, config: Any) -> None:
    """A batch up to the records 5 and 6, whose ends have anchors."""
    files.planned(1, {"o": {0: 36, 1: 37}})
    keep(config, (5, 6), (36, 37), of_end=True)


# ---------------------------------------------------------------- partitions that the batch has no records of


@pytest.fixture
def grown() -> MemoryLog:
    """A destination whose topic has a third partition, which the source lacks."""
    made = MemoryLog("b")
    made.create("a.o", 3)
    for partition, count in enumerate((10, 10, 4)):
        append(made, partition, range(count))
    return made


@pytest.mark.parametrize("began", ["before the plan", "after it"])
def test_a_batch_ends_where_it_starts_in_a_partition_that_is_new_at_the_destination(
    below: Files, grown: MemoryLog, began: str
) -> None:
    """The policy places the end by the log of that moment, and a sink that has the batch drops what is before it."""
    with_anchors(below)
    file = below.path.parent.parent / "reconciler.toml"
    file.write_text(file.read_text().replace("[[jobs]]", '[policy]\nnew = "latest"\n[[jobs]]'))
    config = load_config(file, {})
    world = world_of(config, grown)
    if began == "before the plan":
        begun(below, config)
    known = check(config, config.jobs, world).plan
    if began == "after it":
        begun(below, config)
    append(grown, 2, range(4, 9))
    made = clone(below.path, new(below), known, config=config, outside=world)
    (source,) = read_checkpoint(made.new_path).positions
    assert source.start == {("a.o", 0): 3, ("a.o", 1): 4, ("a.o", 2): 4}
    assert source.end == {("a.o", 0): 6, ("a.o", 1): 7, ("a.o", 2): 4}
    assert (made.repeats_empty, made.repeated_at_most) == (False, 0)


# ---------------------------------------------------------------- records that come again behind a proven end


def test_records_of_a_batch_that_a_mirror_has_sent_again_behind_its_end_are_said_to_come_again(below: Files) -> None:
    config, there = with_anchors(below), log(o=10)
    for partition in range(2):
        append(there, partition, range(4, 7))
    begun(below, config)
    world = world_of(config, there)
    known = check(config, config.jobs, world).plan
    assert outcome(known) == "at most 5 records will be read again"
    made = clone(below.path, new(below), known, config=config, outside=world)
    (source,) = read_checkpoint(made.new_path).positions
    assert source.end == {("a.o", 0): 6, ("a.o", 1): 7}
    assert (made.repeats_empty, made.repeats_in_part, made.repeated_at_most) == (False, False, 5)
    assert made.warnings == [
        "up to 5 records of batch 1, which it may have written before the stop, come again in later batches"
    ]


def killed(query: Query) -> Query:
    """Killed in batch 3, whose end is proven, with some of its records sent again behind all others."""
    query.begin(3)
    query.keep_anchor(3, of_end=True)
    append(query.log, 0, range(36, 40))
    return query


def test_records_sent_again_are_counted_where_the_sink_does_not_remember_the_batch(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileSink, "last_taken", lambda sink, app_id: Taken(None, whole=False))
    made = killed(query).clone()
    assert (made.repeats_empty, made.repeated_at_most) == (False, 4)


def test_what_only_a_batch_without_a_proven_end_counts_does_not_come_again() -> None:
    """A start is exact then: the batch is repeated empty."""
    unproven = planned_row("a.o", 0, 6, Verdict.EARLY, position=Position.END, replay_at_most=3)
    rows = [planned_row("a.o", 0, 3), unproven]
    assert not has_replay(rows)
    assert replay_sum(rows) == "at most 0 records"
    assert has_replay([*rows, replace(unproven, position=Position.NEXT)])
