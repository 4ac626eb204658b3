"""Stateful queries that are failed over: what they read, how they run, and what they put out. Also a program:

    python -m tests.failover.checkpoint.restarted.stateful_queries SETTINGS.json

runs them on a cluster of the source's, once through and then, if asked to, into a batch that never ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.spark.sessions import set_for_now

PROVIDERS = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
PER_BATCH = 60
DELAY = "30 seconds"


@dataclass(frozen=True)
class Side:
    """A cluster, and the names that the two topics have there."""

    bootstrap: str
    orders: str
    pays: str


# ---------------------------------------------------------------- the queries


def stream(spark: Any, side: Side, topic: str) -> Any:
    """A topic's records: an id, who, how much, and when (the event's time, in the record)."""
    options = {"kafka.bootstrap.servers": side.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format("kafka").options(maxOffsetsPerTrigger=PER_BATCH, **options).load()
    return frame.selectExpr("from_json(CAST(value AS STRING), 'id INT, who STRING, n INT, at INT') AS r").selectExpr(
        "r.id", "r.who", "r.n", "timestamp_seconds(1780000000 + r.at) AS at"
    )


def windows(spark: Any, side: Side) -> Any:
    """An aggregation with a watermark."""
    from pyspark.sql import functions as f

    frame = stream(spark, side, side.orders).withWatermark("at", DELAY)
    return frame.groupBy(f.window("at", "10 seconds"), "who").agg(f.count("*").alias("c"), f.sum("n").alias("s"))


def unique(spark: Any, side: Side) -> Any:
    return stream(spark, side, side.orders).withWatermark("at", DELAY).dropDuplicatesWithinWatermark(["id"])


def join(spark: Any, side: Side) -> Any:
    """Two sources: orders and what was paid for them 15 seconds later."""
    from pyspark.sql.functions import expr

    orders = stream(spark, side, side.orders).selectExpr("id", "n", "at").withWatermark("at", DELAY)
    pays = stream(spark, side, side.pays).selectExpr("id AS of", "n AS paid", "at AS paid_at")
    condition = expr("id = of AND paid_at BETWEEN at AND at + INTERVAL 20 SECONDS")
    return orders.join(pays.withWatermark("paid_at", DELAY), condition)


def totals(spark: Any, side: Side) -> Any:
    """Arbitrary state in Python: a running count and sum for each one."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    def add(key: tuple[Any, ...], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas

        count, total = state.get if state.exists else (0, 0)
        for frame in frames:
            count, total = count + len(frame), total + int(frame["n"].sum())
        state.update((count, total))
        yield pandas.DataFrame({"who": [key[0]], "c": [count], "s": [total]})

    grouped = stream(spark, side, side.orders).groupBy("who")
    return grouped.applyInPandasWithState(
        add, "who STRING, c LONG, s LONG", "c LONG, s LONG", "update", GroupStateTimeout.NoTimeout
    )


QUERIES: dict[str, Callable[[Any, Side], Any]] = {"windows": windows, "unique": unique, "join": join, "totals": totals}
RUNNING = ("totals",)
"""Queries that put out a running result for each key."""


# ---------------------------------------------------------------- running them


def settings_of(query: str, provider: str) -> dict[str, str]:
    """Spark's settings; one of them keeps its state in the second format."""
    partitions = "2" if query == "windows" else "1"
    found = {"spark.sql.shuffle.partitions": partitions}
    found["spark.sql.streaming.stateStore.providerClass"] = PROVIDERS[provider]
    if (query, provider) == ("join", "rocksdb"):
        found["spark.sql.streaming.stateStore.checkpointFormatVersion"] = "2"
    return found


def start(
    spark: Any, side: Side, query: str, provider: str, home: Path, *, after: Callable[[int], None] | None = None
) -> Any:
    """Start a query on ``home/checkpoint`` that reads all there is and puts each batch into a file of its number.

    ``after`` is called with the number of each batch that was put out, before its commit.
    """
    output = home / "output"
    output.mkdir(parents=True, exist_ok=True)

    def put(batch: Any, number: int) -> None:
        rows = sorted(json.dumps(row.asDict(recursive=True), default=str, sort_keys=True) for row in batch.collect())
        unfinished = output / f".{number}"
        unfinished.write_text("\n".join(rows))
        unfinished.rename(output / str(number))
        if after:
            after(number)

    with set_for_now(spark, settings_of(query, provider)):
        writer = QUERIES[query](spark, side).writeStream.foreachBatch(put)
        writer = writer.outputMode("update" if query in RUNNING else "append")
        return writer.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start()


def batches(home: Path) -> dict[int, list[dict[str, Any]]]:
    """The output, by batch."""
    files = [path for path in (home / "output").iterdir() if path.name.isdecimal()]
    return {int(path.name): [json.loads(line) for line in path.read_text().splitlines()] for path in files}


def result(query: str, home: Path) -> list[str]:
    """The output of all batches together: every row; of running totals, the last one for each."""
    rows = [row for _, each in sorted(batches(home).items()) for row in each]
    if query in RUNNING:
        rows = list({row["who"]: row for row in rows}.values())
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def main(path: str) -> None:
    """The program: ``side``, ``homes`` (query, provider, folder, whether to hang) and ``began`` in the settings."""
    from pyspark.sql import SparkSession

    from reconciler.spark.session import with_kafka

    given = json.loads(Path(path).read_text())
    side, began = Side(**given["side"]), Path(given["began"])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = with_kafka(builder, print).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def hang(name: str, number: int) -> None:
        (began / name).write_text(str(number))
        threading.Event().wait()

    queries = []
    for query, provider, home, hangs in given["homes"]:
        after = partial(hang, f"{query}-{provider}") if hangs else None
        queries.append(start(spark, side, query, provider, Path(home), after=after))
    for running in queries:
        running.awaitTermination()
    (began / "done").write_text("")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
