"""Copies of small checkpoints, restarted by PySpark: named sources, the way without a copy, and torn copies."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import stamp
from reconciler.core.errors import Refused
from reconciler.failover.checkpoint.clone import clone
from reconciler.failover.outside import Outside
from reconciler.kafka.reader import KafkaLogReader
from reconciler.places.checkpoint.reading import BARRIER, read_checkpoint
from reconciler.places.registry import open_store
from reconciler.plan.document import PartitionPlan, Plan
from reconciler.plan.start import planned_text
from tests.failover.checkpoint.checkpoint_files import config_of, job, plan, row
from tests.spark.environments import PYSPARK, since_pyspark
from tests.spark.sent import Kafka, Sent
from tests.waiting import wait_until

pytestmark = pytest.mark.system
NOW = 1_795_000_000_000


class Counts:
    """A query that counts how often each value came, over all its batches."""

    def __init__(self, spark: Any, home: Path) -> None:
        self.spark, self.home = spark, home
        self.found: Counter[str] = Counter()

    def run(self, options: dict[str, str], name: str | None = None) -> None:
        reader = self.spark.readStream.format("kafka").options(**options)
        frame = (reader.name(name) if name else reader).load().selectExpr("CAST(value AS STRING) AS v")

        def keep(batch: Any, number: int) -> None:
            self.found.update({each["v"]: each["count"] - self.found[each["v"]] for each in batch.collect()})

        writer = frame.groupBy("v").count().writeStream.outputMode("update").foreachBatch(keep)
        query = writer.option("checkpointLocation", str(self.home)).trigger(availableNow=True).start()
        query.awaitTermination()


@pytest.fixture
def topics(kafka: Kafka, topic_name: str) -> tuple[str, str]:
    """A topic and its mirror, which lacks the first three records and has a mark in between."""
    there = f"a.{topic_name}"
    for name in (topic_name, there):
        kafka.create(name)
    kafka.send(topic_name, [Sent(value=b"early")] * 3 + [Sent(value=b"x"), Sent(value=b"y")])
    kafka.send(there, [Sent(value=b"x"), Sent(value=b"y")], transaction=topic_name)
    wait_until(lambda: kafka.end(there, 0) == 3, "the mark, which is written after the answer")
    kafka.send(there, [Sent(value=b"y"), Sent(value=b"z")])
    return topic_name, there


def read(kafka: Kafka, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}


def written(spark: Any, kafka: Kafka, topic: str, begin: int) -> list[bytes]:
    """The records of a topic from an offset on."""
    options = read(kafka, topic) | {"startingOffsets": json.dumps({topic: {"0": begin}})}
    values = spark.read.format("kafka").options(**options).load().orderBy("offset").collect()
    return [bytes(each["value"]) for each in values]


def the_plan(kafka: Kafka, topic: str, at: PartitionPlan) -> tuple[Plan, Outside]:
    """A plan of one row, and what it is held against."""
    reader = KafkaLogReader({"bootstrap.servers": kafka.bootstrap}, timeout_s=10.0)
    there = f"a.{topic}"
    info = reader.describe([there])
    at = replace(at, topic_id=info.topics[there].topic_id)
    own = {
        "cluster_id": info.cluster_id,
        "bootstrap_servers": kafka.bootstrap,
        "created_at": stamp(NOW),
        "expires_at": stamp(2 * NOW),
    }
    known = replace(plan(job(at)), **own)
    return known, Outside(reader, open_store, lambda: 0.0, lambda: NOW)


WHOLE = {"early": 3, "x": 1, "y": 2, "z": 1}


@since_pyspark(4, 2)
@pytest.mark.usefixtures("named_sources")
def test_a_query_with_named_sources_goes_on_in_its_copy_or_under_a_new_name(
    spark: Any, kafka: Kafka, topics: tuple[str, str], tmp_path: Path
) -> None:
    topic, there = topics
    counts = Counts(spark, tmp_path / "checkpoint")
    counts.run(read(kafka, topic), "events")
    before = counts.found.copy()
    # Five records of the source are two and a mark at the destination: record 1 is the last processed one.
    known, world = the_plan(kafka, topic, row(0, 5, 3, record=1, topic=topic))
    assert read_checkpoint(str(counts.home)).last.version == 2
    clone(counts.home, tmp_path / "copy", known, config=config_of(counts.home, known), outside=world)

    in_the_copy = Counts(spark, tmp_path / "copy")
    in_the_copy.found = before.copy()
    in_the_copy.run(read(kafka, there), "events")
    assert in_the_copy.found == WHOLE

    counts.run(
        {**read(kafka, there), "startingOffsets": planned_text(known)}, "events_b"
    )  # the alternative: no copy, and a source that is new
    assert counts.found == WHOLE


def test_spark_refuses_a_torn_copy(spark: Any, kafka: Kafka, topics: tuple[str, str], tmp_path: Path) -> None:
    """Every version because of the barrier, 4.2 also without ``metadata``."""
    counts = Counts(spark, tmp_path / "checkpoint")
    counts.run(read(kafka, topics[0]))
    last = read_checkpoint(str(counts.home)).last.batch

    with_barrier = tmp_path / "with barrier"
    shutil.copytree(counts.home, with_barrier)
    (with_barrier / f"offsets/{last + 1}").write_bytes(BARRIER)
    with pytest.raises(Exception, match=r"(?i)version|malformed"):
        Counts(spark, with_barrier).run(read(kafka, topics[0]))
    with pytest.raises(Refused, match="is an unfinished copy"):
        read_checkpoint(str(with_barrier))

    without_metadata = tmp_path / "without metadata"
    shutil.copytree(counts.home, without_metadata)
    (without_metadata / "metadata").unlink()
    without = pytest.raises(Exception, match="MISSING_METADATA_FILE") if PYSPARK >= (4, 2) else nullcontext()
    with without:
        Counts(spark, without_metadata).run(read(kafka, topics[0]))
