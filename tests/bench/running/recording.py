"""The cost of recording in a batch: the same batch without it, with it, and with the search of the batch in its place.

    python -m tests.bench.running.recording [--sizes 1000 100000 500000 1000000] [--rounds 5] [--json FILE]

Starts a broker, writes JSON records of 250 bytes into four partitions, and runs streaming queries over them, each kind
in turn: without; with rows in SQLite; with anchors for the query's own checkpoint; with the batch searched; and, with a
sink instead of foreachBatch, without, with ``observing``, and with Spark looking for the last records. A query's first
batch is a warm-up; the seconds are those of the foreachBatch function, of a sink those of the whole batch. Prints a
table with medians, and the same as JSON with the machine and the versions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from confluent_kafka import Producer

from reconciler.artifacts import kafka_jars
from reconciler.lab.kafka import KafkaCluster
from reconciler.spark.recording import recording
from reconciler.spark.recording.batch_range import Unseen
from reconciler.spark.recording.observing import observing
from reconciler.spark.recording.watched import source_of
from tests.bench.common import print_json
from tests.spark.sessions import local_session

TOPIC, PARTITIONS, RECORD_BYTES, BEGIN_MS = "events", 4, 250, 1_780_000_000_000
KINDS = ("without", "read", "checkpoint", "received", "stream", "observing", "observed")
STREAMS = ("stream", "observing", "observed")
"""Queries without foreachBatch: without anchors; with; and where Spark looks for the last records."""
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


def measured(
    spark: Any, cluster: KafkaCluster, place: Path, options: argparse.Namespace, work: str, size: int, records: int
) -> dict[str, Any]:
    """Every kind in turn, ``rounds`` times, after one round of warm-up."""
    seconds: dict[str, list[float]] = {kind: [] for kind in options.kinds}
    for number in range(options.rounds + 1):
        turn = number % len(options.kinds)
        for kind in options.kinds[turn:] + options.kinds[:turn]:  # none always follows the same other one
            taken = one_query(spark, cluster, place, kind, WORKS[work], size, records, f"{work}-{size}-{kind}-{number}")
            if number:
                seconds[kind] += taken
    medians = {kind: statistics.median(taken) for kind, taken in seconds.items()}
    line = f"{work:16} {size:>9,} records"
    for kind, median in medians.items():
        line += f"   {kind} {median * 1000:7.0f} ms"
        base = medians.get("stream" if kind in STREAMS else "without", median)
        if median != base:
            line += f" ({(median - base) * 1000:+.0f} ms, {median / base - 1:+.1%})"
    print(line, flush=True)
    return {"work": work, "records": size, "median_s": medians, "seconds": seconds}


def one_query(
    spark: Any, cluster: KafkaCluster, place: Path, kind: str, work: Any, size: int, records: int, name: str
) -> list[float]:
    first = (records - size * (batches_of(size) + 1)) // PARTITIONS
    starts = json.dumps({TOPIC: {str(partition): first for partition in range(PARTITIONS)}})
    function: Any = partial(work, place=place)
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
    taken: list[float] = []

    def timed(batch: Any, number: int) -> None:
        began = time.perf_counter()
        function(batch, number)
        taken.append(time.perf_counter() - began)

    source = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": TOPIC, "startingOffsets": starts}
    frame = spark.readStream.format("kafka").options(**source, maxOffsetsPerTrigger=str(size)).load()
    if kind in STREAMS:
        return one_stream(spark, cluster, place, kind, frame, checkpoint)
    query = frame.writeStream.foreachBatch(timed).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    if kind != "without":
        function.close()
    assert len(taken) == batches_of(size) + 1, f"{len(taken)} batches"
    return taken[1:]


def one_stream(spark: Any, cluster: KafkaCluster, place: Path, kind: str, frame: Any, checkpoint: Path) -> list[float]:
    """Every record is read and given to a sink that drops it."""
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
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    running = query.start()
    running.awaitTermination()
    taken = [each["durationMs"]["triggerExecution"] / 1000 for each in running.recentProgress if each["numInputRows"]]
    if observer is not None:
        observer.settle(running)
        observer.close()
    return taken[1:]


if __name__ == "__main__":
    main()
