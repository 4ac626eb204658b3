"""A loop of plain Python, by which other work is measured: a busy or slow machine slows both.

python -S -m docs.benchmarks.loop [STEPS]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

STEPS = 100_000


def loop(steps: int = STEPS) -> int:
    """Generators, tuples and dictionaries, as in a search."""
    seen: dict[tuple[str, int], int] = {}
    for key in _names(steps):
        seen[key] = seen.get(key, 0) + len(key[0])
    return len(seen)


def _names(count: int) -> Iterator[tuple[str, int]]:
    for number in range(count):
        yield "events", number % 1_000


if __name__ == "__main__":
    loop(int(sys.argv[1]) if sys.argv[1:] else STEPS)
