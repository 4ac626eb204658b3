"""The hand-over model on the product's reading and writing of places: as safe, and each attack is found as before."""

from __future__ import annotations

import pytest

from tests.simulation.moves.product import install
from tests.simulation.moves.search import search, walk
from tests.simulation.moves.test_moves import FAULTS, MUCH, OFFSETS, WORLDS, _found, _name
from tests.simulation.moves.world import Left, World
from tests.sizes import sampled

READ_OR_WRITTEN = ("A5", "A8", "A14", "A19", "A21", "A50", "A51", "A52")
"""The attacks whose rule is not in the model's own reading."""


@pytest.fixture(autouse=True)
def product(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


@pytest.mark.parametrize("world", WORLDS, ids=_name)
def test_every_history_of_one_move_is_safe_with_the_product(world: World) -> None:
    searched = search(world, Left(moves=1, starts=2, kills=1, cancels=1, at_once=1), most=1_000)
    assert not searched.broken
    assert searched.states >= 700


@pytest.mark.parametrize("world", WORLDS, ids=_name)
def test_random_histories_are_safe_with_the_product(world: World, request: pytest.FixtureRequest) -> None:
    for seed in range(3_000 if request.config.getoption("--thorough") else 20):
        base, copied = OFFSETS[seed % len(OFFSETS)]
        assert not walk(world._replace(base=base, copied=copied), MUCH, seed).broken


@pytest.mark.parametrize("fault", sampled(READ_OR_WRITTEN, 2, always=("A8", "A21").__contains__))
def test_an_attack_is_found_with_the_product(fault: str) -> None:
    world, left = FAULTS[fault]
    assert _found(world._replace(fault=fault), left).broken
