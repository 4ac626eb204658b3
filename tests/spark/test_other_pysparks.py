"""A stateful job with another PySpark in its own environment: failed over with its state, and handed over."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reconciler import artifacts
from reconciler.stores.registry import open_store
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
from reconciler.formats.plan import parse_plan
from reconciler.formats.start_offsets import planned_text
from reconciler.spark.recording import recording
from reconciler.spark.session import with_kafka

place, source, destination, topic, jars = sys.argv[1:]
builder = SparkSession.builder.master("local[1]")
settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1"}
for name, value in settings.items():
    builder = builder.config(name, value)
spark = (builder.config("spark.jars", jars) if jars else with_kafka(builder, print)).getOrCreate()
checkpoint, copy, plan, config = (f"{place}/{name}" for name in ("checkpoint", "copy", "plan.json", "reconciler.toml"))
Path(config).write_text(f'''
[clusters.a]
bootstrap_servers = "{source}"
[clusters.b]
bootstrap_servers = "{destination}"
[anchors]
store = "sqlite:///{place}/anchors.db"
[[jobs]]
home = "a"
name = "clicks"
topics = ["{topic}"]
offsets = "checkpoint:{checkpoint}"
''')
counts, read = {}, []

def run(options, home, new=False):
    frame = spark.readStream.format("kafka").options(**options).load()
    frame = frame.selectExpr("*", "CAST(value AS STRING) AS v")
    if new:
        collect = lambda batch, n: read.extend(row.v for row in batch.collect())
        where = {"store": f"sqlite:///{place}/new.db", "group": "new", "bootstrap_servers": destination}
        writer = frame.writeStream.foreachBatch(recording(collect, **where))
    else:
        keep = lambda batch, n: counts.update({row["v"]: row["count"] for row in batch.collect()})
        writer = frame.groupBy("v").count().writeStream.outputMode("update").foreachBatch(keep)
    query = writer.option("checkpointLocation", home).trigger(availableNow=True).start()
    query.awaitTermination()

first = {"kafka.bootstrap.servers": source, "subscribe": topic, "startingOffsets": "earliest",
         "maxOffsetsPerTrigger": "4"}
run(first, checkpoint)
assert main(["track", "-c", config, "--once"]) == 0
assert main(["plan", "-c", config, "-o", plan]) == 0
assert main(["checkpoint", "clone", checkpoint, copy, "--plan", plan, "-c", config]) == 0
run({"kafka.bootstrap.servers": destination, "subscribe": f"a.{topic}"}, copy)
own = {"kafka.bootstrap.servers": destination, "subscribe": f"a.{topic}"}
run({**own, "startingOffsets": planned_text(parse_plan(Path(plan).read_text()))}, f"{place}/new", new=True)
verdict = json.loads(Path(plan).read_text())["jobs"][0]["verdict"]
Path(place, "result.json").write_text(json.dumps({"counts": counts, "read": sorted(read), "verdict": verdict}))
spark.stop()
"""


@pytest.mark.parametrize("version", CONNECTORS)
def test_a_stateful_job_fails_over_with_another_pyspark(
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
    assert result["verdict"] == "moved"
    assert result["counts"] == {"v0": 4, "v1": 3, "v2": 3}, "as without a failover"
    assert result["read"] == ["v0", "v0", "v1", "v2"], "the records after the anchor, and no other"
    (row,) = open_store(f"sqlite:///{tmp_path}/new.db").read("new")
    assert row.stored.anchor.offset == 14
