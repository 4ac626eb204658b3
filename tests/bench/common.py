"""The parts that all benchmarks share: running a program and taking its cost, medians, the machine, and the report."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from reconciler import __version__

PR_SET_CHILD_SUBREAPER = 36
"""Of Linux' prctl: processes that lose their parent become children of this one."""


class Cost(NamedTuple):
    """Of one run of a program: wall and CPU seconds, and its peak memory in MB."""

    wall_s: float
    cpu_s: float
    peak_mb: float

    def text(self) -> str:
        return f"{self.wall_s:>8.2f} {self.cpu_s:>8.2f} {self.peak_mb:>8.0f}"


HEAD = f"{'wall s':>8} {'CPU s':>8} {'MB':>8}"


def measured(command: Sequence[str], *, allowed: Sequence[int] = (0,)) -> Cost:
    """The cost of one run, its start included. Its output is dropped.

    CPU seconds are those of the program and of all processes that it started, also if it did not wait for them, as for
    the one that reads records. Memory is that of the largest; no figure is below what this process holds itself.
    """
    answer, here = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the copy only waits
        watcher = os.fork()
    if watcher == 0:
        try:
            os.write(here, json.dumps(_reaped(command)).encode())
        finally:
            os._exit(0)
    os.close(here)
    with open(answer, "rb") as file:
        code, *cost = json.loads(file.read())
    os.waitpid(watcher, 0)
    if code not in allowed:
        raise SystemExit(f"{' '.join(command[:6])} … ended with {code}")
    return Cost(*cost)


def _reaped(command: Sequence[str]) -> tuple[int, float, float, float]:
    """Run it and wait for all that it started: its exit code, and the cost."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began = time.perf_counter()
    with open(os.devnull, "wb") as nowhere:
        quiet = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), number) for number in (1, 2)]
        process = os.posix_spawn(command[0], command, os.environ, file_actions=quiet)
    _, status, used = os.wait4(process, 0)
    wall_s, all_used = time.perf_counter() - began, [used]
    with suppress(ChildProcessError):
        while True:
            all_used.append(os.wait4(-1, 0)[2])
    cpu_s = sum(each.ru_utime + each.ru_stime for each in all_used)
    return os.waitstatus_to_exitcode(status), wall_s, cpu_s, max(each.ru_maxrss for each in all_used) / 1024


def in_turn(commands: Mapping[str, Sequence[str]], runs: int, *, allowed: Sequence[int] = (0,)) -> dict[str, Cost]:
    """The medians of so many runs of each, after a warm-up; in turn, so that what else the machine does hits all."""
    taken: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            cost = measured(command, allowed=allowed)
            if number:
                taken[name].append(cost)
    return {name: Cost(*map(statistics.median, zip(*costs, strict=True))) for name, costs in taken.items()}


def this_program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "reconciler", *arguments]


def print_json(benchmark: str, shape: Mapping[str, Any], rows: Any, path: Path | None = None) -> None:
    """Print the result as one line of JSON, and keep it in ``path``. ``shape``: the logs, and the options."""
    text = json.dumps(
        {
            "benchmark": benchmark,
            "machine": {
                "cpu": platform.machine(),
                "cores": os.cpu_count(),
                "system": platform.platform(),
                "load": os.getloadavg(),
            },
            "versions": {
                "python": platform.python_version(),
                "kafka": "4.1.0",
                "reconciler": __version__,
                "confluent-kafka": importlib.metadata.version("confluent-kafka"),
            },
            "shape": {key: str(value) if isinstance(value, Path) else value for key, value in shape.items()},
            "rows": rows,
        }
    )
    print(text)
    if path is not None:
        path.write_text(text + "\n")
