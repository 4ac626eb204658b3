"""The promises, held against an oracle: thousands of random worlds."""

from __future__ import annotations

import pytest
from oracle import complain, failures_of
from simulate import answer, carry_out, make_case, question_of

from reconciler.core import candidates, scan, search, timebound


@pytest.mark.parametrize("first_seed", range(0, 6000, 1000))
def test_random_worlds(first_seed: int) -> None:
    failures = failures_of(make_case(seed) for seed in range(first_seed, first_seed + 1000))
    assert not failures, complain(failures)


@pytest.mark.parametrize("first_seed", range(50_000, 52_000, 1000))
def test_random_worlds_read_in_small_bites(first_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With reads of a few records these small logs take the ways of long ones: bisection, many chunks."""
    for module in (scan, search, timebound, candidates):
        for name, size in (("FIRST_READ", 2), ("LARGEST_READ", 4), ("PEEK", 2), ("PEEK_BACK", 1)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, size)
    failures = failures_of(make_case(seed) for seed in range(first_seed, first_seed + 1000))
    assert not failures, complain(failures)


def test_the_same_world_gets_the_same_answer() -> None:
    for seed in range(300):
        case = make_case(seed)
        first, second = (answer(carry_out(case), question_of(case)) for _ in range(2))
        assert first == second
