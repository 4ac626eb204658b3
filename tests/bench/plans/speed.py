"""What a plan costs, beside Kafka's own tool, which resets by time and verifies nothing, and beside the bare requests.

    python -m tests.bench.plans.speed [--partitions 1000,2000,4000] [--records 200] [--topics 1] [--brokers 1]
        [--runs 3] [--json FILE]

Starts brokers, writes the records, stores moved offsets, then runs the programs in turn, start included, and prints the
medians. ``raw`` is one ListOffsets and two Fetch of all partitions (``tests.bench.plans.raw``), with one broker and
one topic only. A broker of 20,000 partitions needs a limit of some 25,000 open files (``ulimit -n``): else take two.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from string import ascii_lowercase

from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from reconciler.artifacts import java_executable, kafka_jars
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.ports import Change, TopicPartition
from reconciler.stores.registry import open_store
from tests.bench.common import HEAD, Cost, in_turn, print_json, this_program
from tests.lab.kafka import KafkaCluster

BEGIN_MS = 1_780_000_000_000
STOCK_JVM = ("-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")
"""What Kafka's own kafka-run-class.sh starts its tools with, as far as it matters here."""
TOPIC, FEW = "events", "few"
SMALL_INDEXES = {"log.index.size.max.bytes": "4096"}
"""A partition takes a file, and two maps of its indexes, each of 10 MiB unless told otherwise."""
LONG = '[search]\ndeadline = "300s"\n'
"""On a busy machine the default of 30 seconds is not enough for 10,000 partitions."""
BATCH = 20
"""Records a batch: what a producer collects that lingers for a moment."""
PARTITIONS_AT_ONCE, PATIENCE_S = 2_500, 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="1000,2000,4000", help="numbers of partitions, separated by commas")
    parser.add_argument("--records", type=int, default=200, help="records a partition, of about 90 bytes")
    parser.add_argument("--topics", type=int, default=1, help="topics that the partitions are divided into")
    parser.add_argument("--brokers", type=int, default=1, help="a process holds a file open for each partition")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts = [int(each) for each in options.partitions.split(",")]
    rows: dict[str, dict[str, Cost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        jars = kafka_jars(print)
        with KafkaCluster(
            "b", place / "b", jars, brokers=options.brokers, heap="1g", properties=SMALL_INDEXES
        ) as cluster:
            print(f"{'partitions':>10} {'':24}{HEAD}   against it: wall, CPU")
            for count in counts:
                programs = planning(cluster, place, count, options.records, options.topics)
                rows[str(count)] = in_turn(programs, options.runs)
                show(f"{count:,}", rows[str(count)])
    found = {size: {name: cost._asdict() for name, cost in each.items()} for size, each in rows.items()}
    print_json("plans.speed", vars(options), found, options.json)


def show(size: str, medians: dict[str, Cost]) -> None:
    own = next(iter(medians.values()))
    for name, cost in medians.items():
        print(f"{size:>10} {name:24}{cost.text()}   {own.wall_s / cost.wall_s:.1f}x {own.cpu_s / cost.cpu_s:.1f}x")


def planning(
    cluster: KafkaCluster, place: Path, partitions: int, records: int, topics: int = 1
) -> dict[str, Sequence[str]]:
    """A plan of so many moved partitions, Kafka's tool for the same topics, and the bare requests."""
    names = [f"{TOPIC}-{partitions}" + (f"-{number}" if number else "") for number in range(topics)]
    for name in names:
        fill(cluster, name, partitions // topics, records)
    return commands(cluster, place, names[0], partitions // topics, records, others=names[1:])


def commands(
    cluster: KafkaCluster,
    place: Path,
    topic: str,
    partitions: int,
    records: int,
    *,
    others: Sequence[str] = (),
    size: int | None = None,
) -> dict[str, Sequence[str]]:
    """The programs, for topics that are filled: one, and ``others`` with as many partitions.

    Stores the offsets of another cluster, right behind the middle.
    """
    middle = records // 2
    config = write_config(place, cluster.bootstrap, topic, *others)
    for each in (topic, *others):
        store(place, topic, each, partitions, middle, ("another-cluster", "another-topic"), size=size)
    stamp = datetime.fromtimestamp(BEGIN_MS / 1000 + middle, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    raw = (sys.executable, "-S", "-m", "tests.bench.plans.raw", cluster.bootstrap, topic)
    programs: dict[str, Sequence[str]] = {
        "reconciler plan": this_program("plan", "-c", str(config), "-o", str(place / f"{topic}.json")),
        "kafka-consumer-groups": [
            *(str(java_executable()), *STOCK_JVM, "-cp", f"{kafka_jars(print)}/*"),
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", cluster.bootstrap, "--group", "g"),
            *(word for each in (topic, *others) for word in ("--topic", each)),
            *("--reset-offsets", "--to-datetime", stamp, "--dry-run"),
        ],
        "raw": [*raw, *map(str, (partitions, middle, BEGIN_MS + middle * 1000))],
    }
    if len(cluster.brokers) > 1 or others:
        del programs["raw"]  # it speaks to one broker, of one topic
    return programs


def value(partition: int, number: int, size: int | None = None) -> bytes:
    """Some 90 bytes, nearly all the same; or ``size`` bytes of words."""
    name = f"{partition}-{number}".encode()
    if size is None:
        return b"x" * 80 + name
    text = words()
    begin = (partition * 7_919 + number * 104_729) % (len(text) - size)
    return text[begin : begin + size - len(name)] + name


@cache
def words() -> bytes:
    """3 MB of words: zstd makes a third of it."""
    chance = Random(1)
    lexicon = ["".join(chance.choices(ascii_lowercase, k=chance.randint(2, 9))) for _ in range(2_000)]
    return " ".join(chance.choices(lexicon, k=500_000)).encode()


def fill(cluster: KafkaCluster, topic: str, partitions: int, records: int, *, batch: int = BATCH) -> None:
    """``records`` a partition, a second apart, in batches of so many."""
    create_topic(cluster, topic, partitions)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50, "batch.num.messages": batch})
    for partition in range(partitions):
        for number in range(records):
            produce(producer, topic, partition, number)
        producer.poll(0)
    producer.flush()


def create_topic(cluster: KafkaCluster, topic: str, partitions: int) -> None:
    """A new topic, in steps: a controller refuses to make more than some 10,000 partitions at once."""
    made = min(partitions, PARTITIONS_AT_ONCE)
    cluster.create_topic(topic, made)
    while made < partitions:
        made = min(partitions, made + PARTITIONS_AT_ONCE)
        cluster.admin().create_partitions([NewPartitions(topic, made)])[topic].result()
        cluster.wait_until(lambda: len(cluster.end_offsets(topic)) == made, PATIENCE_S, f"{made} partitions")  # noqa: B023


def produce(producer: Producer, topic: str, partition: int, number: int, size: int | None = None) -> None:
    while True:
        try:
            producer.produce(
                topic,
                value(partition, number, size),
                b"k%d" % number,
                partition=partition,
                timestamp=BEGIN_MS + number * 1000,
            )
            return
        except BufferError:
            producer.poll(0.1)


def write_config(place: Path, bootstrap: str, topic: str, *others: str) -> Path:
    store = f'store = "sqlite:///{place}/offsets.db"'
    job = f'[[jobs]]\nname = "{topic}"\ngroup = "{topic}"\ntopics = {json.dumps([topic, *others])}\n{store}\n'
    path = place / f"{topic}.toml"
    path.write_text(f'[destination]\nbootstrap_servers = "{bootstrap}"\n[topics]\npolicy = "identity"\n{LONG}{job}')
    return path


def store(
    place: Path,
    group: str,
    topic: str,
    partitions: int,
    number: int,
    numbering: tuple[str, str],
    *,
    size: int | None = None,
) -> None:
    """Offsets right behind record ``number``, numbered by a cluster and topic: the job's own, or of another cluster."""
    offset = number if group == FEW else 9_000
    changes = []
    for partition in range(partitions):
        print_of = fingerprint(b"k%d" % number, value(partition, number, size))
        anchor = Anchor(offset, BEGIN_MS + number * 1000, None, print_of, *numbering)
        changes.append(Change(TopicPartition(topic, partition), None, StoredOffset(offset + 1, anchor)))
    offsets = open_store(f"sqlite:///{place}/offsets.db")
    offsets.write(group, changes, reason="benchmark", now_ms=0)
    offsets.close()


if __name__ == "__main__":
    main()
