"""Cloning a checkpoint, with a destination in memory: to the byte, and only what is proven."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import clock_ms
from reconciler.config.file import load_config
from reconciler.core.anchors import Anchor
from reconciler.core.errors import Changed, NeedsPerson
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.checkpoint.clone import clone
from reconciler.places.checkpoint.reading import MANIFEST, read_checkpoint
from reconciler.state.jobs import JobState
from reconciler.state.journal import OUTSIDE, Entry, StreamPartition
from reconciler.state.store import open_state
from reconciler.state.stored import Known
from tests.failover.checkpoint.checkpoint_files import (
    NOW,
    PLAN,
    PLANNED,
    Files,
    anchor_of,
    cloned,
    job,
    log,
    new,
    outside,
    plan,
    proven,
    refused,
    row,
)
from tests.memory_log import MemoryLog

# ---------------------------------------------------------------- to the byte


def test_one_line_changes_and_its_checksum_goes_all_else_is_the_same_bytes(files: Files) -> None:
    before = files.content()
    made = cloned(files)
    after = files.content(new(files))
    assert files.content() == before
    assert set(before) - set(after) == {"offsets/.1.crc"}
    assert set(after) - set(before) == {MANIFEST}
    assert {name for name in after if name in before and before[name] != after[name]} == {"offsets/1"}
    assert after["offsets/1"] == before["offsets/1"].replace(b'{"o":{"0":30,"1":31}}', b'{"a.o":{"0":3,"1":4}}')
    assert (made.batch, made.repeats, made.sources, made.kept) == (2, False, ("0",), ("1",))
    assert made.left_out == ("offsets/.1.crc",)


@pytest.mark.parametrize("repeats", [False, True])
def test_a_rewritten_file_has_the_time_and_the_permissions_of_the_original(files: Files, repeats: bool) -> None:
    """By their times an entry that is written at its batch's end shows real-time mode. One rewritten soon after the
    batch, within a third of the time between two, would look like it."""
    if repeats:
        files.planned(2, {"o": {0: 40, 1: 41}}, "19")
    last = 2 if repeats else 1
    for number in range(last + 1):
        planned = clock_ms() - 60_000 * (last - number) - 9_000
        entry = files.path / "offsets" / str(number)
        entry.write_text(entry.read_text().replace(str(PLANNED), str(planned)))
        entry.chmod(0o640)
        os.utime(entry, ns=(0, planned * 1_000_000))
    cloned(files)
    assert read_checkpoint(str(new(files))).behind is None
    for number in range(last + 1):
        was, made = ((path / "offsets" / str(number)).stat() for path in (files.path, new(files)))
        assert (made.st_mtime_ns, made.st_mode) == (was.st_mtime_ns, was.st_mode)


def test_the_manifest_has_every_changed_file_before_and_after(files: Files) -> None:
    before = files.content()
    cloned(files)
    found = json.loads((new(files) / MANIFEST).read_text())
    (changed,) = found["changed"]
    assert changed["file"] == "offsets/1"
    assert changed["before"].encode() == before["offsets/1"]
    assert changed["after"].encode() == (new(files) / "offsets/1").read_bytes()
    assert (found["format"], found["plan"]["sha256"]) == ("reconciler.checkpoint-clone/1", PLAN.to_json()["sha256"])


@pytest.mark.parametrize("committed", [False, True])
def test_a_snapshot_that_a_repeated_batch_made_before_is_not_copied(files: Files, committed: bool) -> None:
    """The batch writes its changes again, and Spark reads a snapshot before changes: its records would count twice."""
    if not committed:
        files.planned(2, {"o": {0: 40, 1: 41}}, "19")
        files.state(3)
    number = 2 if committed else 3  # the version that the next batch reads, or writes
    for partition in range(2):
        files.put(f"state/0/{partition}/{number}.snapshot", "state")
    before = files.content()
    made = cloned(files)
    gone = set() if committed else {f"state/0/{n}/{name}" for n in (0, 1) for name in ("3.snapshot", ".3.snapshot.crc")}
    assert {name for name in set(before) - set(files.content(new(files))) if name.startswith("state/")} == gone
    assert gone <= set(made.left_out)
    assert made.older == 0


# ---------------------------------------------------------------- only what is proven


def test_an_expired_plan_is_refused(files: Files) -> None:
    refused(files, Changed, "The plan expired", now_ms=NOW + 2_000_000)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda there: setattr(there, "cluster_id", "c"), r"The plan is for cluster b, but the destination is c"),
        (lambda there: there.topic_ids.update({"a.o": "another"}), "deleted or recreated"),
        (lambda there: there.partition("a.o", 1).delete_before(5), r"a\.o-1: the log is now \[5, 10\]"),
        (lambda there: there.partition("a.o", 0).compact([2]), r"a\.o-0: the record at 2 is gone"),
    ],
    ids=["another cluster", "a topic recreated", "retention", "a record that is gone"],
)
def test_a_destination_that_has_changed_is_refused(files: Files, change: Any, match: str) -> None:
    there = log(o=10)
    change(there)
    refused(files, Changed, match, there=there)


OTHER = anchor_of(7)
LOCATED = replace(row(0, 30, 3, verdict=Verdict.EARLY), record_fingerprint=OTHER.fingerprint)


@pytest.mark.parametrize(
    ("first", "error", "match"),
    [
        (proven(0, 30, 3, anchor=OTHER), Changed, r"a\.o-0: another record is at 2 now"),
        (LOCATED, Changed, r"a\.o-0: another record is at 2 now"),
        (row(0, 30, None, verdict=Verdict.UNRESOLVED, replay=None), NeedsPerson, "must not start"),
    ],
    ids=["not the anchor's record", "not the record located without an anchor", "undecided"],
)
def test_another_record_in_front_of_the_offset_is_refused(
    files: Files, first: Any, error: type[Exception], match: str
) -> None:
    refused(files, error, match, known=plan(job(first, proven(1, 31, 4))))


# ---------------------------------------------------------------- with the configuration


def with_anchors(files: Files, *, numbers: tuple[int, int] = (2, 3)) -> Any:
    """The job's configuration, with a journal that has the checkpoint's offsets: behind records of these numbers."""
    path = files.path.parent.parent / "reconciler.toml"
    path.write_text(
        f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "b:9092"\n[state]\nstore = "memory:{uuid.uuid4().hex}"\n'
        f'[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = ["o"]\noffsets = "checkpoint:{files.path}"\n'
    )
    config = load_config(path, {})
    open_state(config.state).create()
    keep(config, numbers, (30, 31))
    return config


def keep(config: Any, numbers: tuple[int, int], offsets: tuple[int, int], *, of_end: bool = False) -> None:
    """Append the records before these offsets to the job's journal; ``of_end``: of a batch that runs."""
    known = {}
    for partition, (number, offset) in enumerate(zip(numbers, offsets, strict=True)):
        of = anchor_of(number)
        anchor = Anchor(of.offset, of.timestamp_ms, None, of.fingerprint, "a", "a/o")
        known[StreamPartition("o", "a", partition)] = Known(offset, anchor)
    state = state_of(config)
    ends = {at: replace(each, processed=False) for at, each in known.items()}
    entry = Entry(OUTSIDE, NOW, {}, begun=ends) if of_end else Entry(OUTSIDE, NOW, known)
    assert state.append_journal(1, len(state.newest(1)) + 1, entry)


