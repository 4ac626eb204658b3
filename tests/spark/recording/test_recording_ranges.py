"""Recording by a batch's range: what counts as processed, and which batches are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.environments import since_pyspark
from tests.spark.recording.world import Job, records

pytestmark = pytest.mark.system


@pytest.fixture
def job(spark, kafka, topic_name, tmp_path) -> Job:
    return Job(spark, kafka, topic_name, tmp_path)


def test_records_that_the_query_filters_out_and_columns_that_it_drops_count_as_processed(job, topic_name):
    job.kafka.create(topic_name, 2)
    job.kafka.send(topic_name, [*records(0, 6), *records(1, 4)])
    job.run(prepare=lambda frame: frame.where("partition = 0 AND offset < 3").selectExpr("value"))
    assert {at.partition: row.stored.offset for at, row in job.rows().items()} == {0: 6, 1: 4}
    assert job.seen == [(0, 3)]


def test_an_aborted_transaction_is_not_named_where_the_query_leaves_it_out(job, topic_name):
    job.kafka.create(topic_name, 2)
    job.kafka.send(topic_name, [*records(0, 5), *records(1, 3)])
    job.kafka.send(topic_name, records(0, 20, start=5), transaction=f"tx-{topic_name}", abort=True)
    committed = {"kafka.isolation.level": "read_committed"}
    job.run(options=committed)
    assert {at.partition: row.stored.offset for at, row in job.rows().items()} == {0: 5, 1: 3}
    before = job.rows()
    job.kafka.send(topic_name, records(0, 2, start=5), transaction=f"tx-{topic_name}", abort=True)
    job.run(options=committed)
    assert job.rows() == before, "a batch of aborted records and markers stores nothing"
    job.checkpoint, job.address = job.checkpoint.with_name("all"), job.address.replace("offsets", "all")
    job.run()
    assert {at.partition: row.stored.anchor.offset for at, row in job.rows().items()} == {0: 27, 1: 2}


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param({"options": {"minPartitions": "7"}}, id="split ranges"),
        pytest.param({"options": {"maxRecordsPerPartition": "4"}}, id="small tasks", marks=pytest.mark.thorough),
        pytest.param({"prepare": lambda frame: frame.repartition(3)}, id="shuffled", marks=pytest.mark.thorough),
        pytest.param({"prepare": lambda frame: deduplicated(frame)}, id="repetitions dropped"),
        pytest.param({"options": {"kafka.bootstrap.servers": "localhost:{port}"}}, id="another name of the broker"),
    ],
)
def test_a_batchs_range_is_found_however_spark_reads_it(job, topic_name, shape):
    job.kafka.create(topic_name, 3)
    job.kafka.send(topic_name, [*records(0, 20), *records(1, 7)])
    port = job.kafka.bootstrap.rpartition(":")[2]
    options = {name: value.format(port=port) for name, value in shape.get("options", {}).items()}
    starts = json.dumps({topic_name: {"0": 2, "1": 6, "2": 0}})
    job.run(
        options={"startingOffsets": starts, "maxOffsetsPerTrigger": "12", **options},
        prepare=shape.get("prepare", _same),
    )
    assert {at.partition: row.stored.offset for at, row in job.rows().items()} == {0: 20, 1: 7}


def deduplicated(frame: Any) -> Any:
    return frame.withWatermark("timestamp", "1 hour").dropDuplicates(["partition", "offset"])


def _same(frame: Any) -> Any:
    return frame


def derived(recorded: Any) -> Callable[[Any, int], None]:
    """A job that records a part of its batch only."""
    return lambda batch, batch_id: recorded(batch.where("offset < 3"), batch_id)


def test_a_frame_that_is_derived_from_the_batch_is_refused(job, topic_name):
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 6))
    with pytest.raises(Exception, match="the frame is not the query's own batch, but derived from it"):
        job.run(around=derived)
    assert job.seen == [], "the function was called"


def test_an_aggregation_in_update_mode_is_recorded(job, topic_name):
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 6))
    job.run(prepare=lambda frame: frame.groupBy("key").count(), mode="update", options={"maxOffsetsPerTrigger": "4"})
    (row,) = job.rows().values()
    assert row.stored.offset == 6


def test_a_store_of_rows_is_refused_for_a_query_that_holds_records_back(job, topic_name):
    """Its output is not in the log's order: a record after those that still wait may be put out at once."""
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 6))
    with pytest.raises(Exception, match="the query has a join of two streams, which may hold records back"):
        job.run(prepare=held_back, options={"maxOffsetsPerTrigger": "4"})
    assert job.seen == [], "the function was called"
    assert not Path(job.address.removeprefix("sqlite:///")).exists()


def held_back(frame: Any) -> Any:
    """A join of two streams: a record waits in the state for its partner."""
    from pyspark.sql.functions import expr

    return frame.join(
        frame.selectExpr("key AS partner", "offset AS other"), on=expr("key = partner AND offset = other")
    )


def test_of_two_sources_in_one_partition_the_one_that_is_behind_decides(job, topic_name):
    """Its records come in later batches: beyond them nothing is processed."""
    assert stored_beside_one_behind(job, topic_name) == (2, 6), "one source has read all six"


@since_pyspark(4, 2)
@pytest.mark.usefixtures("named_sources")
def test_of_two_named_sources_the_one_that_is_behind_decides(job, topic_name):
    assert stored_beside_one_behind(job, topic_name, name="ahead") == (2, 6)


def stored_beside_one_behind(job: Job, topic_name: str, **how: Any) -> tuple[int, int]:
    """The offsets stored after the first and the last batch of two sources, of which one reads two records a batch."""
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 6))
    source = {"kafka.bootstrap.servers": job.kafka.bootstrap, "subscribe": topic_name, "startingOffsets": "earliest"}
    reader = job.spark.readStream.format("kafka").options(**source, maxOffsetsPerTrigger="2")
    behind = (reader.name("behind") if "name" in how else reader).load()
    stored = []

    def look(recorded: Any) -> Callable[[Any, int], None]:
        def each(batch: Any, batch_id: int) -> None:
            recorded(batch, batch_id)
            stored.append([row.stored.offset for row in job.rows().values()])

        return each

    job.run(prepare=lambda frame: frame.unionByName(behind), around=look, **how)
    (first,), *_, (last,) = stored
    return first, last
