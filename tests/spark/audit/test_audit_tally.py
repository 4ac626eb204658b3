"""The figures that follow from a record's counts: every small combination, checked against invariants."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from reconciler.spark.audit.naming import ID
from reconciler.spark.audit.sightings import OUTPUT, SCHEMA
from reconciler.spark.audit.tally import Rules, judged, tally

pytestmark = pytest.mark.system

CASES = [case for case in product(range(3), repeat=6) if any(case)]
"""How often a record is processed and unprocessed at the source; in front of, behind the resume offset and beyond the
audit's end at the destination; and in the output."""


@pytest.fixture(scope="module")
def cases(spark: Any) -> tuple[Any, Any]:
    """A log and an output with one name a case."""
    seen, rows = [], []
    for number, case in enumerate(CASES):
        name = number.to_bytes(4, "big")
        for side, times in enumerate(case):
            for turn in range(times):
                if side == OUTPUT:
                    rows.append((0, 0, ID, name, turn))
                else:
                    seen.append((0, 0, side, ID, name, 0, turn))
    log = spark.createDataFrame(seen, SCHEMA).cache()
    return log, spark.createDataFrame(rows, "topic int, place int, by string, name binary, seq int").cache()


def figures(cases: tuple[Any, Any], rules: Rules) -> dict[tuple[int, ...], Any]:
    seen, rows = cases
    names = judged(tally(seen, "place", rows if rules.has_output else None), rules).collect()
    return {CASES[int.from_bytes(row["name"], "big")]: row for row in names}


def test_against_a_living_source_output_and_figures_add_up(cases: tuple[Any, Any]) -> None:
    found = figures(cases, Rules(source_lives=True, has_output=True, unique=False, by_id=True))
    for (sp, su, db, da, dl, out), row in found.items():
        assert not (row["lost"] and row["doubled"])
        assert row["possibly_lost"] == row["possibly_doubled"] == 0
        assert row["lost_not_at_destination"] + row["lost_in_front_of_resume"] <= row["lost"]
        due = sp + su or da
        waiting = min(dl, max(0, su - da))  # unprocessed ones that the job has not come to
        if sp + su + db + da + dl == 0:
            assert row["output_unknown"] == out
        elif sp + su:
            assert due - waiting <= out + row["lost"] - row["doubled"] <= due
            assert row["lost"] == 0 or out + row["lost"] == due - waiting, "no more than must be there by now"
        else:
            assert row["lost"] == max(0, da - out)
            assert row["doubled"] == max(0, out - db - da - dl)


def test_without_an_output_the_jobs_reads_and_the_figures_add_up(cases: tuple[Any, Any]) -> None:
    found = figures(cases, Rules(source_lives=True, has_output=False, unique=False, by_id=False))
    for (sp, su, db, da, dl, _), row in found.items():
        if sp + su == 0:
            assert (row["lost"], row["doubled"], row["only_at_destination"]) == (0, 0, db + da + dl)
            continue
        assert sp + da + min(dl, max(0, su - da)) == sp + su - row["lost"] + row["doubled"]
        assert row["lost"] == row["lost_not_at_destination"] + row["lost_in_front_of_resume"]
        assert row["lost_in_front_of_resume"] <= db
        assert row["read_again"] == (row["doubled"] if sp else 0)


def test_against_a_dead_source_certain_figures_hold_for_every_possible_source(cases: tuple[Any, Any]) -> None:
    """A mirror delivers each record at least once: the source held it once, up to as often as the destination does."""
    found = figures(cases, Rules(source_lives=False, has_output=True, unique=False, by_id=True))
    for (sp, su, db, da, dl, out), row in found.items():
        if db + da == 0 or sp + su:
            continue
        lost = [max(0, max(source, da) - out) for source in range(1, db + da + 1)]
        assert (row["lost"], row["lost"] + row["possibly_lost"]) == (min(lost), max(lost))
        doubled = [max(0, out - source) for source in range(1, db + da + dl + 1)]
        assert row["doubled"] == min(doubled)
        assert row["doubled"] + row["possibly_doubled"] <= max(doubled)
        assert row["read_again"] <= min(row["doubled"], da)


def test_unique_ids_leave_no_doubt_except_for_names_shared_with_local_writers(cases: tuple[Any, Any]) -> None:
    plain = figures(cases, Rules(source_lives=False, has_output=True, unique=True, by_id=True))
    shared = figures(cases, Rules(source_lives=False, has_output=True, unique=True, by_id=True, shared=(0,)))
    for case, row in plain.items():
        sp, su, db, da, dl, out = case
        if sp + su or db + da + dl == 0:
            continue
        assert (row["lost"], row["doubled"]) == (int(db + da > 0 and out == 0), max(0, out - 1))
        assert row["possibly_lost"] == row["possibly_doubled"] == 0
        other = shared[case]
        assert (other["lost"], other["possibly_lost"]) == ((row["lost"], 0) if da else (0, row["lost"]))


def test_figures_are_computed_on_the_executors(cases: tuple[Any, Any]) -> None:
    """Nothing is brought to the driver before the last sum: no plan of an audit collects, or sorts all in one place."""
    seen, rows = cases
    rules = Rules(source_lives=True, has_output=True, unique=False, by_id=True)
    plan = judged(tally(seen, "place", rows), rules)._jdf.queryExecution().executedPlan().toString()
    assert "HashAggregate" in plan
    for word in ("SinglePartition", "collect_list", "collect_set", "SortAggregate", "CartesianProduct"):
        assert word not in plan
