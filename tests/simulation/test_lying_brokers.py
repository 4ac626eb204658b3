"""Brokers whose time lookups are wrong: no record is skipped, whatever they answer.

The long campaign is a command: python -m tests.simulation.campaign random --family lying --cases 1000000
"""

from __future__ import annotations

from functools import partial

import pytest

from reconciler.core import bounds, timebound
from tests.simulation.campaign import add_up, blocks, dealt, finds, try_seeds
from tests.simulation.worlds import small
from tests.simulation.worlds.exhaustive import Space
from tests.simulation.worlds.lying import LIES
from tests.simulation.worlds.small import SmallTally, Task, judge_lies

try_lying = partial(try_seeds, name="lying")


def judge_all(tasks: list[Task]) -> SmallTally:
    tally = SmallTally()
    for task in tasks:
        tally.merge(judge_lies(task))
    return tally


def test_no_lookup_makes_a_search_skip(jobs: int, thorough: bool) -> None:
    cases = 40_000 if thorough else 1_000
    tally = add_up(try_lying, blocks(0, cases, 250), try_lying(range(0)), jobs)
    assert tally.trials == cases
    assert not tally.broken, tally.text()
    assert {kind for kind, _ in tally.verdicts} >= {f"lookups: {name}" for name in LIES}


@pytest.mark.parametrize("records", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_no_answers_at_all_make_a_search_of_a_few_records_skip(records: int, jobs: int) -> None:
    tasks = small.tasks(records, 1, local=0, spaces=[Space(20, 20)])
    tally = add_up(judge_all, dealt(tasks, 40), SmallTally(), jobs)
    assert tally.questions.total() > (10_000 if records > 1 else 100)
    assert tally.is_clean, tally.text()


def test_believing_an_answer_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timebound, "contradicts", lambda *_: False)
    monkeypatch.setattr(bounds, "doubt_of", _never)
    monkeypatch.setattr(bounds.Bounds, "at", _near)
    assert finds(try_lying, blocks(0, 2_000, 50), "skips", at_least=20)


def _near(self, lower, lower_ms, limits):  # type: ignore[no-untyped-def]
    """As a search began before: eight offsets in front of the answer, which it did not check."""
    return bounds.replace(self, lower=lower, lower_ms=None, safe_ms=None, begin=max(self.start, lower - 8))


def _never(*_: object) -> str:
    raise AssertionError
