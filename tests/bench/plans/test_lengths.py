"""A search in a log of 10^12 records, as docs/explanation/performance.md describes it."""

from __future__ import annotations

from math import log2

import pytest

from tests.bench.plans.lengths import WAYS, computed

LENGTH = 10**12


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_the_longest_log_takes_about_two_probes_for_each_halving_at_most(way: str) -> None:
    found = computed(LENGTH, way, WAYS[way], searches=5)  # ends the test unless each search ends behind its anchor

    assert found["probes_most"] <= (2 if way == "record's time" else 2 * log2(LENGTH) + 4)
