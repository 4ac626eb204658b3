"""How long a plan takes, beside Kafka's own tool, which resets by time and verifies nothing.

    python -m tests.bench.plan_speed [--partitions 2000] [--records 200] [--runs 7]

Starts a broker, writes the records, stores moved offsets, then runs both programs in turn, start included, and prints
every run's wall seconds with the medians; likewise the hook on a job that is already right.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer, TopicCollection

from reconciler.artifacts import java_executable, kafka_jars
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.lab.kafka import KafkaCluster
from reconciler.ports import Change, TopicPartition
from reconciler.stores.registry import open_store

BEGIN_MS = 1_780_000_000_000
STOCK_JVM = ("-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")
"""What Kafka's own kafka-run-class.sh starts its tools with, as far as it matters here."""
TOPIC, FEW = "events", "few"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--records", type=int, default=200, help="records a partition, of about 90 bytes")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        jars = kafka_jars(print)
        with KafkaCluster("b", place / "b", jars, heap="1g") as cluster:
            fill(cluster, TOPIC, options.partitions, options.records)
            fill(cluster, FEW, 4, options.records)
            middle = options.records // 2
            config = write_config(place, cluster.bootstrap)
            store(place, "moved", TOPIC, options.partitions, middle, ("another-cluster", "another-topic"))
            described = cluster.admin().describe_topics(TopicCollection([FEW]))[FEW].result()
            store(place, "right", FEW, 4, middle, (cluster.cluster_id, str(described.topic_id)))
            moved = [sys.executable, "-m", "reconciler", "plan", "-c", str(config), "--job", "moved", "-o"]
            stamp = datetime.fromtimestamp(BEGIN_MS / 1000 + middle, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
            tool = [
                *(str(java_executable()), *STOCK_JVM, "-cp", f"{jars}/*"),
                "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
                *("--bootstrap-server", cluster.bootstrap, "--group", "g", "--topic", TOPIC),
                *("--reset-offsets", "--to-datetime", stamp, "--dry-run"),
            ]
            compare("reconciler plan", [*moved, str(place / "plan.json")], "kafka-consumer-groups", tool, options.runs)
            right = [sys.executable, "-m", "reconciler", "hook", "-c", str(config), "--job", "right"]
            true = [sys.executable, "-c", "pass"]
            compare(
                "reconciler hook", [*right, "--plans", str(place), "--", "true"], "python -c pass", true, options.runs
            )


def compare(one: str, first: Sequence[str], other: str, second: Sequence[str], runs: int) -> None:
    """Run both in turn after a warm-up; print each run and the medians."""
    taken: dict[str, list[float]] = {one: [], other: []}
    for number in range(runs + 1):
        for name, command in ((one, first), (other, second)):
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            if number:
                taken[name].append(time.perf_counter() - began)
    for name, seconds in taken.items():
        runs_text = " ".join(f"{value:.2f}" for value in seconds)
        print(f"{name:22} median {statistics.median(seconds):.2f} s   runs {runs_text}")


def value(partition: int, number: int) -> bytes:
    return b"x" * 80 + f"{partition}-{number}".encode()


def fill(cluster: KafkaCluster, topic: str, partitions: int, records: int) -> None:
    """``records`` a partition, a second apart."""
    cluster.create_topic(topic, partitions)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50})
    for number in range(records):
        for partition in range(partitions):
            produce(producer, topic, partition, number)
        producer.flush()


def produce(producer: Producer, topic: str, partition: int, number: int) -> None:
    while True:
        try:
            producer.produce(
                topic,
                value(partition, number),
                b"k%d" % number,
                partition=partition,
                timestamp=BEGIN_MS + number * 1000,
            )
            return
        except BufferError:
            producer.poll(0.1)


def write_config(place: Path, bootstrap: str) -> Path:
    jobs = [("moved", TOPIC), ("right", FEW)]
    tables = "".join(
        f'[[jobs]]\nname = "{name}"\ngroup = "{name}"\ntopics = ["{topic}"]\nstore = "sqlite:///{place}/offsets.db"\n'
        for name, topic in jobs
    )
    path = place / "reconciler.toml"
    path.write_text(f'[destination]\nbootstrap_servers = "{bootstrap}"\n[topics]\npolicy = "identity"\n{tables}')
    return path


def store(place: Path, group: str, topic: str, partitions: int, number: int, numbering: tuple[str, str]) -> None:
    """Offsets right behind record ``number``, numbered by a cluster and topic: the job's own, or of another cluster."""
    offset = number if group == "right" else 9_000
    changes = []
    for partition in range(partitions):
        print_of = fingerprint(b"k%d" % number, value(partition, number))
        anchor = Anchor(offset, BEGIN_MS + number * 1000, None, print_of, *numbering)
        changes.append(Change(TopicPartition(topic, partition), None, StoredOffset(offset + 1, anchor)))
    offsets = open_store(f"sqlite:///{place}/offsets.db")
    offsets.write(group, changes, reason="benchmark", now_ms=0)
    offsets.close()


if __name__ == "__main__":
    main()
