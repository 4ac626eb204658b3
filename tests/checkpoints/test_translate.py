"""A plan laid beside what a checkpoint holds: what is rewritten, what is kept, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.checkpoints.reading import read_checkpoint
from reconciler.checkpoints.translate import Translation, refuse_undecided, translate
from reconciler.core.errors import Changed, ConfigError, NeedsPerson, Refused
from reconciler.core.verdicts import Verdict
from reconciler.formats.plan import PartitionPlan, StartPolicy
from tests.checkpoints.checkpoint_files import Files, job, row


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "checkpoint")


@pytest.fixture
def moved(files: Files) -> Callable[..., Translation]:
    return lambda *rows: translate(read_checkpoint(str(files.path)), job(*rows))


def both(**more: Any) -> list[PartitionPlan]:
    """Rows for the two partitions of ``o``: 30 becomes 3, and 31 becomes 4."""
    return [row(0, 30, 3, **more), row(1, 31, 4, **more)]


# ---------------------------------------------------------------- what is rewritten


def test_after_a_commit_only_the_newest_entry_is_rewritten(files: Files, moved: Callable[..., Translation]) -> None:
    files.began({"o": {0: 0, 1: 0}})
    files.batch(0, {"o": {0: 10, 1: 11}})
    files.batch(1, {"o": {0: 30, 1: 31}})
    found = moved(*both())
    assert found == Translation({"offsets/1": {"0": '{"a.o":{"0":3,"1":4}}'}}, ("0",), ())


def test_within_a_batch_its_start_and_its_end_are_rewritten(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30, 1: 31}})
    files.planned(1, {"o": {0: 40, 1: 41}})
    rows = [*both(position="start"), row(0, 40, 13, position="end"), row(1, 41, 14, position="end")]
    assert moved(*rows).edits == {
        "offsets/0": {"0": '{"a.o":{"0":3,"1":4}}'},
        "offsets/1": {"0": '{"a.o":{"0":13,"1":14}}'},
    }
    assert not moved(*rows).repeats_empty


@pytest.mark.parametrize("version", [1, 2])
def test_a_repartitioning_that_was_not_finished_is_refused(
    files: Files, moved: Callable[..., Translation], version: int
) -> None:
    source = '0:{"o":{"0":30,"1":31}}' if version == 2 else '{"o":{"0":30,"1":31}}'
    for batch, partitions in ((0, 2), (1, 4)):
        settings = f'{{"batchTimestampMs":5,"conf":{{"spark.sql.shuffle.partitions":"{partitions}"}}}}'
        files.put(f"offsets/{batch}", f"v{version}\n{settings}\n{source}")
    files.done(0)
    with pytest.raises(Refused, match="Batch 1 spreads the state over 4 partitions and was not finished"):
        moved(*both(position="start"))
    files.done(1)
    assert moved(*both()).edits.keys() == {"offsets/1"}


def test_within_the_first_batch_the_sources_beginning_is_rewritten(
    files: Files, moved: Callable[..., Translation]
) -> None:
    files.began({"o": {0: 30, 1: 31}})
    files.planned(0, {"o": {0: 40, 1: 41}})
    assert set(moved(*both()).edits) == {"sources/0/0", "offsets/0"}


def test_before_any_batch_the_sources_beginning_is_rewritten(files: Files, moved: Callable[..., Translation]) -> None:
    files.began({"o": {0: 30, 1: 31}})
    assert moved(*both()).edits == {"sources/0/0": {"0": '{"a.o":{"0":3,"1":4}}'}}


def test_where_numbers_are_missing_the_entry_before_is_the_start_whatever_its_number(
    files: Files, moved: Callable[..., Translation]
) -> None:
    files.batch(2, {"o": {0: 30, 1: 31}})
    files.planned(9, {"o": {0: 40, 1: 41}})
    assert set(moved(*both()).edits) == {"offsets/2", "offsets/9"}


def test_a_batch_whose_end_is_not_planned_is_repeated_empty(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30, 1: 31}})
    files.planned(1, {"o": {0: 40, 1: 41}})
    found = moved(*both())
    assert found.repeats_empty
    assert found.edits["offsets/0"] == found.edits["offsets/1"] == {"0": '{"a.o":{"0":3,"1":4}}'}


def test_an_end_never_lies_in_front_of_its_start(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30, 1: 31}})
    files.planned(1, {"o": {0: 40, 1: 41}})
    rows = [*both(position="start"), row(0, 40, 2, position="end"), row(1, 41, 14, position="end")]
    assert moved(*rows).edits["offsets/1"] == {"0": '{"a.o":{"0":3,"1":14}}'}


def test_named_sources_are_rewritten_by_name(files: Files, moved: Callable[..., Translation]) -> None:
    files.planned(0, 'pay:{"p":{"0":9}}', 'ord:{"o":{"0":30,"1":31}}', version=2)
    files.done(0)
    found = moved(*both())
    assert (found.edits, found.kept) == ({"offsets/0": {"ord": '{"a.o":{"0":3,"1":4}}'}}, ("pay",))


def test_a_void_source_moves_where_it_began(files: Files, moved: Callable[..., Translation]) -> None:
    files.began({"o": {0: 30, 1: 31}})
    files.batch(0, "-", {"p": {0: 9}})
    found = moved(*both())
    assert (set(found.edits), found.sources, found.kept) == ({"sources/0/0"}, ("0",), ("1",))


def test_two_sources_of_one_topic_move_together(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30, 1: 31}}, {"o": {0: 30, 1: 31}})
    assert moved(*both()).edits["offsets/0"] == dict.fromkeys("01", '{"a.o":{"0":3,"1":4}}')


def test_several_topics_of_one_source_move_together(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"p": {0: 7}, "o": {0: 30, 1: 31}})
    found = moved(*both(), row(0, 7, 70, topic="p"))
    assert found.edits["offsets/0"] == {"0": '{"a.p":{"0":70},"a.o":{"0":3,"1":4}}'}


# ---------------------------------------------------------------- partitions that one side lacks


def test_a_new_partition_starts_where_the_plan_says(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30, 1: 31}})
    found = moved(*both(), row(2, None, 5, verdict=Verdict.NEW))
    assert found.edits["offsets/0"] == {"0": '{"a.o":{"0":3,"1":4,"2":5}}'}


def test_a_partition_that_came_with_the_batch_is_in_its_start_as_well(
    files: Files, moved: Callable[..., Translation]
) -> None:
    """Else Spark takes its first record there is for the start, and fails where that is not 0."""
    files.batch(0, {"o": {0: 30}})
    files.planned(1, {"o": {0: 40, 1: 5}, "p": {0: 6}})
    rows = [row(0, 30, 3), row(1, None, 2, verdict=Verdict.NEW), row(0, None, 1, topic="p", verdict=Verdict.NEW)]
    found = moved(*rows)
    assert found.edits["offsets/0"] == {"0": '{"a.o":{"0":3,"1":2},"a.p":{"0":1}}'}


def test_a_new_topic_goes_to_the_only_source(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30, 1: 31}}, "17")
    new = row(0, None, 6, topic="q", verdict=Verdict.NEW)
    assert moved(*both(), new).edits["offsets/0"] == {"0": '{"a.o":{"0":3,"1":4},"a.q":{"0":6}}'}
    files.batch(1, {"o": {0: 30, 1: 31}}, {"p": {0: 1}})
    with pytest.raises(Changed, match="does not read the topics q"):
        moved(*both(), row(0, 1, 1, topic="p"), new)


def test_fewer_partitions_are_what_the_plan_spread_them_over(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30, 1: 31, 2: 32}})
    assert moved(*both(verdict=Verdict.REMAPPED)).edits["offsets/0"] == {"0": '{"a.o":{"0":3,"1":4}}'}
    with pytest.raises(Changed, match="o-2 is in offsets/0, and not in the plan"):
        moved(*both())


def test_a_missing_partition_is_dropped_only_if_a_person_accepted_it(
    files: Files, moved: Callable[..., Translation]
) -> None:
    files.batch(0, {"o": {0: 30, 1: 31}})
    gone = row(1, 31, None, verdict=Verdict.MISSING)
    with pytest.raises(NeedsPerson, match=r"a\.o-1 of job clicks must not start"):
        refuse_undecided(job(row(0, 30, 3), gone), StartPolicy())
    accepted = row(1, 31, None, verdict=Verdict.MISSING, by_hand=True)
    refuse_undecided(job(row(0, 30, 3), accepted), StartPolicy())
    assert moved(row(0, 30, 3), accepted).edits["offsets/0"] == {"0": '{"a.o":{"0":3}}'}


def test_a_partition_of_which_nothing_was_read_and_that_the_destination_lacks_is_left_out(
    files: Files, moved: Callable[..., Translation]
) -> None:
    """``check`` has no row for it, as nothing is to be handed out. Once it is there, the query reads it whole."""
    files.batch(0, {"o": {0: 30, 1: 31, 2: 0}})
    assert moved(*both()).edits["offsets/0"] == {"0": '{"a.o":{"0":3,"1":4}}'}
    files.planned(1, {"o": {0: 40, 1: 41, 2: 0}})
    ends = [row(0, 40, 5, position="end"), row(1, 41, 6, position="end")]
    assert moved(*both(position="start"), *ends).edits["offsets/1"] == {"0": '{"a.o":{"0":5,"1":6}}'}
    files.planned(1, {"o": {0: 40, 1: 41, 2: 1}})
    with pytest.raises(Changed, match="o-2 is in offsets/1, and not in the plan"):
        moved(*both(position="start"), *ends)


# ---------------------------------------------------------------- names


def test_a_checkpoint_that_has_failed_over_moves_under_its_new_names(
    files: Files, moved: Callable[..., Translation]
) -> None:
    files.batch(0, {"a.o": {0: 30, 1: 31}})
    assert moved(*both()).edits["offsets/0"] == {"0": '{"a.o":{"0":3,"1":4}}'}


def test_the_same_name_on_both_sides(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30, 1: 31}})
    assert moved(*both(there="o")).edits["offsets/0"] == {"0": '{"o":{"0":3,"1":4}}'}


def test_two_topics_whose_names_are_exchanged_get_each_others_offsets(
    files: Files, moved: Callable[..., Translation]
) -> None:
    """At ``a`` the query read ``o`` and the mirror of b's, ``b.o``; at ``b`` these are ``a.o`` and ``o``."""
    files.batch(0, {"o": {0: 30}, "b.o": {0: 31}})
    found = moved(row(0, 30, 3), row(0, 31, 4, topic="b.o", there="o"))
    assert found.edits["offsets/0"] == {"0": '{"a.o":{"0":3},"o":{"0":4}}'}


