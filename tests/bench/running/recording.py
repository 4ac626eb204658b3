"""The cost of recording in a batch: the same batch without it, with it, and with the search of the batch in its place.

    python -m tests.bench.running.recording [--sizes 1000 100000 500000 1000000] [--rounds 5] [--json FILE]

Starts a broker, writes JSON records of 250 bytes into four partitions, and runs queries over them, each kind in turn:

- ``without``; ``read``, with rows in SQLite; ``checkpoint``, with anchors for the query's own checkpoint; ``received``,
  with the batch searched. The seconds are those of the foreachBatch function.
- ``stream``, with a sink instead of foreachBatch; ``observing`` it; ``observed``, with Spark looking for the last
  records. The seconds are those of the whole batch.
- ``plain``, Spark's batch reader with the same offsets and no product; ``ranges``, range batches, at least once. The
  seconds are those of the whole batch.

A query's first batch is a warm-up. CPU is that of this process and of Spark's, without Kafka's. Prints a table with
medians, and the same as JSON with the machine and the versions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from confluent_kafka import Producer

from reconciler.artifacts import kafka_jars
from reconciler.core.anchors import StoredOffset
from reconciler.ports import Change, TopicPartition
from reconciler.spark.ranges.planning import Caps
from reconciler.spark.ranges.runner import RangeBatches, at_least_once
from reconciler.spark.recording import recording
from reconciler.spark.recording.batch_range import Unseen
from reconciler.spark.recording.observing import observing
from reconciler.spark.recording.watched import source_of
from reconciler.stores.registry import open_store
from tests.bench.common import cpu_s, print_json
from tests.lab.kafka import KafkaCluster
from tests.spark.sessions import local_session

TOPIC, PARTITIONS, RECORD_BYTES, BEGIN_MS = "events", 4, 250, 1_780_000_000_000
BASES = {
    "without": ("read", "checkpoint", "received"),
    "stream": ("observing", "observed"),
    "plain": ("ranges",),
}
"""The kinds without the product, and those that are compared with each."""
KINDS = tuple(kind for base, others in BASES.items() for kind in (base, *others))
STREAMS, RANGES = (("stream", *BASES["stream"]), ("plain", *BASES["plain"]))
FIELDS = "id BIGINT, user STRING, amount INT, note STRING"
BATCHES = {1_000: 6, 10_000: 6, 100_000: 3, 500_000: 2, 1_000_000: 1}
"""Batches that are timed in each query, by size."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000, 500_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--works", nargs="+", default=list(WORKS), choices=list(WORKS))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        spark = local_session("bench", spark_sql_shuffle_partitions="2", spark_driver_memory="3g")
        with KafkaCluster("b", place / "b", kafka_jars(print), heap="1g") as cluster:
            records = max(size * (batches_of(size) + 1) for size in options.sizes)
            fill(cluster, records)
            rows = [
                measured(spark, cluster, place, options, work, size, records)
                for work in options.works
                for size in options.sizes
            ]
        version = spark.version
        spark.stop()
    shape = {**vars(options), "partitions": PARTITIONS, "record_bytes": RECORD_BYTES}
    print_json("running.recording", shape, rows, options.json, versions={"spark": version})


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


# ---------------------------------------------------------------- the work of a batch


def nothing(batch: Any, number: int, place: Path) -> None:
    """Reads every record, and writes none."""
    batch.write.format("noop").mode("overwrite").save()


def parquet(batch: Any, number: int, place: Path) -> None:
    parsed = batch.selectExpr(
        "from_json(CAST(value AS STRING), 'id BIGINT, user STRING, amount INT, note STRING') AS v"
    )
    parsed.select("v.*").write.mode("overwrite").parquet(str(place / "out"))


WORKS: dict[str, Callable[[Any, int, Path], None]] = {"nothing": nothing, "json to parquet": parquet}


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


