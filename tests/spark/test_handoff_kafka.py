"""A query that starts from a plan reads, of every partition, exactly from the plan's offset on."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Kafka, Sent

from reconciler.core.plan import JobPlan, PartitionPlan, Plan
from reconciler.core.verdicts import Finding, Verdict
from reconciler.spark import handoff

pytestmark = pytest.mark.system

STARTS = {0: 3, 1: 0, 2: 10, 3: 7}
"""In the middle, at the start, at the end, and at the last record but two of ten."""


@pytest.fixture
def plan(kafka: Kafka, topic_name: str) -> dict[str, Any]:
    kafka.create(topic_name, len(STARTS))
    kafka.send(topic_name, [Sent(partition, value=b"%d" % n) for partition in STARTS for n in range(10)])
    rows = tuple(
        PartitionPlan.of(
            (topic_name, topic_name, "id", partition), None, Finding(Verdict.MOVED, offset, replay_at_most=0), (1, 1)
        )
        for partition, offset in STARTS.items()
    )
    times = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")
    job = JobPlan("clicks", "clicks", "memory:", rows)
    return Plan("0.1.0", *times, "a", None, kafka.bootstrap, kafka.cluster_id(), (job,)).to_json()


def read_offsets(rows: list[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {partition: [] for partition in STARTS}
    for row in rows:
        found[row.partition].append(row.offset)
    return {partition: sorted(offsets) for partition, offsets in found.items()}


EXPECTED = {partition: list(range(start, 10)) for partition, start in STARTS.items()}


def test_a_stream_starts_exactly_there(spark, plan, tmp_path):
    rows: list[Any] = []
    options = handoff.read_stream_options(plan, extra={"maxOffsetsPerTrigger": "6"})
    query = (
        spark.readStream.format("kafka")
        .options(**options)
        .load()
        .writeStream.foreachBatch(lambda batch, batch_id: rows.extend(batch.select("partition", "offset").collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert read_offsets(rows) == EXPECTED


def test_a_batch_read_starts_exactly_there(spark, plan):
    rows = spark.read.format("kafka").options(**handoff.read_options(plan)).load().collect()
    assert read_offsets(rows) == EXPECTED


def test_a_batch_read_ends_where_told(spark, plan, topic_name):
    ends = {topic_name: {"0": 5, "1": 0, "2": -1, "3": 8}}
    rows = spark.read.format("kafka").options(**handoff.read_options(plan, ending_offsets=ends)).load().collect()
    assert read_offsets(rows) == {0: [3, 4], 1: [], 2: [], 3: [7]}
