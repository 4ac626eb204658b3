"""The cost of ``track(query)`` in a batch: a foreachBatch function that reads every record, without it and with it.

    python -m docs.benchmarks.tracking [--sizes 1000 100000 500000 1000000] [--rounds 5] [--json FILE]

Starts a broker, writes JSON records of 250 bytes into four partitions, and runs queries over them in turn; the state
store is in SQLite. The seconds are those of the function, and a query's first batch is a warm-up. CPU is that of this
process and of Spark's, without Kafka's. Prints a table with medians, and the same as JSON with the machine and the
versions.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from docs.benchmarks.common import cpu_s, print_json
from reconciler.artifacts import kafka_jars
from reconciler.config.identity import IdentitySettings
from reconciler.config.streams import Stream
from reconciler.ports import TopicPartition
from reconciler.spark.started import Job, job
from reconciler.state import locations
from reconciler.state.jobs import JobState
from reconciler.state.locations import Stamp
from reconciler.state.start import Start
from reconciler.state.store import open_state
from tests.demo.lab.kafka import KafkaCluster
from tests.spark.sessions import local_session

TOPIC, PARTITIONS, RECORD_BYTES, BEGIN_MS = "events", 4, 250, 1_780_000_000_000
KINDS = ("without", "tracked")
BATCHES = {1_000: 60, 10_000: 30, 100_000: 10, 500_000: 4, 1_000_000: 2}
"""Batches that are timed in each query, by size."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000, 500_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        spark = local_session("bench", spark_sql_shuffle_partitions="2", spark_driver_memory="3g")
        with KafkaCluster("b", place / "b", kafka_jars(print), heap="1g") as cluster:
            records = max(size * (batches_of(size) + 1) for size in options.sizes)
            fill(cluster, records)
            rows = [measured(spark, cluster, place, size, records, options.rounds) for size in options.sizes]
        version = spark.version
        spark.stop()
    shape = {**vars(options), "partitions": PARTITIONS, "record_bytes": RECORD_BYTES}
    print_json("tracking", shape, rows, options.json, versions={"spark": version})


def batches_of(size: int) -> int:
    return BATCHES.get(size, 1)


def fill(cluster: KafkaCluster, count: int) -> None:
    cluster.create_topic(TOPIC, PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, "batch.size": 500_000})
    for number in range(count):
        head = f'{{"id":{number},"user":"user-{number % 997}","amount":{number % 5000},"note":"'
        value = head + "x" * (RECORD_BYTES - len(head) - 2) + '"}'
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS, timestamp=BEGIN_MS + number // PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


# ---------------------------------------------------------------- measuring


@dataclass(frozen=True, slots=True)
class Taken:
    """What one batch took: wall and CPU seconds."""

    wall_s: float
    cpu_s: float


class Clock:
    """Takes the time of batches: the clock's, and that of the processor in this process and in Spark's."""

    def __init__(self, spark: Any) -> None:
        self._processes = (os.getpid(), int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
        self.taken: list[Taken] = []

    def time(self, work: Callable[[], object]) -> None:
        began, used = time.perf_counter(), self._cpu_s()
        work()
        self.taken.append(Taken(time.perf_counter() - began, self._cpu_s() - used))

    def _cpu_s(self) -> float:
        return sum(map(cpu_s, self._processes))


def measured(spark: Any, cluster: KafkaCluster, place: Path, size: int, records: int, rounds: int) -> dict[str, Any]:
    """Both kinds in turn, after one round of warm-up."""
    taken: dict[str, list[Taken]] = {kind: [] for kind in KINDS}
    for number in range(rounds + 1):
        for kind in KINDS if number % 2 else reversed(KINDS):
            found = one_query(spark, cluster, place, kind, size, records, f"{size}-{kind}-{number}")
            if number:
                taken[kind] += found
    medians = {kind: medians_of(found) for kind, found in taken.items()}
    print(f"{size:,} records a batch")
    for kind, median in medians.items():
        print(f"  {kind:12} {line(median, medians['without'] if kind != 'without' else None)}", flush=True)
    runs = {kind: [round(each.wall_s, 4) for each in found] for kind, found in taken.items()}
    return {"records": size, "medians": {k: asdict(m) for k, m in medians.items()}, "wall_s": runs}


def medians_of(found: list[Taken]) -> Taken:
    """The median of the wall times; the mean of the CPU times, which come in hundredths of a second."""
    return Taken(statistics.median(each.wall_s for each in found), statistics.fmean(each.cpu_s for each in found))


def line(median: Taken, base: Taken | None) -> str:
    text = f"wall {median.wall_s * 1000:7.0f} ms   CPU {median.cpu_s * 1000:7.0f} ms"
    if base is None:
        return text
    wall, cpu = median.wall_s - base.wall_s, median.cpu_s - base.cpu_s
    more = f"wall {wall * 1000:+.0f} ms, {wall / base.wall_s:+.1%}; CPU {cpu * 1000:+.0f} ms, {cpu / base.cpu_s:+.1%}"
    return f"{text}   ({more})"


def one_query(
    spark: Any, cluster: KafkaCluster, place: Path, kind: str, size: int, records: int, name: str
) -> list[Taken]:
    first = (records - size * (batches_of(size) + 1)) // PARTITIONS
    own, clock = placed(cluster, place, name, first), Clock(spark)

    def timed(batch: Any, number: int) -> None:
        clock.time(lambda: read_all(batch, number))

    frame = own.read(spark, {"maxOffsetsPerTrigger": str(size)})
    writer = frame.writeStream.foreachBatch(timed).option("checkpointLocation", own.checkpoint)
    query = writer.trigger(availableNow=True).start()
    if kind == "tracked":
        own.track(query)
    query.awaitTermination()
    assert len(clock.taken) == batches_of(size) + 1, f"{len(clock.taken)} batches"
    return clock.taken[1:]


def placed(cluster: KafkaCluster, place: Path, name: str, first: int) -> Job:
    """A job of this name in its first stay, which starts at this offset of each partition."""
    store, checkpoint = open_state(f"sqlite:///{place / 'state.db'}"), str(place / "checkpoints" / name)
    store.create()
    JobState(store, name).move_on(None, locations.first("b", Stamp("bench", lambda: 1), checkpoint))
    offsets = {TopicPartition(TOPIC, partition): first for partition in range(PARTITIONS)}
    identity = IdentitySettings(id="json:$.id")
    here = (cluster.bootstrap, 1, store.shown, store.id, {TOPIC: Stream(TOPIC, "b")}, offsets, identity)
    return job(start=Start(name, "b", *here, checkpoint=checkpoint), environ={})


def read_all(batch: Any, _: int) -> None:
    batch.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
