"""The demo's PySpark job: streaming queries on a Kafka topic. Some write ids, some keep counts in state.

It runs as a separate program, like a team's own job. A failover changes only its input. The ids query takes the hook's
start and tracks itself. The counts query knows nothing of this product: it takes options and the checkpoint's copy.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from reconciler.demo.lab.in_use import ID_HEADER
from reconciler.demo.proof import WINDOW_MINUTES
from reconciler.spark.started import Job, job
from reconciler.state.start import load

KILLED = 75
"""The exit code of a job that died within a batch on purpose."""
MEETING_S = 300.0
"""Time for all queries to reach the same batch. After it this query fails: another one has failed before."""
WORK_S = 2.0
"""How long the job works in its last batch before it dies: until the batch's end is in the journal."""
IDS, COUNTS = "ids", "counts"


@dataclass(frozen=True, slots=True)
class Query:
    """One query: its kind, its folder (checkpoint, and a directory per batch), and its source's options.

    ``start``: the file of the hook's start, for a query that reads it. ``copy``: the checkpoint's copy with which a
    moved query continues; without it, the checkpoint is in the folder.
    """

    kind: str
    folder: str
    options: dict[str, str]
    start: str = ""
    copy: str = ""

    @property
    def checkpoint(self) -> Path:
        return Path(self.copy or Path(self.folder, "checkpoint"))


@dataclass(frozen=True, slots=True)
class Work:
    """The job's instructions: its queries, which run in parallel.

    ``die_at_batch``: the job dies when every query is in the middle of this batch; -1: never.
    """

    queries: list[Query]
    die_at_batch: int = -1

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Work:
        given = json.loads(text)
        return cls(**{**given, "queries": [Query(**each) for each in given["queries"]]})


def run(work: Work) -> None:
    """Run until every record has been read, or until the batch at which to die."""
    spark = _session(Path(work.queries[0].folder))
    meeting = threading.Barrier(len(work.queries))

    def die(batch_id: int) -> None:
        if batch_id == work.die_at_batch:
            meeting.wait(MEETING_S)
            time.sleep(WORK_S)
            os._exit(KILLED)  # like a lost machine: nothing of this batch is done

    for running in [_start(spark, query, die) for query in work.queries]:
        running.awaitTermination()
    spark.stop()


def _session(home: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    from reconciler.spark.session import with_kafka

    builder = SparkSession.builder.appName("clicks").master("local[2]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # a batch more for each query would prove nothing
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
    }.items():
        builder = builder.config(key, value)
    spark = with_kafka(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _start(spark: SparkSession, query: Query, die: Callable[[int], None]) -> StreamingQuery:
    def write(batch: DataFrame, batch_id: int) -> None:
        die(batch_id)
        shown = _seen(batch) if query.kind == IDS else _counted(batch)
        shown.write.mode("overwrite").csv(str(Path(query.folder, f"batch-{batch_id:04d}")))

    if query.start:
        own = started(query.start)
        running = _begin(own.read(spark, query.options).writeStream.foreachBatch(write), own.checkpoint)
        own.track(running)
        return running
    stream = spark.readStream.format("kafka").options(**query.options).load()
    return _begin(_counts(stream).writeStream.outputMode("update").foreachBatch(write), str(query.checkpoint))


def started(start: str) -> Job:
    """The job of a start's file. A job of its own takes it from its environment, by ``job()``."""
    return job(start=load(Path(start).read_text(encoding="utf-8"), start))


def _begin(writer: DataStreamWriter, checkpoint: str) -> StreamingQuery:
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def _seen(batch: DataFrame) -> DataFrame:
    id_of = f"cast(filter(headers, h -> h.key = '{ID_HEADER}')[0].value as string) as id"
    return batch.selectExpr("topic", "partition", "offset", id_of)


def _counts(stream: DataFrame) -> DataFrame:
    """Clicks per user and window. The counts of open windows are Spark's state."""
    from pyspark.sql import functions as f

    length = f"{WINDOW_MINUTES} minutes"
    clicks = stream.withWatermark("timestamp", length)
    return clicks.groupBy(f.window("timestamp", length), f.expr("cast(key as string) as user")).count()


def _counted(batch: DataFrame) -> DataFrame:
    return batch.selectExpr("unix_millis(window.start) as begin", "user", "count")


if __name__ == "__main__":
    run(Work.from_json(Path(sys.argv[1]).read_text()))
