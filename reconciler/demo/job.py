"""The demo's PySpark job: reads a Kafka topic as a stream and writes the ids it saw, a directory a batch.

Run as a program of its own, as a team's job would be. After a failover only its options change: the plan gives them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

from reconciler.demo.traffic import ID_HEADER

KILLED = 75
"""The exit code of a job that was told to die in mid-stream."""


def main() -> int:
    """Run until everything there is has been read, or until the batch at which it is to die."""
    options = _arguments()
    from pyspark.sql import SparkSession

    from reconciler.spark.connector import with_kafka
    from reconciler.spark.recording import recording

    builder = SparkSession.builder.appName("clicks").master("local[2]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(options.output / "warehouse"),
    }.items():
        builder = builder.config(key, value)
    spark = with_kafka(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def write(batch: DataFrame, batch_id: int) -> None:
        if batch_id == options.die_at_batch:
            os._exit(KILLED)  # as a lost machine would: nothing of this batch is done
        seen = batch.selectExpr(
            "topic",
            "partition",
            "offset",
            f"cast(filter(headers, h -> h.key = '{ID_HEADER}')[0].value as string) as id",
        )
        seen.write.mode("overwrite").csv(str(options.output / f"batch-{batch_id:04d}"))

    stream = spark.readStream.format("kafka").options(**json.loads(options.read_options)).load()
    wrapped = recording(
        write,
        store=options.store,
        group=options.group,
        bootstrap_servers=options.bootstrap,
        id=f"header:{ID_HEADER}",
    )
    query = (
        stream.writeStream.foreachBatch(wrapped)
        .option("checkpointLocation", str(options.output / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--read-options", required=True, help="JSON for spark.readStream.options")
    parser.add_argument("--die-at-batch", type=int, default=-1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
