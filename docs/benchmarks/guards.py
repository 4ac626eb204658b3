"""What a plan costs against what is measured in the same run, and against the figures that are kept.

    python -m docs.benchmarks.guards [--only pairs,plans] [--runs 7] [--keep] [--json FILE]

All are ratios of CPU seconds, so that neither a slow machine nor a busy one matters much; those of a program include
all processes that it starts. ``plans`` takes a broker with 2,000 partitions; ``pairs`` has no servers. Prints each
ratio beside the kept one; ``--keep`` writes those of this run to ``kept.json``. ``test_no_slower`` fails where a ratio
is 1.5 times the kept one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from docs.benchmarks.common import in_turn, off_the_disk, print_json, this_python
from docs.benchmarks.estate import destination, plan, store_jobs
from docs.benchmarks.loop import STEPS, loop
from docs.benchmarks.rows import SMALL_INDEXES, fill
from docs.benchmarks.speed import commands
from reconciler.artifacts import kafka_jars
from tests.demo.lab.kafka import KafkaCluster

KEPT = Path(__file__).with_name("kept.json")
ALLOWED = 1.5
JOBS, PARTITIONS, RECORDS, ROUNDS = 10, 100, 200, 7
RUNS = 7
SPREADS = {"a pair, one record": 0, "a pair, apart": 50}
FEW, MANY, HELD = 500, 2_000, 100
"""Partitions of the two topics, and records in each partition."""
LONG_LOOP = 30 * STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="pairs,plans", help="kinds, separated by commas")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--keep", action="store_true", help="write the ratios to kept.json")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, float] = {}
    for kind in options.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            found |= of_pairs(Path(folder)) if kind == "pairs" else of_plans(Path(folder), options.runs)
    held = kept()
    for name, ratio in found.items():
        print(f"{name:28}{ratio:>8.2f}   kept {held.get(name, float('nan')):.2f}")
    if options.keep:
        rounded = {name: round(ratio, 2) for name, ratio in {**held, **found}.items()}
        KEPT.write_text(json.dumps(rounded, indent=2) + "\n")
    print_json("guards", {**vars(options), "partitions": [FEW, MANY], "records": HELD}, found, options.json)


def kept() -> dict[str, float]:
    found: dict[str, float] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return found


def dearer(found: Mapping[str, float], held: Mapping[str, float]) -> list[str]:
    """The ratios that are 1.5 times the kept ones, and those that are not kept, each with both figures."""
    return [
        f"{name}: {ratio:.2f} now, {held.get(name)} kept"
        for name, ratio in found.items()
        if name not in held or ratio >= ALLOWED * held[name]
    ]


def of_pairs(place: Path) -> dict[str, float]:
    """What a pair of job and partition costs in one process, in 1,000 steps of the loop."""
    log, found = destination(PARTITIONS, RECORDS), {}
    for name, spread in SPREADS.items():
        here = place / str(spread)
        here.mkdir()
        store_jobs(here, JOBS, PARTITIONS, RECORDS, spread)
        ratios = []
        for _ in range(ROUNDS):
            before, own, after = cpu_s(loop), cpu_s(lambda: plan(here, JOBS, log)), cpu_s(loop)  # noqa: B023
            ratios.append((own / JOBS / PARTITIONS) / ((before + after) / 2 / STEPS * 1_000))
        found[name] = median(ratios)
    return found


def of_plans(place: Path, runs: int = RUNS) -> dict[str, float]:
    """A plan of many partitions against the bare requests and Kafka's own tool; and what one more partition costs, in
    1,000 steps of the loop.

    Each by its least CPU seconds: what else the machine does only adds to them, and may add half.
    """
    with (
        off_the_disk(place) as data,
        KafkaCluster("b", data / "b", kafka_jars(print), heap="1g", properties=SMALL_INDEXES) as cluster,
    ):
        programs = {}
        for count in (FEW, MANY):
            fill(cluster, f"events-{count}", count, HELD)
            for name, command in commands(cluster, place, f"events-{count}", count, HELD).items():
                programs[f"{name} {count}"] = command
        del programs[f"kafka-consumer-groups {FEW}"], programs[f"raw {FEW}"]
        programs["loop"] = this_python("-S", "-m", "docs.benchmarks.loop", str(LONG_LOOP))
        costs = in_turn(programs, runs, of_runs=min)
    for name, cost in costs.items():
        print(f"{name:28}{cost.text()}")
    few, many = (costs[f"reconciler plan {count}"].cpu_s for count in (FEW, MANY))
    step_s = costs["loop"].cpu_s / LONG_LOOP * 1_000
    return {
        "plan to raw": many / costs[f"raw {MANY}"].cpu_s,
        "plan to Kafka's tool": many / costs[f"kafka-consumer-groups {MANY}"].cpu_s,
        "a partition": (many - few) / (MANY - FEW) / step_s,
    }


def cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    main()
