"""Spark Connect: the function and the recording run in the server's process, reports arrive in the client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from reconciler.ports import TopicPartition
from reconciler.stores.registry import open_store
from tests import ROOT
from tests.spark.environments import packages, since_pyspark
from tests.spark.sent import Kafka, Sent
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.system

JOB = """
import json, sys, threading
from pyspark.sql import SparkSession, functions as f
from reconciler.spark.session import with_kafka
from reconciler.spark.observing import observing
from reconciler.spark.recording import recording

place, bootstrap, topic = sys.argv[1:]
settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1",
            "spark.python.authenticate.socketTimeout": "120s"}
builder = SparkSession.builder.remote("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = with_kafka(builder, print).getOrCreate()
source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
events = spark.readStream.format("kafka").options(**source).load()
where = {"group": "clicks", "bootstrap_servers": bootstrap}

def run(writer, name):
    query = writer.option("checkpointLocation", f"{place}/{name}").trigger(availableNow=True).start()
    query.awaitTermination()
    return query

def write(batch, number):
    with open(f"{place}/seen", "a") as file:
        file.write(f"{number} {batch.count()}\\n")

number = f.get_json_object(f.col("value").cast("string"), "$.id")
function = recording(write, store=f"sqlite:///{place}/rows.db", id=number, config_id="json:$.id", **where)
function = recording(function, store=f"checkpoint:{place}/checkpoint", anchors=f"sqlite:///{place}/anchors.db", **where)
run(events.writeStream.foreachBatch(function), "checkpoint")

bus = spark.streams._sqlb
client, pass_on = spark.client, bus.post_to_all
send, asked = client.execute_command, threading.Event()

def ask(command, *rest, **named):
    if command.streaming_query_listener_bus_command.remove_listener_bus_listener:
        asked.set()
    return send(command, *rest, **named)

def pass_on_late(event):  # as if the first report was under way when the listener is taken away: settle() stores it
    if threading.current_thread() is not threading.main_thread():
        asked.wait(60)
    pass_on(event)

client.execute_command, bus.post_to_all = ask, pass_on_late
anchors = observing(spark, store=f"checkpoint:{place}/other", anchors=f"sqlite:///{place}/other.db", id="key", **where)
query = run(anchors.watch(events, [topic]).writeStream.format("parquet").option("path", f"{place}/out"), "other")
anchors.settle(query)
anchors.close()
assert asked.is_set(), "no listener was taken away"
spark.stop()
"""


ATTEMPTS = 4
TOO_SLOW = "Python worker failed to connect back"
"""Spark's error if starting Python in its server took more than 10 seconds, which no setting changes."""


def go_first() -> None:
    """Let this process and its children go before others, where the user may: 10 seconds are few on a busy machine."""
    with suppress(PermissionError):
        os.nice(-15)


def run_job(place: Path, *addresses: str) -> subprocess.CompletedProcess[str]:
    libraries = packages("spark-connect", "grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
    path = os.pathsep.join([str(libraries), str(ROOT), os.environ.get("PYTHONPATH", "")])
    any_free_port = {"SPARK_TESTING": "1"}  # Spark's own tests do so: else it is 15002, which another program may have
    return subprocess.run(
        [sys.executable, "-c", JOB, str(place), *addresses],
        env={**os.environ, **any_free_port, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        preexec_fn=go_first,
        check=False,
    )


@since_pyspark(4, 0)
def test_recording_and_observing_work_over_spark_connect(kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    kafka.create(topic_name, 1)
    kafka.send(topic_name, [Sent(0, b"k%d" % n, json.dumps({"id": n}).encode()) for n in range(5)])
    for attempt in range(ATTEMPTS):
        place = tmp_path / str(attempt)
        place.mkdir()
        done = run_job(place, kafka.bootstrap, topic_name)
        if TOO_SLOW not in done.stderr:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert (place / "seen").read_text() == "0 5\n"
    assert done.stderr.count("because Spark Connect does not show a batch's offsets") == 1

    at = TopicPartition(topic_name, 0)
    (row,) = open_store(f"sqlite:///{place}/rows.db").read("clicks")
    assert (row.key, row.stored.offset, row.stored.anchor.offset, row.stored.anchor.id) == (at, 5, 4, b"4")
    for name, anchors, id_ in (("checkpoint", "anchors", None), ("other", "other", b"k4")):
        store = open_store(f"checkpoint:{place}/{name}", anchors=f"sqlite:///{place}/{anchors}.db")
        (row,) = store.read("clicks")
        assert (row.stored.offset, row.anchor_lag) == (5, 0)
        assert (row.stored.anchor.offset, row.stored.anchor.id) == (4, id_)
