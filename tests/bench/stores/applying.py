"""What an apply costs without a broker and a store's server, step by step: the destination is the log in memory.

    python -m tests.bench.stores.applying [--stores sqlite,files] [--rows 10000] [--runs 3] [--beside FOLDER]
        [--json FILE]

Each run is a process of its own: it makes the rows and the plan, then applies the plan. CPU seconds of the apply's
steps, medians; ``--beside``: another version's sources, which run in turn with these.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from reconciler.cli.commands.failover.apply import changes_text
from reconciler.cli.context import read_plan_file
from reconciler.config.file import load_config
from reconciler.failover.apart import check_each
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import prepare, write
from reconciler.fileio import write_whole
from reconciler.ports import Change
from reconciler.stores.registry import open_store
from tests.bench.common import print_json
from tests.bench.plans.estate import NOW_MS, destination, store_rows

STEPS = ("read the plan", "check again", "table", "write")
RECORDS, SPREAD = 200, 50

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", default="sqlite,files", help="by commas; of these two")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--beside", metavar="FOLDER", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", metavar="STORE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(applied(Path(folder), options.one, options.rows)))
        return
    here = Path(__file__).parents[3]
    sides = {"": here} if options.beside is None else {"": here, " beside": options.beside.resolve()}
    taken: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.runs):
        for store in options.stores.split(","):
            for side, sources in sides.items():
                command = [sys.executable, "-P", __file__, "--one", store, "--rows", str(options.rows)]
                ended = subprocess.run(
                    command, check=True, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(sources)}
                )
                taken.setdefault(store + side, []).append(json.loads(ended.stdout))
    print(f"{'CPU s':16}" + "".join(f"{step:>15}" for step in (*STEPS, "all")))
    rows = {}
    for name, runs in taken.items():
        rows[name] = {step: statistics.median(run[step] for run in runs) for step in (*STEPS, "all")}
        print(f"{name:16}" + "".join(f"{seconds:>15.2f}" for seconds in rows[name].values()))
    print_json("stores.applying", vars(options), rows, options.json)


def applied(place: Path, store: str, rows: int) -> dict[str, float]:
    """The CPU seconds of each step of one apply."""
    store_rows(place, 1, rows, RECORDS, SPREAD)
    if store == "files":
        as_files(place)
    gc.set_threshold(1_000_000, 50, 50)  # as the command does
    config, log = load_config(place / "reconciler.toml", {}), destination(rows, RECORDS)
    outside = Outside(log, partial(open_store, kafka_client={}, anchors=None), time.monotonic, lambda: NOW_MS)
    path = place / "plan.json"
    write_whole(path, check_each(config, config.jobs, outside).plan.texts())
    found: dict[str, float] = {}

    def step(name: str, work: Callable[[], T]) -> T:
        began = time.process_time()
        result = work()
        found[name] = time.process_time() - began
        return result

    plan, _ = step("read the plan", lambda: read_plan_file(path))
    changes = step("check again", lambda: prepare(plan, config, outside))
    assert sum(len(each.intended) for each in changes) == rows
    step("table", lambda: str(changes_text(changes)))
    step("write", lambda: write(changes, plan, path, outside))
    return {**found, "all": sum(found.values())}


def as_files(place: Path) -> None:
    """The same rows in the files store, and the configuration for it."""
    address, config = f"files:{place}/offsets", place / "reconciler.toml"
    with closing(open_store(f"sqlite:///{place}/offsets.db")) as store:
        changes = [Change(row.key, None, row.stored) for row in store.read("job0")]
    with closing(open_store(address)) as store:
        store.create()
        store.write("job0", changes, reason="benchmark", now_ms=0)
    config.write_text(config.read_text().replace(f"sqlite:///{place}/offsets.db", address))


if __name__ == "__main__":
    main()