# ---------------------------------------------------------------- what is refused


def test_a_checkpoint_that_has_gone_on_is_refused(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30, 1: 32}})
    with pytest.raises(Changed, match="o-1 had offset 31 when the plan was made, and has offset 32 in offsets/0 now"):
        moved(*both())
    files.batch(1, {"o": {0: 30}})
    with pytest.raises(Changed, match="o-1 had offset 31 when the plan was made, and has no offset in offsets/1 now"):
        moved(*both())


def test_an_end_that_has_moved_is_refused(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30}})
    files.planned(1, {"o": {0: 41}})
    with pytest.raises(Changed, match="o-0 had offset 40 when the plan was made, and has offset 41 in offsets/1 now"):
        moved(row(0, 30, 3, position="start"), row(0, 40, 13, position="end"))


def test_a_batch_that_was_committed_since_is_refused(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30}})
    with pytest.raises(Changed, match="Batch 0 is committed, and was not"):
        moved(row(0, 30, 3, position="start"), row(0, 30, 13, position="end"))


def test_a_checkpoint_of_another_query_is_refused(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"x": {0: 30}})
    with pytest.raises(Changed, match="reads none of the topics of job clicks: o"):
        moved(*both())


def test_a_source_moves_with_all_of_its_topics(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30, 1: 31}, "p": {0: 1}})
    with pytest.raises(ConfigError, match="Source 0 of the checkpoint reads o, p, and the plan's job has not p"):
        moved(*both())


