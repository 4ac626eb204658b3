"""The cost of a checkpoint's copy, beside ``cp -a`` of the same checkpoint.

    python -m tests.bench.checkpoint_clone [--shapes 2000:50 10000:100 20000:262] [--rounds 3] [--to FOLDER]

A shape is files of state, and KiB in each: a hundred versions for each partition and a snapshot every tenth, as Spark
leaves them. Copies are made in turn: by ``checkpoint clone``, and by it with the older state; by ``cp -a``, and by it
with a flush. Dirty pages are flushed before each. Prints a table with medians, and the same as JSON with the machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from tests.bench.common import print_json
from tests.failover.checkpoint.checkpoint_files import Files, cloned

VERSIONS, SNAPSHOT_EVERY = 100, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["2000:50", "10000:100", "20000:262"], metavar="FILES:KIB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--to", type=Path, help="where the checkpoints are made; default a temporary folder")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    options = parser.parse_args()
    rows = []
    for shape in options.shapes:
        files, size = map(int, shape.split(":"))
        with tempfile.TemporaryDirectory(dir=options.to) as folder:
            rows.append(measured(Path(folder), files, size * 1024, options))
    print("files   MiB     " + "".join(f"{kind:>24}" for kind in options.kinds))
    for row in rows:
        cells = "".join(f"{row[kind]['median_s']:>22.2f} s" for kind in options.kinds)
        print(f"{row['files']:<7} {row['mib']:<8.0f}{cells}   {row['copied_files']} files in the clone")
    print_json("checkpoint_clone", vars(options), rows, options.json)


def measured(folder: Path, files: int, size: int, options: argparse.Namespace) -> dict[str, object]:
    """Seconds of each kind of copy, in turn."""
    made = checkpoint(folder / "checkpoint", files, size)
    seconds: dict[str, list[float]] = {kind: [] for kind in options.kinds}
    copied: dict[str, int] = {}
    for _ in range(options.rounds):
        for kind in options.kinds:
            os.sync()
            began = time.perf_counter()
            copied[kind] = KINDS[kind](made, folder / "new")
            seconds[kind].append(time.perf_counter() - began)
            shutil.rmtree(folder / "new")
    found: dict[str, object] = {"files": files, "mib": files * size / 2**20, "copied_files": copied.get("clone", 0)}
    for kind, runs in seconds.items():
        found[kind] = {"median_s": round(statistics.median(runs), 3), "runs_s": [round(run, 3) for run in runs]}
    return found


def checkpoint(path: Path, files: int, size: int) -> Files:
    """A checkpoint whose last batch is committed, with so many files of state, a tenth of them snapshots."""
    made = Files(path)
    made.began({"o": {0: 0, 1: 0}})
    for batch in (VERSIONS - 2, VERSIONS - 1):
        made.planned(batch, {"o": {0: 30, 1: 31}})
        made.done(batch)
    content = os.urandom(size)
    for partition in range(files // (VERSIONS + VERSIONS // SNAPSHOT_EVERY)):
        store = path / "state/0" / str(partition)
        store.mkdir(parents=True)
        for version in range(1, VERSIONS + 1):
            (store / f"{version}.delta").write_bytes(content)
            if version % SNAPSHOT_EVERY == 0:
                (store / f"{version}.snapshot").write_bytes(content)
    return made


def clone(made: Files, to: Path) -> int:
    copied = cloned(made, to).copied
    assert copied is not None
    return copied.of_files


def clone_all(made: Files, to: Path) -> int:
    with mock.patch("reconciler.failover.checkpoint.clone.older_state", return_value=frozenset()):
        return clone(made, to)


def cp(made: Files, to: Path) -> int:
    subprocess.run(["cp", "-a", str(made.path), str(to)], check=True)
    return 0


def cp_synced(made: Files, to: Path) -> int:
    cp(made, to)
    subprocess.run(["sync", "-f", str(to)], check=True)
    return 0


KINDS: dict[str, Callable[[Files, Path], int]] = {
    "clone": clone,
    "clone of all": clone_all,
    "cp -a": cp,
    "cp -a, flushed": cp_synced,
}

if __name__ == "__main__":
    main()
