"""How the cost of a plan grows with the jobs that read one topic.

    python -m tests.bench.plans.jobs [--jobs 1,20,60] [--partitions 500] [--records 200] [--spread 0] [--runs 3]

Starts a broker, writes the records, stores moved offsets for each job, ``--spread`` records apart at most, then plans
for so many jobs in turn, start included. Prints a table of medians and the same as JSON.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path

from reconciler.artifacts import kafka_jars
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.ports import Change, TopicPartition
from reconciler.stores.registry import open_store
from tests.bench.common import HEAD, Cost, in_turn, print_json, this_program
from tests.bench.plans.speed import BEGIN_MS, TOPIC, fill, value
from tests.lab.kafka import KafkaCluster


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
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with KafkaCluster("b", place / "b", kafka_jars(print), heap="1g") as cluster:
            fill(cluster, TOPIC, options.partitions, options.records)
            write_rows(place, max(counts), options)
            for count in counts:
                write_config(place, cluster.bootstrap, count)
            commands = {
                str(count): this_program("plan", "-c", str(place / f"{count}.toml"), "-o", str(place / "plan"))
                for count in counts
            }
            medians = in_turn(commands, options.runs)
    report(options, medians)


def write_rows(place: Path, jobs: int, options: argparse.Namespace) -> None:
    chance = random.Random(1)
    store = open_store(f"sqlite:///{place}/offsets.db")
    store.create()
    for job in range(jobs):
        changes = []
        for partition in range(options.partitions):
            number = options.records // 2 - chance.randint(0, options.spread)
            print_of = fingerprint(b"k%d" % number, value(partition, number))
            anchor = Anchor(
                9_000 + number, BEGIN_MS + number * 1000, None, print_of, "another-cluster", "another-topic"
            )
            stored = StoredOffset(9_001 + number, anchor)
            changes.append(Change(TopicPartition(TOPIC, partition), None, stored))
        store.write(f"job{job}", changes, reason="bench", now_ms=0)
    store.close()


def write_config(place: Path, bootstrap: str, jobs: int) -> None:
    tables = "".join(
        f'[[jobs]]\nname = "job{job}"\ngroup = "job{job}"\ntopics = ["{TOPIC}"]\nstore = "sqlite:///{place}/offsets.db"\n'
        for job in range(jobs)
    )
    text = f'[destination]\nbootstrap_servers = "{bootstrap}"\n[topics]\npolicy = "identity"\n{tables}'
    (place / f"{jobs}.toml").write_text(text)


def report(options: argparse.Namespace, medians: Mapping[str, Cost]) -> None:
    one = next(iter(medians.values()))
    print(f"{'jobs':>5}{HEAD}   against the first: wall, CPU, memory")
    for count, cost in medians.items():
        ratios = "  ".join(f"{value / base:.1f}x" for value, base in zip(cost, one, strict=True))
        print(f"{count:>5}{cost.text()}   {ratios}")
    print_json("plans.jobs", vars(options), {count: cost._asdict() for count, cost in medians.items()}, options.json)


if __name__ == "__main__":
    main()
