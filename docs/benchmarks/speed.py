"""What a plan costs, beside Kafka's own tool, which resets by time and verifies nothing, and beside the bare requests.

    python -m docs.benchmarks.speed [--partitions 2000,10000] [--records 200] [--runs 3] [--json FILE]

Starts a broker, writes the records, stores moved offsets, then runs the programs in turn, start included, and prints
the medians. ``raw`` is one ListOffsets and two Fetch of all partitions (``docs.benchmarks.raw``).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from docs.benchmarks.common import HEAD, Cost, in_turn, print_json, this_program
from docs.benchmarks.rows import BEGIN_MS, SMALL_INDEXES, TOPIC, fill, stamp_ms, store_rows, write_config
from reconciler.artifacts import java_executable, kafka_jars
from tests.demo.lab.kafka import KafkaCluster

STOCK_JVM = ("-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")
"""What Kafka's own kafka-run-class.sh starts its tools with, as far as it matters here."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="2000,10000", help="numbers of partitions, separated by commas")
    parser.add_argument("--records", type=int, default=200, help="records a partition, of about 90 bytes")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: dict[str, dict[str, Cost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place, jars = Path(folder), kafka_jars(print)
        with KafkaCluster("b", place / "b", jars, heap="1g", properties=SMALL_INDEXES) as cluster:
            print(f"{'partitions':>10} {'':24}{HEAD}   against it: wall, CPU")
            for count in map(int, options.partitions.split(",")):
                topic = f"{TOPIC}-{count}"
                fill(cluster, topic, count, options.records)
                rows[str(count)] = in_turn(commands(cluster, place, topic, count, options.records), options.runs)
                show(f"{count:,}", rows[str(count)])
    found = {size: {name: cost._asdict() for name, cost in each.items()} for size, each in rows.items()}
    print_json("speed", vars(options), found, options.json)


def show(size: str, medians: dict[str, Cost]) -> None:
    own = next(iter(medians.values()))
    for name, cost in medians.items():
        print(f"{size:>10} {name:24}{cost.text()}   {own.wall_s / cost.wall_s:.1f}x {own.cpu_s / cost.cpu_s:.1f}x")


def commands(cluster: KafkaCluster, place: Path, topic: str, partitions: int, records: int) -> dict[str, Sequence[str]]:
    """The programs, for a topic that is filled. Stores the offsets of another cluster, right behind the middle."""
    middle = records // 2
    address = store_rows(place, topic, topic, [middle] * partitions)
    config = write_config(place / f"{topic}.toml", cluster.bootstrap, [topic], topic, address)
    stamp = datetime.fromtimestamp(BEGIN_MS / 1000 + middle, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    raw = (sys.executable, "-S", "-m", "docs.benchmarks.raw", cluster.bootstrap, topic)
    return {
        "reconciler plan": this_program("plan", "-c", str(config), "-o", str(place / f"{topic}.json")),
        "kafka-consumer-groups": [
            *(str(java_executable()), *STOCK_JVM, "-cp", f"{kafka_jars(print)}/*"),
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", cluster.bootstrap, "--group", "g", "--topic", topic),
            *("--reset-offsets", "--to-datetime", stamp, "--dry-run"),
        ],
        "raw": [*raw, *map(str, (partitions, middle, stamp_ms(middle)))],
    }


if __name__ == "__main__":
    main()