def state_of(config: Any) -> JobState:
    return JobState(open_state(config.state), "clicks")


@pytest.fixture
def below(tmp_path: Path) -> Files:
    made = Files(tmp_path / "below" / "checkpoint")
    made.began({"o": {0: 0, 1: 0}})
    made.batch(0, {"o": {0: 30, 1: 31}})
    return made


def world_of(config: Any, there: MemoryLog) -> Any:
    return replace(outside(there), state_of=lambda _: state_of(config))


def test_a_plan_that_check_made_is_cloned_with_its_configuration(below: Files) -> None:
    config, there = with_anchors(below), log(o=10)
    world = world_of(config, there)
    known = check(config, config.jobs, world).plan
    clone(below.path, new(below), known, config=config, outside=world)
    assert (new(below) / "offsets/0").read_text().endswith('\n{"a.o":{"0":3,"1":4}}')

    # From then on the copy is the job's, and a check finds every offset right:
    (of_copy,) = (replace(job, store=f"checkpoint:{new(below)}", moved=True) for job in config.jobs)
    rows = check(replace(config, jobs=(of_copy,)), [of_copy], world).plan.jobs[0].partitions
    assert [(each.finding, each.stored_offset, each.resume_offset) for each in rows] == [
        (Verdict.EXACT, 3, 3),
        (Verdict.EXACT, 4, 4),
    ]
    assert check(config, config.jobs, world).plan.to_json()["jobs"] == known.to_json()["jobs"], "the original's anchors"


def test_a_copy_of_a_copy_on_its_own_cluster_keeps_how_far_its_anchors_lag(below: Files) -> None:
    config = with_anchors(below)
    world = world_of(config, log(o=10))
    first, second = new(below), below.path.with_name("newer")
    clone(below.path, first, check(config, config.jobs, world).plan, config=config, outside=world)
    Files.at(first).batch(1, {"a.o": {0: 8, 1: 4}})
    (of_copy,) = (replace(job, store=f"checkpoint:{first}", moved=True) for job in config.jobs)
    now = replace(config, jobs=(of_copy,))
    clone(first, second, check(now, [of_copy], world).plan, config=now, outside=world)
    for address in (f"checkpoint:{first}", f"checkpoint:{second}"):
        rows = world.open_store(address).read("clicks")
        assert [(row.stored.offset, row.anchor_lag) for row in rows] == [(8, 5), (4, 0)]


