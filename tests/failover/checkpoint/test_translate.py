"""A plan laid beside what a checkpoint holds: what is rewritten, what is kept, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import Changed, ConfigError, NeedsPerson, Refused
from reconciler.core.verdicts import Verdict
from reconciler.failover.checkpoint.translate import Translation, refuse_undecided, translate
from reconciler.failover.checkpoint.verify import unproven
from reconciler.places.checkpoint.reading import read_checkpoint
from reconciler.plan.document import PartitionPlan, StartPolicy
from tests.failover.checkpoint.checkpoint_files import Files, job, row

O = {"o": {0: 30, 1: 31}}  # noqa: E741
ENDED = {"o": {0: 40, 1: 41}}
MOVED = {"0": '{"a.o":{"0":3,"1":4}}'}
"""What the rows of ``both`` make of source 0."""

Moved = Callable[..., Translation]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "checkpoint")


@pytest.fixture
def moved(files: Files) -> Moved:
    return lambda *rows, lives_there=False: translate(read_checkpoint(str(files.path)), job(*rows), moved=lives_there)


def both(**more: Any) -> list[PartitionPlan]:
    """Rows for the two partitions of ``o``: 30 becomes 3, and 31 becomes 4."""
    return [row(0, 30, 3, **more), row(1, 31, 4, **more)]


def ends(first: int, second: int) -> list[PartitionPlan]:
    return [*both(position="start"), row(0, 40, first, position="end"), row(1, 41, second, position="end")]


def new(partition: int, at: int, topic: str = "o") -> PartitionPlan:
    return row(partition, None, at, topic=topic, verdict=Verdict.NEW)


# ---------------------------------------------------------------- what is rewritten


def test_after_a_commit_only_the_newest_entry_is_rewritten(files: Files, moved: Moved) -> None:
    files.began({"o": {0: 0, 1: 0}})
    files.batch(0, {"o": {0: 10, 1: 11}})
    files.batch(1, O)
    assert moved(*both()) == Translation({"offsets/1": MOVED}, ("0",), ())


@pytest.mark.parametrize(
    ("rows", "end"),
    [(ends(13, 14), '{"a.o":{"0":13,"1":14}}'), (ends(2, 14), '{"a.o":{"0":3,"1":14}}'), (both(), MOVED["0"])],
    ids=["proven", "in front of its start", "not planned"],
)
def test_within_a_batch_its_start_and_its_end_are_rewritten(
    files: Files, moved: Moved, rows: list[PartitionPlan], end: str
) -> None:
    files.batch(0, O)
    files.planned(1, ENDED)
    found = moved(*rows)
    assert found.edits == {"offsets/0": MOVED, "offsets/1": {"0": end}}
    assert found.repeats_empty == (end == MOVED["0"])


def test_the_end_of_the_other_clusters_topic_proves_none_of_the_same_name(files: Files) -> None:
    """``b.o`` is the other cluster's ``o``; the end of this one's ``o`` is not proven."""
    files.batch(0, {"o": {0: 30}, "b.o": {0: 7}})
    files.planned(1, {"o": {0: 40}, "b.o": {0: 9}})
    others = [replace(row(0, at, at, topic="b.o", position=end), topic="o") for at, end in ((7, "start"), (9, "end"))]
    early = row(0, 40, 5, position="end", verdict=Verdict.EARLY)
    plan, found = job(row(0, 30, 3, position="start"), early, *others), read_checkpoint(str(files.path))
    assert unproven(found, translate(found, plan, moved=False), plan) == 10


@pytest.mark.parametrize("version", [1, 2])
def test_a_repartitioning_that_was_not_finished_is_refused(files: Files, moved: Moved, version: int) -> None:
    source = '0:{"o":{"0":30,"1":31}}' if version == 2 else '{"o":{"0":30,"1":31}}'
    for batch, partitions in ((0, 2), (1, 4)):
        settings = f'{{"batchTimestampMs":5,"conf":{{"spark.sql.shuffle.partitions":"{partitions}"}}}}'
        files.put(f"offsets/{batch}", f"v{version}\n{settings}\n{source}")
    files.done(0)
    with pytest.raises(Refused, match="Batch 1 spreads the state over 4 partitions and was not finished"):
        moved(*both(position="start"))
    files.done(1)
    assert moved(*both()).edits.keys() == {"offsets/1"}


def test_a_void_source_moves_where_it_began(files: Files, moved: Moved) -> None:
    files.began(O)
    files.batch(0, "-", {"p": {0: 9}})
    found = moved(*both())
    assert (set(found.edits), found.sources, found.kept) == ({"sources/0/0"}, ("0",), ("1",))


GONE = replace(row(1, 31, None, verdict=Verdict.UNRESOLVED, by_hand=True), absent=True)


@pytest.mark.parametrize(
    ("sources", "rows", "texts"),
    [
        ([O, O], both(), dict.fromkeys("01", MOVED["0"])),
        (
            [{"p": {0: 7}, "o": O["o"]}],
            [*both(), row(0, 7, 70, topic="p")],
            {"0": '{"a.p":{"0":70},"a.o":{"0":3,"1":4}}'},
        ),
        (
            [O],
            [*both(), *(replace(new(each, 8, "b.o"), topic="o") for each in range(2))],  # the other cluster's own o
            {"0": '{"a.o":{"0":3,"1":4},"o":{"0":8,"1":8}}'},
        ),
        ([O], [*both(), new(2, 5)], {"0": '{"a.o":{"0":3,"1":4,"2":5}}'}),
        ([O, "17"], [*both(), new(0, 6, "q")], {"0": '{"a.o":{"0":3,"1":4},"a.q":{"0":6}}'}),
        ([{"o": {**O["o"], 2: 32}}], [replace(each, spread=True) for each in both(verdict=Verdict.EARLY)], MOVED),
        ([{"o": {**O["o"], 2: 0}}], both(), MOVED),
        ([O], [row(0, 30, 3), GONE], {"0": '{"a.o":{"0":3}}'}),
        ([{"a.o": O["o"]}], both(), MOVED),
        ([O], both(there="o"), {"0": '{"o":{"0":3,"1":4}}'}),
        (
            [{"o": {0: 30}, "b.o": {0: 31}}],
            [row(0, 30, 3), row(0, 31, 4, topic="b.o", there="o")],
            {"0": '{"a.o":{"0":3},"o":{"0":4}}'},
        ),
    ],
    ids=[
        "two sources of one topic move together",
        "several topics of one source move together",
        "a topic of the other cluster that none has read is new, whatever this cluster calls so",
        "a new partition starts where the plan says",
        "a new topic goes to the only source",
        "fewer partitions are those that the plan spread them over",
        "a partition of which nothing was read and that the destination lacks is left out",
        "a missing partition that a person accepted is dropped",
        "a checkpoint that has failed over moves under its new names",
        "the same name on both sides",
        "two topics whose names are exchanged get each other's offsets",
    ],
)
def test_the_newest_entry_is_rewritten(
    files: Files, moved: Moved, sources: list[Any], rows: list[PartitionPlan], texts: dict[str, str]
) -> None:
    files.batch(0, *sources)
    assert moved(*rows, lives_there="a.o" in sources[0]).edits == {"offsets/0": texts}


def test_a_partition_that_came_with_the_batch_is_in_its_start_as_well(files: Files, moved: Moved) -> None:
    """Else Spark takes its first record there is for the start, and fails where that is not 0."""
    files.batch(0, {"o": {0: 30}})
    files.planned(1, {"o": {0: 40, 1: 5}, "p": {0: 6}})
    found = moved(row(0, 30, 3), new(1, 2), new(0, 1, "p"))
    assert found.edits["offsets/0"] == {"0": '{"a.o":{"0":3,"1":2},"a.p":{"0":1}}'}


# ---------------------------------------------------------------- what is refused


def a_new_topic(files: Files) -> list[PartitionPlan]:
    files.batch(0, O, {"p": {0: 1}})
    return [*both(), row(0, 1, 1, topic="p"), new(0, 6, "q")]


def an_end_that_moved(files: Files) -> list[PartitionPlan]:
    files.batch(0, {"o": {0: 30}})
    files.planned(1, {"o": {0: 41}})
    return [row(0, 30, 3, position="start"), row(0, 40, 13, position="end")]


def a_batch_committed_since(files: Files) -> list[PartitionPlan]:
    files.batch(0, {"o": {0: 30}})
    return [row(0, 30, 3, position="start"), row(0, 30, 13, position="end")]


def holding(*sources: Any, rows: list[PartitionPlan] | None = None) -> Callable[[Files], list[PartitionPlan]]:
    def write(files: Files) -> list[PartitionPlan]:
        files.batch(0, *sources)
        return rows or both()

    return write


@pytest.mark.parametrize(
    ("holds", "error", "match"),
    [
        (
            holding({"o": {0: 30, 1: 32}}),
            Changed,
            "o-1 had offset 31 when the plan was made, and has offset 32 in offsets/0 now",
        ),
        (
            holding({"o": {0: 30}}),
            Changed,
            "o-1 had offset 31 when the plan was made, and has no offset in offsets/0 now",
        ),
        (an_end_that_moved, Changed, "o-0 had offset 40 when the plan was made, and has offset 41 in offsets/1 now"),
        (a_batch_committed_since, Changed, "Batch 0 is committed, and was not"),
        (a_new_topic, Changed, "does not read the topics q"),
        (holding({"o": {**O["o"], 2: 32}}), Changed, "o-2 is in offsets/0, and not in the plan"),
        (holding({"x": {0: 30}}), Changed, "reads none of the topics of job clicks: o"),
        (
            holding({**O, "p": {0: 1}}),
            ConfigError,
            "Source 0 of the checkpoint reads o, p, and the plan's job has not p",
        ),
        (holding(O, '{"o":17}'), Refused, "Source 1 in offsets/0 names the topic o"),
        (holding(O, {"o": {0: 35, 1: 31}}), NeedsPerson, "several sources that are not equally far"),
        *((holding({"o": {0: 30}}, rows=[row(0, 30, n)]), ConfigError, "which is not an offset") for n in (-1, -2)),
    ],
)
def test_a_checkpoint_that_the_plan_does_not_fit_is_refused(
    files: Files, moved: Moved, holds: Callable[[Files], list[PartitionPlan]], error: type[Exception], match: str
) -> None:
    rows = holds(files)
    with pytest.raises(error, match=match):
        moved(*rows)


@pytest.mark.parametrize(
    ("verdict", "resume", "replay"),
    [
        (Verdict.UNRESOLVED, None, None),
        (Verdict.LOST, 3, 0),
        (Verdict.EARLY, 3, 2_000_000),
    ],
)
def test_a_partition_that_needs_a_decision_is_not_copied(
    verdict: Verdict, resume: int | None, replay: int | None
) -> None:
    rows = job(row(0, 30, 3), row(1, 31, resume, verdict=verdict, replay=replay))
    with pytest.raises(NeedsPerson, match=rf"a\.o-1 of job clicks must not start \({verdict.value}\)"):
        refuse_undecided(rows, StartPolicy())
    refuse_undecided(job(row(0, 30, 3), GONE), StartPolicy())
