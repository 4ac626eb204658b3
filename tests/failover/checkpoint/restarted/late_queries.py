"""Queries that log their progress behind their output, from one Kafka topic to another. Also a program:

    python -m tests.failover.checkpoint.restarted.late_queries KIND SERVERS TOPIC SINK-SERVERS SINK-TOPIC CHECKPOINT

runs one until it is killed. KIND is ``asynchronous`` or ``real-time``.
"""

from __future__ import annotations

import sys
from typing import Any

INTERVAL_MS = 8000
"""How often asynchronous progress tracking logs: long enough for several batches on a slow machine."""


def start(spark: Any, kind: str, servers: str, topic: str, sink: str, out: str, checkpoint: str) -> Any:
    """Start a query of this kind, which copies every value."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format("kafka").options(**options).load().select("value")
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", sink).option("topic", out)
    writer = writer.option("checkpointLocation", checkpoint).outputMode(
        "append" if kind == "asynchronous" else "update"
    )
    if kind != "asynchronous":
        return writer.trigger(realTime="5 seconds").start()
    writer = writer.option("asyncProgressTrackingEnabled", "true")
    return writer.option("asyncProgressTrackingCheckpointIntervalMs", str(INTERVAL_MS)).start()


def main(arguments: list[str]) -> None:
    from pyspark.sql import SparkSession

    from reconciler.spark.session import with_kafka

    builder = SparkSession.builder.master("local[4]").config("spark.sql.shuffle.partitions", "1")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    spark = with_kafka(builder, print).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    start(spark, *arguments).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
