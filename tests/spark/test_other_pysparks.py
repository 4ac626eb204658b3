"""A stateful job with another PySpark in its own environment: it starts itself, and moves with its state."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reconciler import artifacts
from tests import ROOT
from tests.spark.environments import OURS, python_with
from tests.spark.sent import BASE_MS, Kafka, Sent

pytestmark = [pytest.mark.system, pytest.mark.thorough]

CONNECTORS = {"3.5.7": None, "4.0.4": None, "4.1.4": None, "4.3.0": "4.2"}
"""The connector's version, where another one than PySpark's: there is none for 4.3.0, and 4.2's works with it."""

JOB = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from reconciler.cli.main import main
from reconciler.spark import job
from reconciler.spark.session import with_kafka

place, source, destination, topic, jars = sys.argv[1:]
builder = SparkSession.builder.master("local[1]")
settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1"}
for name, value in settings.items():
    builder = builder.config(name, value)
spark = (builder.config("spark.jars", jars) if jars else with_kafka(builder, print)).getOrCreate()
config = f"{place}/reconciler.toml"
Path(config).write_text(f'''
[clusters.a]
bootstrap_servers = "{source}"
[clusters.b]
bootstrap_servers = "{destination}"
[state]
store = "sqlite:///{place}/state.db"
[[jobs]]
home = "a"
name = "clicks"
topics = ["{topic}"]
offsets = "checkpoint:{place}/checkpoint"
''')
counts, stays = {}, []

def run():
    clicks = job(config, "clicks", plans=f"{place}/plans")
    frame = clicks.read(spark, {"maxOffsetsPerTrigger": "4"}).selectExpr("CAST(value AS STRING) AS v")
    keep = lambda batch, n: counts.update({row["v"]: row["count"] for row in batch.collect()})
    writer = frame.groupBy("v").count().writeStream.outputMode("update").foreachBatch(keep)
    query = writer.option("checkpointLocation", clicks.checkpoint).trigger(availableNow=True).start()
    tracking = clicks.track(query)
    query.awaitTermination()
    tracking.close()
    (known,) = clicks.state.newest(clicks.start.stay)[-1].numbers.values()
    stays.append([clicks.start.cluster, tracking.state, known.number, known.record.offset])

assert main(["init", "-c", config]) == 0
run()
assert main(["move", "-c", config, "--to", "b", "--yes"]) == 0
run()
Path(place, "result.json").write_text(json.dumps({"counts": counts, "stays": stays}))
spark.stop()
"""


@pytest.mark.parametrize("version", CONNECTORS)
def test_a_stateful_job_is_tracked_and_moves_with_another_pyspark(
    version: str, clusters: Any, topic_name: str, tmp_path: Path
) -> None:
    python = python_with(f"pyspark-{version}", f"pyspark=={version}", *OURS)
    connector = CONNECTORS[version]
    jars = artifacts.spark_kafka_connector(print) if connector else []
    if connector and not any(connector in jar.name for jar in jars):
        pytest.skip(f"the tests' own PySpark has another connector than {connector}")
    source, destination = Kafka(clusters.source.bootstrap), Kafka(clusters.destination.bootstrap)
    source.create(topic_name)
    destination.create(f"a.{topic_name}")
    before = [Sent(0, b"k", b"v%d" % (n % 3), BASE_MS + n) for n in range(6)]
    after = [Sent(0, b"k", b"v%d" % (n % 3), BASE_MS + n) for n in range(6, 10)]
    source.send(topic_name, before)
    destination.send(f"a.{topic_name}", [Sent(0, b"k", b"older", BASE_MS - 5 + n) for n in range(5)])
    destination.send(f"a.{topic_name}", [*before, *after])

    addresses = (source.bootstrap, destination.bootstrap, topic_name)
    done = subprocess.run(
        [str(python), "-c", JOB, str(tmp_path), *addresses, ",".join(map(str, jars))],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["counts"] == {"v0": 4, "v1": 3, "v2": 3}, "as without a failover"
    assert result["stays"] == [["a", "ended", 6, 5], ["b", "ended", 15, 14]], "the journal has the last record of both"
