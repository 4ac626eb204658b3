"""How the cost of a plan grows with the jobs that read one topic.

    python -m tests.bench.jobs [--jobs 1,20,60] [--partitions 500] [--records 200] [--spread 0] [--runs 3] [--json FILE]

Starts a broker, writes the records, stores moved offsets for each job, ``--spread`` records apart at most, then plans
for so many jobs in turn, start included. Prints a table of medians and the same as JSON.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from reconciler.artifacts import kafka_jars
from tests.bench.common import HEAD, in_turn, print_json, this_program
from tests.bench.rows import TOPIC, fill, store_rows, write_config
from tests.demo.lab.kafka import KafkaCluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="1,20,60", help="numbers of jobs, separated by commas")
    parser.add_argument("--partitions", type=int, default=500)
    parser.add_argument("--records", type=int, default=200, help="records a partition, of about 90 bytes")
    parser.add_argument("--spread", type=int, default=0, help="how far the jobs' offsets lie apart at most, in records")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts = [int(each) for each in options.jobs.split(",")]
    jobs = [f"job{number}" for number in range(max(counts))]
    chance, commands, address = random.Random(1), {}, ""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with KafkaCluster("b", place / "b", kafka_jars(print), heap="1g") as cluster:
            fill(cluster, TOPIC, options.partitions, options.records)
            for job in jobs:
                apart = [chance.randint(0, options.spread) for _ in range(options.partitions)]
                address = store_rows(place, job, TOPIC, [options.records // 2 - each for each in apart])
            for count in counts:
                config = write_config(place / f"{count}.toml", cluster.bootstrap, jobs[:count], TOPIC, address)
                commands[str(count)] = this_program("plan", "-c", str(config), "-o", str(place / "plan"))
            medians = in_turn(commands, options.runs)
    one = next(iter(medians.values()))
    print(f"{'jobs':>5}{HEAD}   against the first: wall, CPU, memory")
    for name, cost in medians.items():
        ratios = "  ".join(f"{figure / base:.1f}x" for figure, base in zip(cost, one, strict=True))
        print(f"{name:>5}{cost.text()}   {ratios}")
    print_json("jobs", vars(options), {name: cost._asdict() for name, cost in medians.items()}, options.json)


if __name__ == "__main__":
    main()