def test_a_source_of_another_kind_that_names_a_topic_of_the_job_is_refused(
    files: Files, moved: Callable[..., Translation]
) -> None:
    files.batch(0, {"o": {0: 30, 1: 31}}, '{"o":17}')
    with pytest.raises(Refused, match="Source 1 in offsets/0 names the topic o"):
        moved(*both())


def test_sources_that_are_not_equally_far_are_refused(files: Files, moved: Callable[..., Translation]) -> None:
    files.batch(0, {"o": {0: 30, 1: 31}}, {"o": {0: 35, 1: 31}})
    with pytest.raises(NeedsPerson, match="several sources that are not equally far"):
        moved(*both())


@pytest.mark.parametrize("offset", [-1, -2])
def test_latest_and_earliest_are_never_written(files: Files, moved: Callable[..., Translation], offset: int) -> None:
    files.batch(0, {"o": {0: 30}})
    with pytest.raises(ConfigError, match="which is not an offset"):
        moved(row(0, 30, offset))


@pytest.mark.parametrize(
    ("verdict", "resume", "replay"),
    [(Verdict.UNRESOLVED, None, None), (Verdict.LOST, 3, 0), (Verdict.BOUNDED, 3, 2_000_000)],
)
def test_what_needs_a_person_is_not_copied(verdict: Verdict, resume: int | None, replay: int | None) -> None:
    rows = job(row(0, 30, 3), row(1, 31, resume, verdict=verdict, replay=replay))
    with pytest.raises(NeedsPerson, match=rf"a\.o-1 of job clicks must not start \({verdict.value}\)"):
        refuse_undecided(rows, StartPolicy())
