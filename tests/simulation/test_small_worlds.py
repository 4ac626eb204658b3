"""Every world of a few records: on these the promise is not sampled, it is proven.

Larger ones are a command: python -m tests.simulation.campaign small --records 4 --resends 2
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from reconciler.core import search
from tests.simulation.campaign import add_up, dealt, finds, judge_many
from tests.simulation.worlds import small
from tests.simulation.worlds.exhaustive import KINDS, Space
from tests.simulation.worlds.histories import deliveries, patterns
from tests.simulation.worlds.small import SmallTally, Task


def proven(tasks: Sequence[Task], jobs: int) -> SmallTally:
    return add_up(judge_many, dealt(tasks, 40), SmallTally(), jobs)


MORE = [pytest.param(*sizes, marks=pytest.mark.thorough) for sizes in ((2, 2), (3, 1))]


@pytest.mark.parametrize(("records", "resends"), [(2, 1), *MORE])
def test_every_history_of_a_few_records(records: int, resends: int, jobs: int) -> None:
    """Any times, records missing, re-sends cut anywhere, retention anywhere, local writers, twins, every anchor."""
    tally = proven(small.tasks(records, resends), jobs)
    assert tally.questions.total() > 10_000
    assert set(tally.questions) == {kind.name for kind in KINDS}
    assert tally.is_clean, tally.text()


@pytest.mark.parametrize("records", [3, pytest.param(4, marks=pytest.mark.thorough)])
def test_no_later_resume_offset_could_be_proven_from_what_is_visible(records: int, jobs: int) -> None:
    """Among all histories of a few records of which at most two remain visible, in any disorder."""
    spaces = [Space(20, 20)]
    tasks = [task for task in small.tasks(records, 2, spaces=spaces) if task[0].count <= 2 >= len(task[0].labels) - 1]
    tally = proven(tasks, jobs)
    assert tally.is_clean, tally.text()
    assert tally.best == tally.questions, tally.text()


def test_a_search_that_skips_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_older_survives", lambda *_: _always())
    pieces = dealt(small.tasks(3, 1, spaces=[Space(10, 10)]), 400)
    assert finds(judge_many, pieces, "skips:", at_least=3)


@pytest.mark.thorough
def test_stepping_over_ids_that_are_not_unique_is_found_out() -> None:
    """Where a producer writes one record twice, nothing shows it: that no two share an id has to be said."""
    kinds = [kind for kind in KINDS if kind.unique]
    twins = patterns(3, 1, local=0, twins=True).items()
    tally = judge_many([(pattern, origins, Space(0, 0), kinds) for pattern, origins in twins])
    assert tally.broken["skips:"] > 10


def _always():  # type: ignore[no-untyped-def]
    yield from ()
    return True


# ---------------------------------------------------------------- the enumeration itself


def test_deliveries_of_two_records_by_hand() -> None:
    once = {(), (0,), (1,), (0, 1)}
    assert deliveries(2, 0) == once
    again = {(0, 0), (1, 1), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 1, 0, 1)}
    assert deliveries(2, 1) == once | again


def test_a_record_is_first_delivered_only_after_all_that_stand_before_it_and_are_not_missing() -> None:
    """The law of the first copy: no record is delivered before the first copy of an earlier one."""
    for delivered in deliveries(4, 2):
        firsts = list(dict.fromkeys(delivered))
        assert all(before < after for before, after in pairwise(firsts))


def test_a_pattern_keeps_all_the_ways_it_can_have_come_about() -> None:
    found = patterns(3, 1, local=1, twins=True)
    (alone,) = (origins for pattern, origins in found.items() if pattern.labels == (0,) and not pattern.whole)
    assert any(origin.order == () for origin in alone), "a local writer's"
    assert {hidden.rank for origin in alone for hidden in origin.hidden} == {0, 1}
    assert any(hidden.label == 0 for origin in alone for hidden in origin.hidden), "a twin that is not seen"
