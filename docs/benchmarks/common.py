"""The parts that all benchmarks share: running a program and taking its cost, medians, the machine, and the report."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import libversion

from reconciler import __version__
from reconciler.artifacts import KAFKA_VERSION

PR_SET_CHILD_SUBREAPER = 36
"""Of Linux' prctl: processes that lose their parent become children of this one."""


IN_MEMORY = Path("/dev/shm")
ROOM = 2 * 1024**3


@contextmanager
def off_the_disk(otherwise: Path) -> Iterator[Path]:
    """A temporary folder in memory, or ``otherwise`` where there is no room for one (2 GiB).

    For a broker of thousands of partitions: it flushes some files for each, and nothing else on the disk goes on
    meanwhile. Beside it, tests waited for minutes.
    """
    if not IN_MEMORY.is_dir() or shutil.disk_usage(IN_MEMORY).free < ROOM:
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="reconciler-bench-") as folder:
        yield Path(folder)


class Cost(NamedTuple):
    """Of one run of a program: wall and CPU seconds, and its peak memory in MB."""

    wall_s: float
    cpu_s: float
    peak_mb: float

    def text(self) -> str:
        return f"{self.wall_s:>8.2f} {self.cpu_s:>8.2f} {self.peak_mb:>8.0f}"


HEAD = f"{'wall s':>8} {'CPU s':>8} {'MB':>8}"


def measured(command: Sequence[str], *, allowed: Sequence[int] = (0,)) -> Cost:
    """The cost of one run, its start included. Its output is dropped; an unexpected end shows its last errors.

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
        code, said, *cost = json.loads(file.read())
    os.waitpid(watcher, 0)
    if code not in allowed:
        raise SystemExit(f"{' '.join(command[:6])} … ended with {code}:\n{said}")
    return Cost(*cost)


def _reaped(command: Sequence[str]) -> tuple[int, str, float, float, float]:
    """Run it and wait for all that it started: its exit code, the end of what it wrote as errors, and the cost."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began = time.perf_counter()
    with open(os.devnull, "wb") as nowhere, tempfile.TemporaryFile() as errors:
        outputs = [(os.POSIX_SPAWN_DUP2, file.fileno(), number) for number, file in ((1, nowhere), (2, errors))]
        process = os.posix_spawn(command[0], command, _as_installed(), file_actions=outputs)
        _, status, used = os.wait4(process, 0)
        wall_s, all_used = time.perf_counter() - began, [used]
        with suppress(ChildProcessError):
            while True:
                all_used.append(os.wait4(-1, 0)[2])
        errors.seek(0)
        said = errors.read()[-2_000:].decode("utf-8", "replace")
    cpu_s = sum(each.ru_utime + each.ru_stime for each in all_used)
    return os.waitstatus_to_exitcode(status), said, wall_s, cpu_s, max(each.ru_maxrss for each in all_used) / 1024


def _as_installed() -> dict[str, str]:
    """The environment of a program whose byte code is kept, as pip keeps it: compiling takes longer than the rest."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def in_turn(
    commands: Mapping[str, Sequence[str]],
    runs: int,
    *,
    allowed: Sequence[int] = (0,),
    of_runs: Callable[[Sequence[float]], float] = statistics.median,
) -> dict[str, Cost]:
    """The medians of so many runs of each, after a warm-up; in turn, so that what else the machine does hits all.

    ``of_runs`` takes another figure of the runs than the median.
    """
    taken: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            cost = measured(command, allowed=allowed)
            if number:
                taken[name].append(cost)
    return {name: Cost(*map(of_runs, zip(*costs, strict=True))) for name, costs in taken.items()}


def this_python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def this_program(*arguments: str) -> list[str]:
    return this_python("-m", "reconciler", *arguments)


# ---------------------------------------------------------------- programs that run on


def peak_mb(pid: int) -> int:
    """The most that was resident of a running process."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


def cpu_s(pid: int) -> float:
    """The CPU seconds of a process, without its children's; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------- the report


def print_json(
    benchmark: str,
    shape: Mapping[str, Any],
    rows: Any,
    path: Path | None = None,
    *,
    versions: Mapping[str, str] | None = None,
) -> None:
    """Print the result as one line of JSON, and keep it in ``path``. ``shape``: the logs, and the options.

    ``versions``: of other programs that took part.
    """
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
                "kafka": KAFKA_VERSION,
                "reconciler": __version__,
                "confluent-kafka": importlib.metadata.version("confluent-kafka"),
                "librdkafka": libversion()[0],
                **(versions or {}),
            },
            "shape": {key: str(value) if isinstance(value, Path) else value for key, value in shape.items()},
            "rows": rows,
        }
    )
    print(text)
    if path is not None:
        path.write_text(text + "\n")
