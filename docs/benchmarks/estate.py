"""How a plan's cost grows with jobs and partitions, without servers: the destination is the log in memory.

    python -m docs.benchmarks.estate [--sizes 1x500,60x500,200x500,1x100000] [--spread 50] [--runs 3] [--json FILE]

Each size (jobs x partitions) runs in a process of its own: it reads its rows from SQLite, checks, writes the plan and
makes its table. ``--spread``: how far the jobs' offsets lie apart at most, in records; 0: all stopped at one record.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from docs.benchmarks.common import HEAD, in_turn, print_json
from docs.benchmarks.rows import TOPIC, stamp_ms, store_rows, value, write_config
from reconciler.cli.terminal.report import plan_text
from reconciler.config.file import load_config
from reconciler.failover.apart import check_each
from reconciler.failover.outside import Outside
from reconciler.fileio import write_whole
from reconciler.places.registry import open_store
from reconciler.ports import TopicPartition
from tests.memory_log import MemoryLog, MemoryRecord

NOW_MS = 1_800_000_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1x500,60x500,200x500,1x100000", help="jobs x partitions, by commas")
    parser.add_argument("--records", type=int, default=200, help="records a partition, of about 90 bytes")
    parser.add_argument("--spread", type=int, default=50)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        jobs, partitions = map(int, options.sizes.split("x"))
        plan(options.one, jobs, destination(partitions, options.records))
        return
    with tempfile.TemporaryDirectory() as folder:
        commands = {}
        for size in options.sizes.split(","):
            place = Path(folder) / size
            place.mkdir()
            jobs, partitions = map(int, size.split("x"))
            store_jobs(place, jobs, partitions, options.records, options.spread)
            module = (sys.executable, "-m", "docs.benchmarks.estate")
            commands[size] = [*module, "--one", str(place), "--sizes", size, "--records", str(options.records)]
        medians = in_turn(commands, options.runs)
    print(f"{'jobs x partitions':>18}{HEAD} {'us a pair':>10}")
    for size, cost in medians.items():
        jobs, partitions = map(int, size.split("x"))
        print(f"{size:>18}{cost.text()} {cost.cpu_s / jobs / partitions * 1e6:>10.0f}")
    print_json("estate", vars(options), {size: cost._asdict() for size, cost in medians.items()}, options.json)


def destination(partitions: int, records: int) -> MemoryLog:
    """All partitions hold the same records, so that the log itself takes next to no memory."""
    log = MemoryLog("destination", {TOPIC: 1})
    shared = log.partition(TOPIC, 0)
    shared.append_batch(
        [MemoryRecord(0, stamp_ms(number), b"k%d" % number, same(0, number)) for number in range(records)]
    )
    log.partitions |= {TopicPartition(TOPIC, number): shared for number in range(partitions)}
    return log


def same(_: int, number: int) -> bytes:
    """The value of this record in every partition."""
    return value(0, number)


def store_jobs(place: Path, jobs: int, partitions: int, records: int, spread: int) -> None:
    """Each job's rows, and the configuration."""
    address, names = "", [f"job{number}" for number in range(jobs)]
    for number, name in enumerate(names):
        chance = random.Random(number)
        stopped = [records // 2 - chance.randint(0, spread) for _ in range(partitions)]
        address = store_rows(place, name, TOPIC, stopped, same)
    write_config(place / "reconciler.toml", "none", names, TOPIC, address)


def plan(place: Path, jobs: int, log: MemoryLog) -> None:
    """What ``reconciler plan`` does, on this log."""
    gc.set_threshold(1_000_000, 50, 50)  # as the command does
    config = load_config(place / "reconciler.toml", {})
    outside = Outside(log, partial(open_store, kafka_client={}), time.monotonic, lambda: NOW_MS)
    checked = check_each(config, config.jobs, outside)
    assert len(checked.plan.jobs) == jobs
    write_whole(place / "plan.json", checked.plan.texts())
    str(plan_text(checked.plan, config.policy.start, columns=120, colour=False, most=40))


if __name__ == "__main__":
    main()
