"""The cost of a plan, against what is measured beside it: a change that makes a ratio 1.5 times as large is found.

After a change on purpose: ``python -m docs.benchmarks.guards --keep``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.benchmarks import guards


@pytest.mark.thorough
def test_a_pair_of_job_and_partition_costs_no_more_than_it_did(tmp_path: Path) -> None:
    assert guards.dearer(guards.of_pairs(tmp_path), guards.kept()) == []


@pytest.mark.thorough
@pytest.mark.system
def test_a_plan_costs_no_more_than_it_did_against_raw_requests_and_kafkas_tool(
    tmp_path: Path, kafka_jars: Path
) -> None:
    assert guards.dearer(guards.of_plans(tmp_path), guards.kept()) == []


@pytest.mark.parametrize(("ratio", "found"), [(1.4, []), (1.6, ["a pair: 1.60 now, 1.0 kept"])])
def test_half_as_much_again_is_too_much(ratio: float, found: list[str]) -> None:
    assert guards.dearer({"a pair": ratio}, {"a pair": 1.0}) == found


def test_a_ratio_that_is_not_kept_is_found() -> None:
    assert guards.dearer({"a pair": 1.0}, {}) == ["a pair: 1.00 now, None kept"]
