"""A plan beside MirrorMaker's own translation of a group's offsets (``RemoteClusterUtils.translateOffsets``): the cost.

    python -m tests.bench.plans.translate [--partitions 4,500,2000] [--checkpoints 10] [--runs 3] [--json FILE]

Starts a broker, writes topics and MirrorMaker's checkpoints of a group, ``--checkpoints`` for each partition, and runs
both programs in turn, start included. The translation is one number for each partition, from the last checkpoint: it
looks at no record, and what it names may be behind or ahead of what the group had read. It takes a JDK.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer

from reconciler.artifacts import java_executable, kafka_jars
from tests.bench.common import HEAD, Cost, in_turn, print_json
from tests.bench.plans.speed import STOCK_JVM, commands, fill
from tests.lab.kafka import KafkaCluster
from tests.mirror.written import checkpoint_key, checkpoint_value

RECORDS, GROUP = 200, "clicks"
SOURCE = Path(__file__).with_name("TranslateOffsets.java")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="4,500,2000", help="numbers of partitions, separated by commas")
    parser.add_argument("--checkpoints", type=int, default=10, help="for each partition")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: dict[str, dict[str, Cost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        classes = [str(kafka_jars(print) / "*"), str(place)]
        subprocess.run(
            [str(java_executable().with_name("javac")), "-cp", classes[0], "-d", str(place), str(SOURCE)], check=True
        )
        with KafkaCluster("b", place / "b", kafka_jars(print), heap="1g") as cluster:
            print(f"{'partitions':>10} {'':24}{HEAD}")
            for count in map(int, options.partitions.split(",")):
                rows[str(count)] = in_turn(both(cluster, place, classes, count, options.checkpoints), options.runs)
                for name, cost in rows[str(count)].items():
                    print(f"{count:>10,} {name:24}{cost.text()}")
    found = {size: {name: cost._asdict() for name, cost in each.items()} for size, each in rows.items()}
    print_json("plans.translate", vars(options), found, options.json)


def both(
    cluster: KafkaCluster, place: Path, classes: Sequence[str], partitions: int, checkpoints: int
) -> dict[str, Sequence[str]]:
    topic, alias = f"events-{partitions}", f"a{partitions}"
    fill(cluster, topic, partitions, RECORDS)
    write_checkpoints(cluster, alias, topic, partitions, checkpoints)
    java = [str(java_executable()), *STOCK_JVM, "-cp", ":".join(classes), "TranslateOffsets"]
    return {
        "reconciler plan": commands(cluster, place, topic, partitions, RECORDS)["reconciler plan"],
        "translateOffsets": [*java, cluster.bootstrap, alias, GROUP, str(partitions)],
    }


def write_checkpoints(cluster: KafkaCluster, alias: str, topic: str, partitions: int, each: int) -> None:
    """As MirrorMaker's checkpoint connector writes them, one round after the other."""
    name = f"{alias}.checkpoints.internal"
    cluster.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50})
    for number in range(each):
        for partition in range(partitions):
            key = checkpoint_key(GROUP, topic, partition)
            producer.produce(name, checkpoint_value(9_000 + number, number), key, partition=0)
        producer.flush()


if __name__ == "__main__":
    main()
