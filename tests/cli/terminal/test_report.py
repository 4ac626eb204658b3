"""A plan as text: which partitions must not start, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reconciler.cli.terminal.report import plan_text
from reconciler.cli.terminal.text import MOST_NAMES
from reconciler.core.verdicts import Verdict
from reconciler.formats.plan import PartitionPlan, StartPolicy
from tests.formats.test_plan import part, plan_of


def stops(rows: Sequence[PartitionPlan]) -> list[str]:
    """The sentences on partitions that must not start."""
    shown = plan_text(plan_of(*rows), StartPolicy(), columns=1_000, colour=False)
    return [line.strip() for line in str(shown).split("\n") if "must not start" in line]


def gone(number: int, detail: str = "the destination has no such topic") -> PartitionPlan:
    return replace(part(), partition=number, verdict=Verdict.MISSING, resume_offset=None, detail=detail)


def test_partitions_that_stop_for_one_reason_share_a_sentence() -> None:
    first, second = stops([gone(0), gone(1, "another reason"), gone(2)])
    topic = part().topic
    assert first.startswith(f"{topic}-0, {topic}-2 must not start: the destination has no such topic. ")
    assert second.startswith(f"{topic}-1 must not start: another reason. ")


def test_of_many_partitions_the_sentence_names_the_first() -> None:
    (said,) = stops([gone(number) for number in range(MOST_NAMES + 30)])
    assert f"{part().topic}-{MOST_NAMES - 1} and 30 more must not start: " in said
    assert f"{part().topic}-{MOST_NAMES}," not in said


def numbers_said(*rows: PartitionPlan) -> list[str]:
    shown = str(plan_text(plan_of(*rows), StartPolicy(), columns=1_000, colour=False))
    return [line.strip() for line in shown.split("\n") if "placed by" in line]


def test_what_is_assumed_of_numbers_without_anchors_is_said_once() -> None:
    bare = replace(part(), anchor=None, verdict=Verdict.MOVED)
    assumed = "right if the source's topic was not recreated meanwhile."
    assert numbers_said(bare) == [f"1 partition is placed by its number alone, without an anchor: {assumed}"]
    several = numbers_said(bare, replace(bare, partition=1, verdict=Verdict.BOUNDED), replace(part(), partition=2))
    assert several == [f"2 partitions are placed by their numbers alone, without an anchor: {assumed}"]


def test_nothing_is_assumed_of_other_rows() -> None:
    bare = replace(part(), anchor=None, verdict=Verdict.MOVED)
    assert not numbers_said(
        part(),
        replace(bare, partition=1, verdict=Verdict.NEW),
        replace(bare, partition=2, verdict=Verdict.BOUNDED, by_row_time=True),
        replace(bare, partition=3, set_by_hand=True),
        replace(bare, partition=4, verdict=Verdict.UNRESOLVED, resume_offset=None),
    )
