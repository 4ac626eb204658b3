"""Queries from a topic into sinks, in this process or in a program that can be killed:

python -m tests.failover.sinks.queries '{"flows": {"delta": "/folder"}, …}'
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HADOOP = (
    "org.slf4j:slf4j-api,org.apache.hadoop:hadoop-client-runtime,org.apache.hadoop:hadoop-client-api,"
    "com.google.code.findbugs:jsr305"
)
"""PySpark has these already."""
DELTA = {
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "spark.jars.excludes": HADOOP,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
ICEBERG = {
    "spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
}
"""There is no runtime of Iceberg for Spark 4.2: its queries run on 4.0."""
PER_BATCH = 10
APP_ID = "clicks"
FORMATS = {"files": "parquet", "delta": "delta", "app": "delta", "iceberg": "iceberg"}


@dataclass(frozen=True)
class Flow:
    """A sink in a folder: ``files``, ``delta``, ``iceberg``, or ``app``: ``foreachBatch`` with ``txnAppId``, Delta."""

    kind: str
    folder: str

    @property
    def out(self) -> str:
        return f"{self.folder}/db/out" if self.kind == "iceberg" else f"{self.folder}/out"

    @property
    def address(self) -> str:
        """As ``[[jobs]] sink`` has it."""
        return f"delta:{self.out}?app_id={APP_ID}" if self.kind == "app" else f"{self.kind}:{self.out}"

    def has_taken(self, batch: int) -> bool:
        """Whether this batch is the last in the sink's own log."""
        if self.kind == "files":
            log = Path(self.out) / "_spark_metadata"
            return (log / str(batch)).exists() or (log / f"{batch}.compact").exists()
        names, pattern = {
            "iceberg": ("metadata/v*.metadata.json", r'"spark.sql.streaming.epochId" ?: ?"(\d+)"'),
        }.get(self.kind, ("_delta_log/*.json", r'"txn":\{"appId":"[^"]+","version":(\d+)'))
        newest = max(Path(self.out).glob(names), key=lambda path: (len(path.name), path.name), default=None)
        found = re.findall(pattern, newest.read_text()) if newest else []
        return bool(found) and int(found[-1]) == batch

    def has_written(self, since: Path) -> bool:
        """Whether there are data files that are newer than a file, also of a batch that the sink has not got yet."""
        began = since.stat().st_mtime_ns
        found = (path for path in Path(self.out).rglob("*.parquet") if "_delta_log" not in path.parts)
        return any(path.stat().st_mtime_ns > began for path in found)

    # ------------------------------------------------------------ within Spark

    def start(self, spark: Any, bootstrap: str, topic: str, checkpoint: Path) -> Any:
        """The query, ten records a batch, up to the topic's end."""
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        frame = spark.readStream.format("kafka").options(maxOffsetsPerTrigger=PER_BATCH, **options).load()
        frame = frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS id")
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        if self.kind == "app":
            out = self.out

            def put(batch: Any, number: int) -> None:
                transaction = {"txnAppId": APP_ID, "txnVersion": number}
                batch.write.format("delta").mode("append").options(**transaction).save(out)

            return writer.foreachBatch(put).start()
        if self.kind == "iceberg":
            spark.sql("CREATE TABLE IF NOT EXISTS ice.db.out (id INT) USING iceberg")
            return writer.format("iceberg").toTable("ice.db.out")
        return writer.format(FORMATS[self.kind]).start(self.out)

    def ids(self, spark: Any) -> list[int]:
        """What the sink holds."""
        if self.kind == "iceberg":
            frame = spark.table("ice.db.out")
        else:
            frame = spark.read.format(FORMATS[self.kind]).load(self.out)
        return sorted(row.id for row in frame.collect())


def main(text: str) -> None:
    from pyspark.sql import SparkSession

    from reconciler.spark.session import with_kafka

    given = json.loads(text)
    flows = {kind: Flow(kind, folder) for kind, folder in given["flows"].items()}
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", "1")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    settings = DELTA
    if "iceberg" in flows:
        settings = {**ICEBERG, "spark.sql.catalog.ice.warehouse": flows["iceberg"].folder}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = with_kafka(builder, print).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    checkpoints = given["checkpoints"]
    queries = [flows[kind].start(spark, *given["reads"], Path(checkpoints[kind])) for kind in flows]
    for query in queries:
        query.awaitTermination()
    Path(given["answer"]).write_text(json.dumps({kind: flow.ids(spark) for kind, flow in flows.items()}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
