"""A query that starts from a plan reads every partition exactly from the plan's offset on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import TopicPartition
from reconciler.core.verdicts import Finding, Verdict
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan
from reconciler.spark import handoff
from tests.spark.sent import Kafka, Sent

pytestmark = pytest.mark.system

STARTS = {0: 3, 1: 0, 2: 10, 3: 7}
"""In the middle, at the start, at the end, and at the last record but two of ten."""


@pytest.fixture
def plan(kafka: Kafka, topic_name: str) -> Plan:
    kafka.create(topic_name, len(STARTS))
    kafka.send(topic_name, [Sent(partition, value=b"%d" % n) for partition in STARTS for n in range(10)])
    rows = tuple(
        PartitionPlan.of(
            Finding(Verdict.MOVED, offset, replay_at_most=0),
            source_topic=topic_name,
            key=TopicPartition(topic_name, partition),
            topic_id="id",
            stored=None,
            probes=1,
            rounds=1,
        )
        for partition, offset in STARTS.items()
    )
    times = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")
    job = JobPlan("clicks", "clicks", "memory:", rows)
    return Plan("0.1.0", *times, "a", "b", None, kafka.bootstrap, kafka.cluster_id(), (job,))


def read_offsets(rows: list[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {partition: [] for partition in STARTS}
    for row in rows:
        found[row.partition].append(row.offset)
    return {partition: sorted(offsets) for partition, offsets in found.items()}


EXPECTED = {partition: list(range(start, 10)) for partition, start in STARTS.items()}


def collected(spark: Any, options: dict[str, str], folder: Path) -> list[Any]:
    """All rows of a query with these options."""
    rows: list[Any] = []
    columns = ("topic", "partition", "offset")
    query = (
        spark.readStream.format("kafka")
        .options(**options)
        .load()
        .writeStream.foreachBatch(lambda batch, batch_id: rows.extend(batch.select(*columns).collect()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows


def test_a_stream_starts_at_the_planned_offsets(spark, plan, tmp_path):
    options = handoff.read_stream_options(plan, extra={"maxOffsetsPerTrigger": "6"})
    assert read_offsets(collected(spark, options, tmp_path)) == EXPECTED


def test_a_batch_read_ends_at_the_given_offsets(spark, plan, topic_name):
    ends = {topic_name: {"0": 5, "1": 0, "2": -1, "3": 8}}
    rows = spark.read.format("kafka").options(**handoff.read_options(plan, ending_offsets=ends)).load().collect()
    assert read_offsets(rows) == {0: [3, 4], 1: [], 2: [], 3: [7]}


def test_a_stream_by_pattern_reads_the_planned_topic_and_the_clusters_own(spark, kafka, plan, topic_name, tmp_path):
    own, other = f"b.{topic_name}", f"{topic_name}-old"  # Spark alone would find the pattern in the second name, too
    for name in (own, other):
        kafka.create(name)
        kafka.send(name, [Sent(value=b"own")])
    options = handoff.load(plan).matching(rf"(b\.)?{topic_name}").read_stream_options()
    found = collected(spark, options, tmp_path)
    assert read_offsets([row for row in found if row.topic == topic_name]) == EXPECTED
    assert {(row.topic, row.offset) for row in found if row.topic != topic_name} == {(own, 0)}
