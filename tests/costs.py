"""What each test costs in seconds of the processor and of the clock, its servers included. A plugin (Linux):

    .venv/bin/pytest -p tests.costs …    # adds lines to costs.txt, or to the file that $RECONCILER_TEST_COSTS names

On a busy machine the clock tells nothing, the processor still does. A server that several tests share is counted where
it works: started by the first of them. A process whose parent was killed is not counted.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

COSTS = Path(os.environ.get("RECONCILER_TEST_COSTS", "costs.txt"))


def cpu_s() -> float:
    """Seconds that this process, those below it and those that they have waited for have taken of the processor."""
    taken: dict[int, int] = {}
    below: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            taken[int(entry.name)] = sum(map(int, fields[11:15]))
            below[int(fields[1])].append(int(entry.name))
    total, left = 0, [os.getpid()]
    while left:
        process = left.pop()
        total += taken.get(process, 0)
        left += below[process]
    return total / os.sysconf("SC_CLK_TCK")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    cpu, began = cpu_s(), time.monotonic()
    try:
        return (yield)
    finally:
        with COSTS.open("a") as file:
            file.write(f"{cpu_s() - cpu:8.2f} s CPU {time.monotonic() - began:8.2f} s  {item.nodeid}\n")
