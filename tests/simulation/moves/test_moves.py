"""The hand-over model: its rules hold in small worlds, and each attack is found when the rule against it is gone."""

from __future__ import annotations

import pytest

from tests.simulation.moves.search import Searched, search, walk
from tests.simulation.moves.world import Left, Names, Place, World

pytestmark = pytest.mark.thorough  # the model alone; every run has it on the product's code
TWO_CLUSTERS = [
    World(place, names, marked)
    for place in Place
    for names in Names
    for marked in ((False, True) if place in (Place.AT_ONCE, Place.BY_ROW, Place.JOB_ONLY) else (False,))
]
WORLDS = [
    *TWO_CLUSTERS,
    *(each._replace(clusters="abc") for each in TWO_CLUSTERS),
    *(World(Place.GROUP, names, clusters="abc", renamed=True) for names in Names),
]
MUCH = Left(moves=3, cancels=1, rollbacks=1, starts=8, kills=4, syncs=1, restores=1, outages=1, tracks=3)
OFFSETS = [(2, 0), (0, 0), (0, 3)]
"""Where a stream's first record is: on the cluster that makes it, and on the other."""


def _name(world: World) -> str:
    more = ("marked" if world.marked else "", "renamed" if world.renamed else "")
    return "-".join((world.place.name.lower(), world.names.name.lower(), world.clusters, *filter(None, more)))


@pytest.mark.parametrize("world", WORLDS, ids=_name)
def test_every_history_of_one_move_is_safe(world: World) -> None:
    searched = search(world, Left(moves=1, starts=2, kills=1, cancels=1, at_once=1), most=6_000)
    assert not searched.broken
    assert searched.states >= 2_000


@pytest.mark.parametrize("world", WORLDS, ids=_name)
def test_random_histories_there_and_back_are_safe(world: World) -> None:
    for seed in range(2_000):
        base, copied = OFFSETS[seed % len(OFFSETS)]
        assert not walk(world._replace(base=base, copied=copied), MUCH, seed).broken


FAULTS = {
    "A1": (World(Place.AT_ONCE, Names.ONE), Left(moves=1, starts=3, restores=1, at_once=1)),
    "A2": (World(Place.CHECKPOINT, Names.ONE), Left(moves=1, starts=4, kills=2, restores=1, at_once=1)),
    "A5": (World(Place.BY_ROW, Names.ONE, copied=3, base=0), Left(cancels=1, at_once=1)),
    "A8": (World(Place.BY_ROW, Names.EXCHANGED), Left(moves=1, starts=2, at_once=1)),
    "A9": (World(Place.JOB_ONLY, Names.ONE), Left(moves=1)),
    "A10": (World(Place.AT_ONCE, Names.ONE), Left(starts=6, kills=2, restores=1, at_once=1)),
    "A11": (World(Place.AT_ONCE, Names.ONE), Left(moves=1, starts=2, kills=0, at_once=1)),
    "A13": (World(Place.CHECKPOINT, Names.TWO), Left(cancels=1, starts=5, kills=3, at_once=1)),
    "A14": (World(Place.JOURNAL, Names.TWO), Left(moves=1)),
    "A19": (World(Place.GROUP, Names.TWO), Left(moves=1, syncs=1)),
    "A21": (World(Place.AT_ONCE, Names.TWO), Left(kills=0, at_once=1)),
    "A50": (World(Place.AT_ONCE, Names.TWO), Left(kills=0, at_once=1)),
    "A51": (World(Place.AT_ONCE, Names.ONE), Left(moves=3, starts=4, kills=0)),
    "A53": (World(Place.AT_ONCE, Names.ONE), Left(starts=6, kills=2, restores=1, at_once=1, tracks=2)),
    "A52": (World(Place.AT_ONCE, Names.EXCHANGED, base=0, copied=3), Left(starts=4, kills=0, at_once=1)),
    "A54": (World(Place.GROUP, Names.TWO, clusters="abc", renamed=True), Left(moves=1, syncs=1)),
    "A55": (World(Place.CHECKPOINT, Names.TWO), Left(starts=4, kills=2, at_once=1)),
    "A57": (World(Place.CHECKPOINT, Names.ONE), Left(starts=4, kills=2, at_once=1)),
    "A58": (World(Place.CHECKPOINT, Names.ONE), Left(starts=4, kills=2, at_once=1)),
    "A59": (World(Place.CHECKPOINT, Names.TWO), Left(rollbacks=1, starts=5, kills=3, at_once=1)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_attack_is_found_when_its_rule_is_taken_out(fault: str) -> None:
    world, left = FAULTS[fault]
    found = _found(world._replace(fault=fault), left)
    assert found.broken, f"the model does not need its rule against {fault}"


ONCE = Left(moves=1, cancels=1, starts=2, kills=1, at_once=1)
EXCHANGED = {
    ("plan", "writing"): World(Place.AT_ONCE, Names.ONE),
    ("writing", "closing"): World(Place.AT_ONCE, Names.ONE),
    ("numbers", "lives"): World(Place.CHECKPOINT, Names.TWO),
    ("lives", "start"): World(Place.AT_ONCE, Names.TWO),
}
HARMLESS = {
    ("closing", "journal"): "nothing reads or appends to the new stay's journal before `lives`",
    ("journal", "numbers"): "neither is read before `lives`, and each run does both",
    ("closing", "numbers"): "what a driver stores between the two is not believed in the new stay (N4, N6)",
}


@pytest.mark.parametrize("writes", EXCHANGED, ids="-".join)
def test_two_writes_of_a_hook_that_are_exchanged_are_found(writes: tuple[str, str]) -> None:
    assert search(EXCHANGED[writes].exchanged(*writes), ONCE).broken


@pytest.mark.parametrize("writes", HARMLESS, ids="-".join)
def test_two_writes_whose_order_does_not_matter_may_be_exchanged(writes: tuple[str, str]) -> None:
    for world in (World(Place.AT_ONCE, Names.ONE), World(Place.CHECKPOINT, Names.TWO)):
        assert not search(world.exchanged(*writes), ONCE, most=4_000).broken, HARMLESS[writes]


def _found(world: World, left: Left) -> Searched:
    """The first broken history: a short one, or one of some thousands at random, which are longer."""
    searched = search(world, left, most=20_000)
    for seed in range(20_000):
        if searched.broken:
            break
        searched = walk(world, left, seed)
    return searched
