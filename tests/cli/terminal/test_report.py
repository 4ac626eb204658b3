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