def measured(
    spark: Any, cluster: KafkaCluster, place: Path, options: argparse.Namespace, work: str, size: int, records: int
) -> dict[str, Any]:
    """Every kind in turn, ``rounds`` times, after one round of warm-up."""
    taken: dict[str, list[Taken]] = {kind: [] for kind in options.kinds}
    for number in range(options.rounds + 1):
        turn = number % len(options.kinds)
        for kind in options.kinds[turn:] + options.kinds[:turn]:  # none always follows the same other one
            found = one_query(spark, cluster, place, kind, WORKS[work], size, records, f"{work}-{size}-{kind}-{number}")
            if number:
                taken[kind] += found
    medians = {kind: medians_of(found) for kind, found in taken.items()}
    print(f"{work}, {size:,} records a batch")
    for base, others in BASES.items():
        for kind in (base, *others):
            if kind in medians:
                print(f"  {kind:12} {line(medians[kind], medians.get(base) if kind != base else None)}", flush=True)
    runs = {kind: [round(each.wall_s, 4) for each in found] for kind, found in taken.items()}
    return {"work": work, "records": size, "medians": {k: asdict(m) for k, m in medians.items()}, "wall_s": runs}


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
    spark: Any, cluster: KafkaCluster, place: Path, kind: str, work: Any, size: int, records: int, name: str
) -> list[Taken]:
    first = (records - size * (batches_of(size) + 1)) // PARTITIONS
    starts = json.dumps({TOPIC: {str(partition): first for partition in range(PARTITIONS)}})
    function: Any = partial(work, place=place)
    clock = Clock(spark)
    if kind in RANGES:
        by_ranges(spark, cluster, place, kind, function, size, first, name, clock)
        return clock.taken[1:]
    checkpoint = place / "checkpoints" / name
    if kind not in ("without", *STREAMS):
        function = recording(
            function,
            store=f"checkpoint:{checkpoint}" if kind == "checkpoint" else f"sqlite:///{place / 'offsets.db'}",
            anchors=f"sqlite:///{place / 'anchors.db'}" if kind == "checkpoint" else None,
            group=name,
            bootstrap_servers=cluster.bootstrap,
            id="json:$.id",
            processed="received" if kind == "received" else "read",
        )

    def timed(batch: Any, number: int) -> None:
        clock.time(lambda: function(batch, number))

    source = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": TOPIC, "startingOffsets": starts}
    frame = spark.readStream.format("kafka").options(**source, maxOffsetsPerTrigger=str(size)).load()
    if kind in STREAMS:
        return one_stream(spark, cluster, place, kind, frame, checkpoint)
    query = frame.writeStream.foreachBatch(timed).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    if kind != "without":
        function.close()
    assert len(clock.taken) == batches_of(size) + 1, f"{len(clock.taken)} batches"
    return clock.taken[1:]


def one_stream(spark: Any, cluster: KafkaCluster, place: Path, kind: str, frame: Any, checkpoint: Path) -> list[Taken]:
    """Every record is read and given to a sink that drops it. A batch's CPU is its part of that of the whole query."""
    observer = None
    if kind != "stream":
        observer = observing(
            spark,
            store=f"sqlite:///{place / 'offsets.db'}",
            group=checkpoint.name,
            bootstrap_servers=cluster.bootstrap,
            id="json:$.id",
        )
        given = source_of if kind == "observing" else lambda *_: Unseen("it is measured")
        with mock.patch("reconciler.spark.recording.observing.source_of", given):
            frame = observer.watch(frame, [TOPIC])
    clock = Clock(spark)
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    running: Any = None

    def run() -> None:
        nonlocal running
        running = query.start()
        running.awaitTermination()
        if observer is not None:
            observer.settle(running)

    clock.time(run)
    if observer is not None:
        observer.close()
    walls = [each["durationMs"]["triggerExecution"] / 1000 for each in running.recentProgress if each["numInputRows"]]
    return [Taken(wall, clock.taken[0].cpu_s / len(walls)) for wall in walls[1:]]


def by_ranges(
    spark: Any, cluster: KafkaCluster, place: Path, kind: str, work: Any, size: int, first: int, name: str, clock: Clock
) -> None:
    """Batches of offset ranges, at least once; ``plain``: the same offsets read by hand, and saved nowhere."""
    batches, each = batches_of(size) + 1, size // PARTITIONS
    if kind == "plain":
        for number in range(batches):
            starts, ends = (
                json.dumps({TOPIC: {str(partition): offset for partition in range(PARTITIONS)}})
                for offset in (first + number * each, first + (number + 1) * each)
            )
            source = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": TOPIC}
            offsets = {"startingOffsets": starts, "endingOffsets": ends}
            frame = spark.read.format("kafka").options(**source, **offsets).load()
            clock.time(partial(work, frame, number))
        return
    store = f"sqlite:///{place / 'offsets.db'}"
    begin = [Change(TopicPartition(TOPIC, partition), None, StoredOffset(first)) for partition in range(PARTITIONS)]
    opened = open_store(store)
    opened.create()
    opened.write(name, begin, reason="benchmark", now_ms=BEGIN_MS)
    opened.close()
    job = RangeBatches(
        spark,
        topics=[TOPIC],
        group=name,
        bootstrap_servers=cluster.bootstrap,
        store=store,
        caps=Caps(per_run=size),
        id="json:$.id",
    )
    semantics = at_least_once(lambda frame, ranges: work(frame, 0))
    for _ in range(batches):
        clock.time(lambda: job.run_once(semantics))
    job.close()


if __name__ == "__main__":
    main()
