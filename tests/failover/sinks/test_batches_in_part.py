"""A query killed in a batch of which a copy would repeat a part: the sink would take that part for the whole."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.core.errors import NeedsPerson
from reconciler.failover.check import check
from reconciler.failover.checkpoint.clone import clone
from reconciler.places.checkpoint.log import Offsets
from reconciler.places.checkpoint.reading import MANIFEST, read_checkpoint
from reconciler.places.registry import open_store
from tests.failover.sinks.world import BEFORE, PER_BATCH, Query, query

__all__ = ["query"]

EMPTY = [({("a.o", 0): 30}, {("a.o", 0): 30}), ({("k", 0): 15}, {("k", 0): 15})]
"""Of ``two``, where both sources' records come in the batch after it."""


@pytest.fixture
def two(query: Query) -> Query:
    """It reads ``o`` of the lost cluster and ``k`` of a third one, and was killed in batch 3. It has no state."""
    query.files.began({"k": {0: 0}}, "1")
    for number in range(3):
        query.files.batch(number, {"o": {0: BEFORE + PER_BATCH * (number + 1)}}, {"k": {0: 5 * (number + 1)}})
    query.files.planned(3, {"o": {0: 140}}, {"k": {0: 20}})
    shutil.rmtree(query.files.path / "state")
    query.ignored = ("k",)
    return query


def positions(path: str) -> list[tuple[Offsets | None, Offsets | None]]:
    return [(each.start, each.end) for each in read_checkpoint(path).positions]


def test_a_source_that_stays_leaves_its_records_for_the_next_batch_too(two: Query) -> None:
    made = two.clone()
    assert positions(made.new_path) == EMPTY
    assert (made.repeats_empty, made.repeated_at_most, made.kept, made.later) == (True, 0, ("1",), ("1",))
    assert made.warnings == [
        "source 1 is unchanged: the plan's job has none of its topics; its records of batch 3 come in the next one"
    ]


def test_a_batch_whose_end_is_proven_is_repeated_whole(two: Query) -> None:
    two.keep_anchor(3, of_end=True)
    made = two.clone()
    whole = [({("a.o", 0): 30}, {("a.o", 0): 40}), ({("k", 0): 15}, {("k", 0): 20})]
    assert (positions(made.new_path), made.repeats_empty, made.later) == (whole, False, ())


def test_a_job_without_sinks_keeps_what_it_can_of_the_batch_and_says_so(two: Query) -> None:
    config = two.config()
    config = replace(config, jobs=tuple(replace(job, sinks=()) for job in config.chosen("clicks")))
    known = check(config, config.jobs, two.outside).plan
    made = clone(two.files.path, str(two.folder / "copy"), known, config=config, outside=two.outside)
    assert positions(made.new_path)[1] == ({("k", 0): 15}, {("k", 0): 20})
    assert (made.repeats_empty, made.repeated_at_most) == (False, 10)


def test_the_copys_manifest_does_not_call_the_offsets_that_stay_the_destinations(two: Query) -> None:
    made = two.clone()
    rows = {row.key.topic: row for row in open_store(f"checkpoint:{made.new_path}").read("clicks")}
    assert rows["a.o"].numbered_by is not None
    assert rows["k"].numbered_by is None
    changed = json.loads((Path(made.new_path) / MANIFEST).read_text())["changed"]
    assert any('"k"' in edit["after"] for edit in changed)


# ---------------------------------------------------------------- sources that are not Kafka's


@pytest.mark.parametrize("end", ['{"logOffset":3}', '{"logOffset":2}'])
def test_a_source_whose_part_cannot_wait_stops_the_copy_unless_it_has_no_part(query: Query, end: str) -> None:
    for number in range(3):
        offsets = {"o": {0: BEFORE + PER_BATCH * (number + 1)}}
        query.files.batch(number, offsets, f'{{"logOffset":{number}}}')
    shutil.rmtree(query.files.path / "state")
    query.files.planned(3, {"o": {0: 140}}, end)
    if end.endswith("3}"):
        with pytest.raises(NeedsPerson, match="the end of batch 3 is not proven, and its source 1 is not Kafka's"):
            query.clone()
        assert not (query.folder / "copy").exists()
        query.keep_anchor(3, of_end=True)
        assert not query.clone().repeats_empty
        return
    assert query.start_at_destination()
    query.put_out(range(3, 4))
    with pytest.raises(NeedsPerson, match="its batch 3 has records, and this checkpoint's has none"):
        query.start_at_destination()