def test_anchors_that_are_not_the_plans_any_more_are_refused(below: Files) -> None:
    config = with_anchors(below)
    known = check(config, config.jobs, world_of(config, log(o=10))).plan
    config = with_anchors(below, numbers=(2, 5))
    with pytest.raises(Changed, match="has changed since the plan"):
        clone(below.path, new(below), known, config=config, outside=world_of(config, log(o=10)))
    assert not new(below).exists()


def test_within_a_batch_a_plan_has_rows_for_its_start_and_its_end(below: Files) -> None:
    config, there = with_anchors(below), log(o=10)
    below.planned(1, {"o": {0: 36, 1: 37}})
    world = world_of(config, there)
    known = check(config, config.jobs, world).plan
    rows = [(r.partition, r.position, r.stored_offset, r.resume_offset) for r in known.jobs[0].partitions]
    assert rows == [(0, "start", 30, 3), (0, "end", 36, 3), (1, "start", 31, 4), (1, "end", 37, 4)]
    made = clone(below.path, new(below), known, config=config, outside=world)
    assert (made.repeats_empty, made.repeated_at_most) == (True, 12), "of the ends nothing was kept"
    assert read_checkpoint(str(new(below))).positions[0].end == {("a.o", 0): 3, ("a.o", 1): 4}


SELF_JOIN = ({"o": {0: 36, 1: 37}}, {"o": {0: 38, 1: 37}})
"""Each source asks for the topic's end by itself, and a record may have come in between."""


@pytest.mark.parametrize("ends", [SELF_JOIN, SELF_JOIN[::-1]])
def test_a_batch_whose_sources_end_at_different_offsets_of_a_partition_is_repeated_empty(
    below: Files, ends: tuple[Any, ...]
) -> None:
    """A plan has one end for a partition, which is not that of both sources."""
    config, there = with_anchors(below), log(o=10)
    below.began({"o": {0: 0, 1: 0}}, "1")
    below.batch(0, *[{"o": {0: 30, 1: 31}}] * 2)
    below.planned(1, *ends)
    keep(config, (5, 6), (36, 37), of_end=True)
    world = world_of(config, there)
    known = check(config, config.jobs, world).plan
    rows = {
        (r.partition, r.position): (r.stored_offset, r.resume_offset, r.replay_at_most) for r in known.job().partitions
    }
    assert rows[0, "end"] == (36, 3, 8)
    assert rows[1, "end"] == (37, 7, 0)
    assert "sources end at different offsets" in known.job().partitions[1].detail
    for to, given in (("new", known), ("newer", known.starts)):
        made = clone(below.path, below.path.with_name(to), given, config=config, outside=world)
        found = read_checkpoint(made.new_path)
        assert [each.end for each in found.positions] == [{("a.o", 0): 3, ("a.o", 1): 7}] * 2
        assert (made.repeats_empty, made.repeated_at_most) == (False, 14)


def test_a_batch_that_has_records_of_one_source_alone_is_not_taken_for_a_whole_one(below: Files) -> None:
    """The lowest end is the start, and proven; the furthest is not."""
    config, there = with_anchors(below), log(o=10)
    below.began({"o": {0: 0, 1: 0}}, "1")
    below.batch(0, *[{"o": {0: 30, 1: 31}}] * 2)
    below.planned(1, {"o": {0: 30, 1: 31}}, {"o": {0: 38, 1: 31}})
    world = world_of(config, there)
    known = check(config, config.jobs, world).plan
    end = next(row for row in known.job().partitions if (row.partition, row.position) == (0, "end"))
    assert (end.finding, end.resume_offset, end.replay_at_most) == (Verdict.EARLY, 3, 8)
    made = clone(below.path, new(below), known, config=config, outside=world)
    assert (made.repeats_empty, made.repeated_at_most) == (True, 8)


def test_the_end_that_the_journal_has_is_the_batchs_end(below: Files) -> None:
    config, there = with_anchors(below), log(o=10)
    below.planned(1, {"o": {0: 36, 1: 37}})
    keep(config, (5, 6), (36, 37), of_end=True)
    world = world_of(config, there)
    known = check(config, config.jobs, world).plan
    for to, given in (("new", known), ("newer", known.starts)):
        made = clone(below.path, below.path.with_name(to), given, config=config, outside=world)
        assert read_checkpoint(made.new_path).positions[0].start == {("a.o", 0): 3, ("a.o", 1): 4}
        assert read_checkpoint(made.new_path).positions[0].end == {("a.o", 0): 6, ("a.o", 1): 7}
        assert (made.repeats_empty, made.repeated_at_most) == (False, 0)
    assert check(config, config.jobs, world).plan.jobs[0] == known.jobs[0]
