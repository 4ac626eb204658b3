"""Random walks of the hand-over model on the product's functions: ``python -m tests.simulation.moves --walks N``."""

from __future__ import annotations

import argparse
import gc
import sys

import pytest

from tests.simulation.moves.product import install
from tests.simulation.moves.search import walk
from tests.simulation.moves.test_moves import MUCH, OFFSETS, WORLDS, _name
from tests.simulation.moves.world import World


def main() -> int:
    """Print a line for each world, and the shortest broken walk of each. Returns 1 if a walk was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.moves", description=__doc__)
    parser.add_argument("--walks", type=int, default=100_000, help="how many walks in all worlds together")
    parser.add_argument("--seed", type=int, default=1, help="the first walk's seed")
    parser.add_argument("--world", default="", help="only the worlds whose names contain this")
    options = parser.parse_args()
    install(pytest.MonkeyPatch())
    gc.disable()  # a walk makes no cycles, and what is remembered is large
    worlds = [each for each in WORLDS if options.world in _name(each)]
    all_of = [_walks(each, options.seed, options.walks // len(worlds)) for each in worlds]
    walks, steps, states, broken = (sum(column) for column in zip(*all_of, strict=True))
    print(f"all: {walks:,} walks, {steps:,} steps, {states:,} distinct states, {broken} broken")
    return 1 if broken else 0


def _walks(world: World, first: int, count: int) -> tuple[int, int, int, int]:
    seen: set[int] = set()
    steps, broken = 0, []
    for number, (base, copied) in enumerate(OFFSETS):
        variant = world._replace(base=base, copied=copied)
        for seed in range(first + number, first + count, len(OFFSETS)):
            found = walk(variant, MUCH, seed, seen=seen)
            steps += found.states
            if found.broken:
                broken.append((found.states, seed, found.broken))
    print(f"{_name(world)}: {count:,} walks, {steps:,} steps, {len(seen):,} distinct states, {len(broken)} broken")
    if broken:
        print(f"  seed {min(broken)[1]}: {min(broken)[2]}")
    sys.stdout.flush()
    return count, steps, len(seen), len(broken)


if __name__ == "__main__":
    sys.exit(main())
