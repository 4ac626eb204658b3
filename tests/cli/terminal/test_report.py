"""A plan as text: which partitions must not start, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reconciler.cli.terminal.report import plan_text
from reconciler.core.text import MOST_NAMES
from reconciler.core.verdicts import MatchedBy, Verdict
from reconciler.plan.document import NotJudged, PartitionPlan, StartPolicy
from tests.plan.test_plan import part, plan_of

MOST = 20


def stops(rows: Sequence[PartitionPlan], most: int | None = None) -> list[str]:
    """The sentences on partitions that must not start."""
    shown = plan_text(plan_of(*rows), StartPolicy(), columns=1_000, colour=False, most=most)
    return [line.strip() for line in str(shown).split("\n") if "must not start" in line]


def gone(number: int, detail: str = "the destination has no such topic") -> PartitionPlan:
    return replace(part(), partition=number, finding=Verdict.UNRESOLVED, resume_offset=None, detail=detail)


def test_partitions_that_stop_for_one_reason_share_a_sentence() -> None:
    first, second = stops([gone(0), gone(1, "another reason"), gone(2)])
    topic = part().topic
    assert first.startswith(f"{topic}-0, {topic}-2 must not start: the destination has no such topic. ")
    assert second.startswith(f"{topic}-1 must not start: another reason. ")


def test_of_many_partitions_the_sentence_names_the_first() -> None:
    (said,) = stops([gone(number) for number in range(MOST_NAMES + 30)])
    assert f"{part().topic}-{MOST_NAMES - 1} and 30 more must not start: " in said
    assert f"{part().topic}-{MOST_NAMES}," not in said


def over_budget(number: int = 0) -> PartitionPlan:
    bound = replace(part(), topic="a.orders", source_topic="orders", partition=number, finding=Verdict.EARLY)
    return replace(bound, replay_at_most=5_000_000, replay_exact=None, detail="only a bound")


def test_partitions_without_rows_are_said_after_many_worse_verdicts_that_may_start() -> None:
    behind = [replace(part(), partition=n, finding=Verdict.BEHIND, detail="the mirror is behind") for n in range(MOST)]
    new = replace(part(), topic="a.orders", source_topic="orders", finding=Verdict.NEW, stored_offset=None, anchor=None)
    without = replace(new, no_rows=True, detail="the store has no row of this topic")
    (said,) = stops([*behind, without], MOST)
    assert "a.orders-0 must not start: the store has no row of this topic." in said


def test_a_partition_over_the_budget_is_said_after_many_that_were_accepted() -> None:
    accepted = [replace(part(), partition=n, finding=Verdict.LOST, set_by_hand=True) for n in range(MOST)]
    (said,) = stops([*accepted, over_budget()], MOST)
    assert said.startswith("a.orders-0 must not start: only a bound.")


def test_a_shortened_table_shows_the_rows_that_must_not_start_before_all_others() -> None:
    accepted = [replace(part(), partition=n, finding=Verdict.LOST, set_by_hand=True) for n in range(MOST)]
    plan = plan_of(*accepted, over_budget())
    _, _, _, heads, first, *_ = str(plan_text(plan, StartPolicy(), columns=1_000, colour=False, most=MOST)).split("\n")
    assert heads.startswith("PARTITION")
    assert first.startswith("a.orders-0 ")


def test_a_second_reason_is_said_though_the_shortened_table_is_full_of_a_first() -> None:
    first, second = stops([*(gone(number) for number in range(MOST)), over_budget()], MOST)
    assert "the destination has no such topic" in first
    assert "only a bound" in second


def test_of_many_reasons_one_of_each_kind_is_said_and_the_others_are_counted() -> None:
    said = stops([*(gone(number, f"reason {number}") for number in range(MOST + 5)), over_budget()], MOST)
    assert len(said) == MOST + 1
    assert any("only a bound" in sentence for sentence in said)
    assert said[-1] == "6 more must not start, for other reasons; `reconciler show PLAN` lists all."


def lines_of(*rows: PartitionPlan) -> str:
    return str(plan_text(plan_of(*rows), StartPolicy(), columns=1_000, colour=False))


def test_of_several_jobs_each_has_a_line_above_the_partitions() -> None:
    one = plan_of(part(), gone(1))
    (job,) = one.jobs
    right = replace(job, name="views", partitions=(part(),))
    sick = NotJudged("sick", "The store gave no answer.")
    shown = str(plan_text(replace(one, jobs=(job, right), not_judged=(sick,)), StartPolicy(), columns=1_000))
    first, second, third, blank, *_ = shown.split("\n")
    assert first == f"{job.name}: must not start: {gone(1).key} (unresolved): the destination has no such topic"
    assert second.startswith("views: starts ")
    assert (third, blank) == ("sick: must not start: it could not be judged. The store gave no answer.", "")


def test_records_that_the_mirror_lacks_are_said_to_be_processed() -> None:
    row = replace(part(), finding=Verdict.BEHIND)
    assert f"last records of {row.key}. They are processed already; they come twice if the mirror returns." in lines_of(
        row
    )
    assert "has not delivered record" in lines_of(row)
    assert "They are processed already" not in lines_of(part())


def test_an_offset_behind_the_proven_record_is_the_jobs_own() -> None:
    own = replace(part(), finding=Verdict.EARLY, stored_offset=2_250, resume_offset=2_250)
    row = replace(own, matched_by=MatchedBy.ID, record_offset=1_999)
    assert "stored here by the job itself, since record 1,999" in lines_of(row)
    assert "stored here by the job itself" not in lines_of(replace(row, record_offset=2_249))


def numbers_said(*rows: PartitionPlan) -> list[str]:
    shown = str(plan_text(plan_of(*rows), StartPolicy(), columns=1_000, colour=False))
    return [line.strip() for line in shown.split("\n") if "placed by" in line]


def test_what_is_assumed_of_numbers_without_anchors_is_said_once() -> None:
    bare = replace(part(), anchor=None, finding=Verdict.EXACT)
    assumed = "right if the source's topic was not recreated meanwhile."
    assert numbers_said(bare) == [f"1 partition is placed by its number alone, without an anchor: {assumed}"]
    several = numbers_said(bare, replace(bare, partition=1, finding=Verdict.EARLY), replace(part(), partition=2))
    assert several == [f"2 partitions are placed by their numbers alone, without an anchor: {assumed}"]


def test_nothing_is_assumed_of_other_rows() -> None:
    bare = replace(part(), anchor=None, finding=Verdict.EXACT)
    assert not numbers_said(
        part(),
        replace(bare, partition=1, finding=Verdict.NEW),
        replace(bare, partition=2, finding=Verdict.EARLY, by_row_time=True),
        replace(bare, partition=3, set_by_hand=True),
        replace(bare, partition=4, finding=Verdict.UNRESOLVED, resume_offset=None),
    )
