"""What a plan costs by the shape of the logs: the size of records, their compression, and the number of brokers.

    python -m tests.bench.plans.shapes [--only sizes,codecs,brokers] [--runs 3] [--no-script] [--json FILE]

Beside each plan run, in turn: Kafka's own tool, which resets by time and verifies nothing; a script that takes one
partition after the other; and, with one broker, the bare requests (``plans.raw``). Records lie in batches as a
producer makes them that lingers 50 ms. The script takes ten partitions only: it waits for the broker at each. Prints a
table of medians, and the same as JSON.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer

from reconciler.artifacts import kafka_jars
from tests.bench.common import HEAD, Cost, in_turn, print_json
from tests.bench.plans.speed import BEGIN_MS, commands, produce
from tests.lab.kafka import KafkaCluster

LARGEST = 4 * 1024 * 1024
"""Of a batch, in bytes: above any record here."""
BY_SCRIPT = 10
"""Partitions that the script takes."""


@dataclass(frozen=True)
class Shape:
    """A topic: ``size`` is a value's, in bytes."""

    partitions: int
    records: int
    size: int
    codec: str = "none"
    brokers: int = 1


SHAPES = {
    "sizes": {
        "100 B": Shape(500, 200, 100),
        "1 KiB": Shape(500, 100, 1024),
        "10 KiB": Shape(100, 50, 10 * 1024),
        "100 KiB": Shape(50, 10, 100 * 1024),
        "1 MiB": Shape(10, 6, 1024 * 1024),
    },
    "codecs": {codec: Shape(500, 100, 1024, codec) for codec in ("none", "lz4", "zstd", "gzip")},
    "brokers": {f"{brokers} brokers": Shape(500, 200, 100, brokers=brokers) for brokers in (1, 3)},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SHAPES), help="kinds of shapes, separated by commas")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-script", action="store_true", help="leave the script out, which takes the longest")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: dict[str, dict[str, Cost]] = {}
    shapes = {f"{kind}: {name}": each for kind in options.only.split(",") for name, each in SHAPES[kind].items()}
    print(f"{'':20}{'':24}{HEAD}   against it: wall, CPU")
    for brokers in sorted({each.brokers for each in shapes.values()}):
        with cluster_of(brokers) as (cluster, place):
            for name, shape in shapes.items():
                if shape.brokers == brokers:
                    rows[name] = measure(cluster, place, name, shape, options)
    found = {name: {program: cost._asdict() for program, cost in each.items()} for name, each in rows.items()}
    about = {name: asdict(shape) for name, shape in shapes.items()}
    print_json("plans.shapes", {"shapes": about, "runs": options.runs}, found, options.json)


@contextmanager
def cluster_of(brokers: int) -> Iterator[tuple[KafkaCluster, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        place, large = Path(folder), {"message.max.bytes": str(LARGEST)}
        with KafkaCluster(
            "b", place / "b", kafka_jars(print), brokers=brokers, heap="768m", properties=large
        ) as cluster:
            yield cluster, place


def measure(
    cluster: KafkaCluster, place: Path, name: str, shape: Shape, options: argparse.Namespace
) -> dict[str, Cost]:
    topic = name.replace(": ", "-").replace(" ", "")
    fill(cluster, topic, shape)
    programs = commands(cluster, place, topic, shape.partitions, shape.records, size=shape.size)
    middle = shape.records // 2
    numbers = (BY_SCRIPT, middle, shape.size, BEGIN_MS + middle * 1000)
    module = (sys.executable, "-m", "tests.bench.plans.one_at_a_time")
    if not options.no_script:
        programs[f"script, {BY_SCRIPT} partitions"] = [*module, cluster.bootstrap, topic, *map(str, numbers)]
    medians = in_turn(programs, options.runs)
    own = next(iter(medians.values()))
    for program, cost in medians.items():
        print(f"{name:20}{program:24}{cost.text()}   {own.wall_s / cost.wall_s:.1f}x {own.cpu_s / cost.cpu_s:.1f}x")
    return medians


def fill(cluster: KafkaCluster, topic: str, shape: Shape) -> None:
    cluster.create_topic(topic, shape.partitions)
    settings = {"linger.ms": 50, "compression.type": shape.codec, "message.max.bytes": LARGEST}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for partition in range(shape.partitions):
        for number in range(shape.records):
            produce(producer, topic, partition, number, shape.size)
    producer.flush()


if __name__ == "__main__":
    main()
