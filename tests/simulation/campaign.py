"""Attacks the search with simulated failovers: by the million at random, and with every one of a few records.

python -m tests.simulation.campaign random [--cases N] [--first-seed S] [--jobs J]
python -m tests.simulation.campaign small [--records R] [--resends K] [--jobs J]
python -m tests.simulation.campaign seed SEED

Ends with 1 if a promise was broken. A failure at random names its seed; ``seed SEED`` shows that one alone, in full.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pool
from types import ModuleType
from typing import Protocol, Self, TypeVar

from tests.simulation.tally import Tally
from tests.simulation.worlds import mirrored, own, small, spreads
from tests.simulation.worlds.small import SmallTally, Task

BLOCK = 500
BAR = 40
T = TypeVar("T")


class Sum(Protocol):
    def merge(self, other: Self, /) -> None: ...


S = TypeVar("S", bound=Sum)


def family(seed: int) -> ModuleType:
    """Eight of ten seeds are a mirrored partition, one a job on its own cluster, one has other partition counts."""
    return {8: own, 9: spreads}.get(seed % 10, mirrored)


def try_seeds(seeds: range) -> Tally:
    tally = Tally()
    for seed in seeds:
        tally.add(family(seed).try_seed(seed))
    return tally


def blocks(first: int, cases: int) -> list[range]:
    """The seeds in pieces, one a task."""
    return [range(at, min(at + BLOCK, first + cases)) for at in range(first, first + cases, BLOCK)]


def add_up(work: Callable[[T], S], pieces: Sequence[T], total: S, jobs: int, *, show: bool = False) -> S:
    """Do every piece, in ``jobs`` processes, into ``total``."""
    began = time.monotonic()
    with Pool(jobs) as pool:
        for done, part in enumerate(pool.imap_unordered(work, pieces, chunksize=1), start=1):
            total.merge(part)
            if show:
                _show(done, len(pieces), time.monotonic() - began)
    return total


def judge_many(some: Sequence[Task]) -> SmallTally:
    tally = SmallTally()
    for task in some:
        tally.merge(small.judge(task))
    return tally


def dealt(tasks: Sequence[Task], hands: int) -> list[Sequence[Task]]:
    """Split tasks into pieces that mix large and small ones."""
    return [piece for piece in (tasks[start::hands] for start in range(hands)) if piece]


def _show(done: int, pieces: int, seconds: float) -> None:
    filled = BAR * done // pieces
    left = seconds / done * (pieces - done)
    end = "\n" if done == pieces else ""
    bar = "#" * filled + "." * (BAR - filled)
    print(
        f"\r[{bar}] {100 * done // pieces:3}%  {seconds:6.0f} s, {left:.0f} s to go ",
        end=end,
        file=sys.stderr,
        flush=True,
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="way", required=True)
    at_random, every, one = ways.add_parser("random"), ways.add_parser("small"), ways.add_parser("seed")
    for way in (at_random, every):
        way.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    at_random.add_argument("--cases", type=int, default=1_000_000)
    at_random.add_argument("--first-seed", type=int, default=0)
    every.add_argument("--records", type=int, default=3)
    every.add_argument("--resends", type=int, default=1)
    one.add_argument("seed", type=int)
    asked = parser.parse_args(arguments)
    if asked.way == "seed":
        print(family(asked.seed).describe(asked.seed))
        broken = [sentence for trial in family(asked.seed).try_seed(asked.seed) for sentence in trial.broken]
        print(*(f"BROKEN: {sentence}" for sentence in broken), sep="\n")
        return bool(broken)
    show = sys.stderr.isatty()
    if asked.way == "random":
        total = add_up(try_seeds, blocks(asked.first_seed, asked.cases), Tally(), asked.jobs, show=show)
    else:
        pieces = dealt(small.tasks(asked.records, asked.resends), 400)
        total = add_up(judge_many, pieces, SmallTally(), asked.jobs, show=show)
    print(total.text())
    return not total.is_clean


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
