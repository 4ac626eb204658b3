"""The cost of a checkpoint's copy on HDFS, beside ``hdfs dfs -cp`` of the same checkpoint.

    python -m tests.bench.stores.checkpoint_clone_hdfs [--shapes 2000:50] [--rounds 3] [--at-once 1 4 16 64] [--kinds …]

Starts HDFS (one NameNode and one DataNode in one process, on this machine), and writes checkpoints as
``checkpoint_clone`` makes them: files of state, and KiB in each. HDFS has no copy on the server: every byte passes
through the client. Copies are made in turn: ``clone`` over WebHDFS; of all files, which is what ``hdfs dfs -cp``
copies, with so many at once; and ``hdfs dfs -cp`` over HDFS's own protocol, its start included, with as many threads as
it has by itself, and with 16. Prints a table of medians, and the same as JSON with the machine. CPU is that of the
client and of HDFS; memory is the most that this process has held by then; ``lists`` are the seconds in which folders
were listed.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from reconciler.artifacts import java_executable
from reconciler.checkpoints.clone import clone
from reconciler.checkpoints.files import AT_ONCE, Listed, Tree
from reconciler.lab.kafka import HOST
from tests.bench.common import print_json
from tests.bench.stores.checkpoint_clone import checkpoint
from tests.checkpoints.checkpoint_files import NOW, PLAN, log, outside
from tests.costs import cpu_s
from tests.lab.servers.hdfs import Hdfs
from tests.lab.servers.jars import hdfs_jars

CP_THREADS = 16
KINDS = ("clone", "all", "cp", "cp-threads")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["2000:50"], metavar="FILES:KIB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with Hdfs(place / "hdfs", hdfs_jars(), heap="1g") as hdfs:
            for shape in options.shapes:
                files, size = map(int, shape.split(":"))
                rows.append(measured(OnHdfs(hdfs, place), files, size * 1024, options))
    for row in rows:
        print(f"{row['files']} files, {row['mib']:.0f} MiB")
        for kind, found in row["kinds"].items():
            print(
                f"  {kind:28} {found['wall_s']:>8.2f} s   CPU {found['client_cpu_s']:>6.2f} s and HDFS's "
                f"{found['hdfs_cpu_s']:>6.2f} s   {found['peak_mb']:>4.0f} MB   lists {found['lists_s']:>5.2f} s"
            )
    print_json("stores.checkpoint_clone_hdfs", vars(options), rows, options.json)


class OnHdfs:
    """HDFS's own client, and the copies."""

    def __init__(self, hdfs: Hdfs, place: Path) -> None:
        self._hdfs, self._place = hdfs, place
        self._settings = place / "settings"
        self._settings.mkdir(exist_ok=True)
        address = f"<property><name>fs.defaultFS</name><value>hdfs://{HOST}:{hdfs.ports[0]}</value></property>"
        (self._settings / "core-site.xml").write_text(f"<configuration>{address}</configuration>")

    def shell(self, *arguments: str) -> None:
        """``hdfs dfs ARGUMENTS``."""
        places = f"{self._settings}:{hdfs_jars()}/*"
        java = [str(java_executable()), "-cp", places, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        command = [*java, "org.apache.hadoop.fs.FsShell", *arguments]
        subprocess.run(command, check=True, timeout=580, stdout=subprocess.DEVNULL)

    def put(self, files: int, size: int) -> str:
        made = checkpoint(self._place / f"{files}-{size}", files, size)
        self.shell("-put", "-t", str(CP_THREADS), str(made.path), f"/{files}-{size}")
        return f"/{files}-{size}"

    def clone(self, path: str, to: str) -> None:
        clone(self._hdfs.url(path), self._hdfs.url(to), PLAN, outside=outside(log(o=10), NOW))

    def clone_all(self, path: str, to: str, *, at_once: int = AT_ONCE) -> None:
        everything = mock.patch("reconciler.checkpoints.clone.older_state", return_value=frozenset())
        with everything, mock.patch("reconciler.checkpoints.copying.AT_ONCE", at_once):
            self.clone(path, to)

    def cp(self, path: str, to: str, *more: str) -> None:
        self.shell("-cp", *more, path, to)

    def remove(self, path: str) -> None:
        self.shell("-rm", "-r", "-skipTrash", path)


def measured(on: OnHdfs, files: int, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each kind of copy, in turn."""
    path = on.put(files, size)
    kinds = dict(_kinds(on, options))
    taken: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        for kind, copy in kinds.items():
            with timed_lists() as lists:
                began, own, all_cpu = time.perf_counter(), client_cpu_s(), cpu_s()
                copy(path, "/new")
                own = client_cpu_s() - own
                wall = time.perf_counter() - began
                taken[kind].append((wall, own, cpu_s() - all_cpu - own, sum(lists), peak_mb()))
            on.remove("/new")
            print(f"{kind}: {taken[kind][-1][0]:.1f} s", file=sys.stderr, flush=True)
    found: dict[str, Any] = {}
    for kind, runs in taken.items():
        medians = [round(statistics.median(each), 2) for each in zip(*runs, strict=True)]
        found[kind] = dict(zip(("wall_s", "client_cpu_s", "hdfs_cpu_s", "lists_s", "peak_mb"), medians, strict=True))
        found[kind]["runs_s"] = [round(run[0], 2) for run in runs]
    return {"files": files, "mib": files * size / 2**20, "kinds": found}


def _kinds(on: OnHdfs, options: argparse.Namespace) -> Iterator[tuple[str, Callable[[str, str], None]]]:
    if "clone" in options.kinds:
        yield "clone", on.clone
    if "all" in options.kinds:
        yield from ((f"clone of all, {n} at once", partial(on.clone_all, at_once=n)) for n in options.at_once)
    if "cp" in options.kinds:
        yield "hdfs dfs -cp", on.cp
    if "cp-threads" in options.kinds:
        yield f"hdfs dfs -cp -t {CP_THREADS}", lambda path, to: on.cp(path, to, "-t", str(CP_THREADS))


@contextmanager
def timed_lists() -> Iterator[list[float]]:
    """The seconds of each listing of a whole checkpoint."""
    seconds: list[float] = []
    listing = Tree.listing

    def timed(tree: Tree, root: str | None = None) -> Listed:
        began = time.perf_counter()
        try:
            return listing(tree, root)
        finally:
            seconds.append(time.perf_counter() - began)

    with mock.patch.object(Tree, "listing", timed):
        yield seconds


def client_cpu_s() -> float:
    """Of this process and its children that have ended."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in each)


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
