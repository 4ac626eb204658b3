"""Recording by a batch's range: what counts as processed, and when the batch is searched instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.stores.registry import open_store
from tests.spark.environments import since_pyspark
from tests.spark.recording.world import SEARCHES, Job, records

pytestmark = pytest.mark.system


@pytest.fixture
def job(spark, kafka, topic_name, tmp_path) -> Job:
    return Job(spark, kafka, topic_name, tmp_path)


@pytest.mark.parametrize(("processed", "offset"), [("read", 6), ("received", 3)])
def test_records_that_the_query_filters_out_count_as_it_is_told(job, topic_name, processed, offset):
    job.kafka.create(topic_name, 2)
    job.kafka.send(topic_name, [*records(0, 6), *records(1, 4)])
    job.run(prepare=lambda frame: frame.where("partition = 0 AND offset < 3"), processed=processed)
    found = {at.partition: row.stored.offset for at, row in job.rows().items()}
    assert found == ({0: 6, 1: 4} if processed == "read" else {0: offset})
    assert job.seen == [(0, 3)]


def test_an_aborted_transaction_is_not_named_where_the_query_leaves_it_out(job, topic_name, caplog):
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
    assert SEARCHES not in caplog.text


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
def test_a_batchs_range_is_found_however_spark_reads_it(job, topic_name, shape, caplog):
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
    assert SEARCHES not in caplog.text


def deduplicated(frame: Any) -> Any:
    return frame.withWatermark("timestamp", "1 hour").dropDuplicates(["partition", "offset"])


def _same(frame: Any) -> Any:
    return frame


def derived(recorded: Any) -> Callable[[Any, int], None]:
    """A job that records a part of its batch only."""
    return lambda batch, batch_id: recorded(batch.where("offset < 3"), batch_id)


@pytest.mark.parametrize(
    ("how", "prepare", "around", "why", "offset"),
    [
        ({}, _same, derived, "not the query's own batch", 3),
        ({"id": lambda frame: frame["key"]}, _same, _same, "only Spark can read", 6),
        ({"mode": "update"}, lambda frame: aggregated(frame), _same, "operator Aggregate is not known to", 6),
    ],
    ids=["derived frame", "column", "aggregation in update mode"],
)
def test_a_batch_is_searched_where_its_range_does_not_tell(job, topic_name, how, prepare, around, why, offset, caplog):
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 6))
    job.run(prepare=prepare, around=around, options={"maxOffsetsPerTrigger": "4"}, **how)
    (row,) = job.rows().values()
    assert row.stored.offset == offset
    (line,) = [each.getMessage() for each in caplog.records if SEARCHES in each.getMessage()]
    assert re.search(why, line)


def aggregated(frame: Any) -> Any:
    return frame.groupBy(frame.columns).count()


@pytest.mark.parametrize("processed", ["read", pytest.param("received", marks=pytest.mark.thorough)])
def test_a_store_of_rows_is_refused_for_a_query_that_holds_records_back(job, topic_name, processed):
    """Its output is not in the log's order: a record after those that still wait may be put out at once."""
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 6))
    with pytest.raises(Exception, match="the query has a join of two streams, which may hold records back"):
        job.run(prepare=held_back, options={"maxOffsetsPerTrigger": "4"}, processed=processed)
    assert job.seen == [], "the function was called"
    assert not Path(job.address.removeprefix("sqlite:///")).exists()


def test_a_checkpoint_is_recorded_for_a_query_that_holds_records_back(job, topic_name, caplog):
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 6))
    anchors, job.address = job.address, f"checkpoint:{job.checkpoint}"
    job.run(prepare=held_back, options={"maxOffsetsPerTrigger": "4"}, anchors=anchors)
    (row,) = open_store(job.address, anchors=anchors).read("clicks")
    assert (row.stored.offset, row.stored.anchor.offset) == (6, 5)
    assert SEARCHES not in caplog.text


def test_what_a_batch_shows_is_no_anchor_of_a_query_that_holds_records_back(job, topic_name, caplog):
    """A column cannot be read from Kafka, and records that wait for their partner are in no batch."""
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 6))
    anchors, job.address = job.address, f"checkpoint:{job.checkpoint}"
    job.run(prepare=held_back, options={"maxOffsetsPerTrigger": "4"}, anchors=anchors, id=lambda frame: frame["key"])
    (row,) = open_store(job.address, anchors=anchors).read("clicks")
    assert (row.stored.offset, row.stored.anchor) == (6, None)
    assert caplog.text.count("keeps no anchors for its batches") == 1


def held_back(frame: Any) -> Any:
    """A join of two streams: a record waits in the state for its partner."""
    from pyspark.sql.functions import expr

    return frame.join(
        frame.selectExpr("key AS partner", "offset AS other"), on=expr("key = partner AND offset = other")
    )


def test_a_cluster_that_spark_alone_may_read_costs_a_search_not_the_job(job, topic_name, caplog, monkeypatch):
    from reconciler.core.errors import Refused
    from reconciler.kafka.reader import KafkaLogReader

    def refuse(reader: Any, requests: Any) -> Any:
        raise Refused("not allowed to read")

    monkeypatch.setattr(KafkaLogReader, "read", refuse)
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 6))
    job.run(options={"maxOffsetsPerTrigger": "2"})
    (row,) = job.rows().values()
    assert (row.stored.offset, row.stored.anchor.offset) == (6, 5)
    assert job.seen == [(0, 2), (1, 2), (2, 2)]
    assert caplog.text.count(SEARCHES) == 1
    assert "not allowed to read" in caplog.text


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, id="by range"),
        pytest.param({"processed": "received"}, id="searched", marks=pytest.mark.thorough),
        pytest.param({"id": lambda frame: frame["key"]}, id="column", marks=pytest.mark.thorough),
    ],
)
def test_of_two_sources_in_one_partition_the_one_that_is_behind_decides(job, topic_name, how, caplog):
    """Its records come in later batches: beyond them nothing is processed."""
    assert stored_beside_one_behind(job, topic_name, **how) == (2, 6), "one source has read all six"
    assert (SEARCHES in caplog.text) is callable(how.get("id"))


@since_pyspark(4, 2)
@pytest.mark.usefixtures("named_sources")
def test_of_two_named_sources_the_one_that_is_behind_decides(job, topic_name, caplog):
    assert stored_beside_one_behind(job, topic_name, name="ahead") == (2, 6)
    assert SEARCHES not in caplog.text


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
