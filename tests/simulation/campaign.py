"""Attacks the search with simulated failovers: by the million at random, and with every one of a few records.

python -m tests.simulation.campaign random [--family NAME] [--cases N] [--first-seed S] [--jobs J]
python -m tests.simulation.campaign small [--records R] [--resends K] [--jobs J]
python -m tests.simulation.campaign pairs [--records R] [--resends K] [--jobs J]
python -m tests.simulation.campaign seed SEED [--family NAME]

``pairs`` are the small histories of jobs without anchors. A family is one kind of worlds: by default each seed has one.

Ends with 1 if a promise was broken. A failure at random names its seed; ``seed SEED`` shows that one alone, in full.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from types import ModuleType
from typing import Protocol, Self, TypeVar

from tests.simulation.tally import Tally
from tests.simulation.worlds import lying, mirrored, own, resent, small, spreads
from tests.simulation.worlds.small import SmallTally, Task
from tests.simulation.worlds.unanchored import bare, bare_small, both_ways, carried, renewed, renewed_carried
from tests.simulation.worlds.unanchored.bare_small import BareTally

BLOCK = 500
BAR = 40
PARTS = 60
T = TypeVar("T")


class Sum(Protocol):
    def merge(self, other: Self, /) -> None: ...


S = TypeVar("S", bound=Sum)


class Judged(Protocol):
    broken: Counter[str]


FAMILIES = {
    "mirrored": mirrored,
    "bare": bare,
    "both-ways": both_ways,
    "renewed": renewed,
    "renewed-carried": renewed_carried,
    "carried": carried,
    "lying": lying,
    "own": own,
    "resent": resent,
    "spreads": spreads,
}


def family(seed: int, name: str | None = None) -> ModuleType:
    """The family of this name. Else six of ten seeds are a mirrored partition; one has a mirror that restarts often,
    one no anchor, one is a job on its own cluster, one has other partition counts."""
    return FAMILIES[name] if name else {6: resent, 7: bare, 8: own, 9: spreads}.get(seed % 10, mirrored)


def try_seeds(seeds: range, name: str | None = None) -> Tally:
    tally = Tally()
    for seed in seeds:
        tally.add(family(seed, name).try_seed(seed))
    return tally


def blocks(first: int, cases: int, size: int = BLOCK) -> list[range]:
    """The seeds in pieces, one a task."""
    return [range(at, min(at + size, first + cases)) for at in range(first, first + cases, size)]


def add_up(work: Callable[[T], S], pieces: Sequence[T], total: S, jobs: int, *, show: bool = False) -> S:
    """Do every piece, in ``jobs`` processes, into ``total``; one job is this process.

    Processes of their own, not forks: a fork of a process with Kafka clients collects them as its own, and crashes.
    """
    began = time.monotonic()
    if jobs == 1:
        for done, piece in enumerate(pieces, start=1):
            total.merge(work(piece))
            if show:
                _show(done, len(pieces), time.monotonic() - began)
        return total
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        parts = as_completed([pool.submit(work, piece) for piece in pieces])
        for done, part in enumerate(parts, start=1):
            total.merge(part.result())
            if show:
                _show(done, len(pieces), time.monotonic() - began)
    return total


def finds(work: Callable[[T], Judged], pieces: Iterable[T], word: str, *, at_least: int = 1) -> bool:
    """Whether the pieces break this promise so often. Ends as soon as it is known."""
    broken = 0
    for piece in pieces:
        broken += work(piece).broken[word]
        if broken >= at_least:
            return True
    return False


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
    pairs = ways.add_parser("pairs")
    for way in (at_random, every, pairs):
        way.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    for way in (at_random, one):
        way.add_argument("--family", choices=tuple(FAMILIES))
    at_random.add_argument("--cases", type=int, default=1_000_000)
    at_random.add_argument("--first-seed", type=int, default=0)
    for way in (every, pairs):
        way.add_argument("--records", type=int, default=3)
        way.add_argument("--resends", type=int, default=1)
    one.add_argument("seed", type=int)
    asked = parser.parse_args(arguments)
    if asked.way == "seed":
        worlds = family(asked.seed, asked.family)
        print(worlds.describe(asked.seed))
        broken = [sentence for trial in worlds.try_seed(asked.seed) for sentence in trial.broken]
        print(*(f"BROKEN: {sentence}" for sentence in broken), sep="\n")
        return bool(broken)
    show = sys.stderr.isatty()
    if asked.way == "random":
        work = partial(try_seeds, name=asked.family)
        total: Tally | SmallTally | BareTally = add_up(
            work, blocks(asked.first_seed, asked.cases), Tally(), asked.jobs, show=show
        )
    elif asked.way == "pairs":
        parts = [[(asked.records, asked.resends, part, PARTS)] for part in range(PARTS)]
        total = add_up(bare_small.judge_all, parts, BareTally(), asked.jobs, show=show)
    else:
        pieces = dealt(small.tasks(asked.records, asked.resends), 400)
        total = add_up(judge_many, pieces, SmallTally(), asked.jobs, show=show)
    print(total.text())
    return not total.is_clean


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
