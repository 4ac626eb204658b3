"""A real streaming query on a real cluster: the stored rows match the records that another client reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import clock_ms
from reconciler.core.anchors import fingerprint
from reconciler.ports import TopicPartition
from reconciler.stores.registry import open_store
from tests.spark.recording.world import Job, records

pytestmark = pytest.mark.system


@pytest.fixture
def job(spark, kafka, topic_name, tmp_path) -> Job:
    return Job(spark, kafka, topic_name, tmp_path)


def test_the_last_record_of_every_partition_is_stored(job, topic_name):
    job.kafka.create(topic_name, 3)
    job.kafka.send(topic_name, [*records(0, 50), *records(1, 7)])
    started = clock_ms()
    query = job.run(options={"maxOffsetsPerTrigger": "20"})

    rows = job.rows()
    assert sorted(rows) == [TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)], "2 has no records"
    for at, row in rows.items():
        last = job.kafka.last_record(topic_name, at.partition)
        anchor = row.stored.anchor
        assert row.stored.offset == last.offset() + 1
        assert started <= row.stored.written_at_ms <= clock_ms()
        assert (anchor.offset, anchor.timestamp_ms) == (last.offset(), last.timestamp()[1])
        assert (anchor.fingerprint, anchor.id) == (fingerprint(last.key(), last.value()), None)
        assert anchor.cluster_id == job.kafka.cluster_id()
        assert anchor.topic_id
    assert len(job.seen) > 2, "several batches, so that rows were moved forward"
    assert sum(count for _, count in job.seen) == 57
    counted = sum(progress["numInputRows"] for progress in query.recentProgress)
    assert counted == 57, "Spark reads every record once"


def test_a_function_that_fails_stores_nothing(job, topic_name):
    from pyspark.errors import StreamingQueryException

    def fail(batch: Any, batch_id: int) -> None:
        raise RuntimeError("the sink is full")

    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 5))
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        job.run(fail)
    assert not Path(job.address.removeprefix("sqlite:///")).exists()
    job.run()
    (row,) = job.rows().values()
    assert row.stored.offset == 5


def test_a_replayed_batch_neither_moves_back_nor_writes_again(job, topic_name):
    job.kafka.create(topic_name, 2)
    job.kafka.send(topic_name, [*records(0, 5), *records(1, 5)])
    job.run()
    job.kafka.send(topic_name, records(0, 5, start=5))
    job.run()
    before = job.rows()
    job.forget_commit(1)
    job.run()
    assert job.seen == [(0, 10), (1, 5), (1, 5)]
    assert job.rows() == before, "the same versions: nothing was written"


def test_a_job_continuing_from_its_checkpoint_has_the_last_committed_anchors(job, topic_name):
    """Two sources, one of them with transactions; then a batch whose commit never came, and its repetition."""
    more = f"{topic_name}-more"
    for topic in (topic_name, more):
        job.kafka.create(topic, 2)
    job.kafka.send(topic_name, records(0, 5), transaction=f"tx-{topic_name}")
    job.kafka.send(more, records(1, 4))
    anchors, job.address = job.address, f"checkpoint:{job.checkpoint}"
    source = {"kafka.bootstrap.servers": job.kafka.bootstrap, "subscribe": more, "startingOffsets": "earliest"}
    committed = {"kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "100"}
    second = job.spark.readStream.format("kafka").options(**source).load()

    def run() -> dict[tuple[str, int], tuple[int, int | None, int | None]]:
        job.run(prepare=lambda frame: frame.unionByName(second), options=committed, anchors=anchors, id="key")
        return seen()

    def seen() -> dict[tuple[str, int], tuple[int, int | None, int | None]]:
        rows = open_store(job.address, anchors=anchors).read("clicks")
        found = {(row.key.topic, row.key.partition): (row.stored, row.anchor_lag) for row in rows}
        return {at: (stored.offset, stored.anchor.offset, lag) for at, (stored, lag) in found.items()}

    first = run()
    assert first == {
        (topic_name, 0): (6, 4, 0),
        (topic_name, 1): (0, None, 0),
        (more, 0): (0, None, 0),
        (more, 1): (4, 3, 0),
    }
    job.kafka.send(topic_name, records(0, 2, start=5), transaction=f"tx-{topic_name}")
    job.kafka.send(more, records(0, 1))
    second_time = run()
    assert second_time == {**first, (topic_name, 0): (9, 7, 0), (more, 0): (1, 0, 0)}
    job.forget_commit(max(number for number, _ in job.seen))
    job.kafka.send(more, records(1, 1, start=4))
    assert run() == {**second_time, (more, 1): (5, 4, 0)}
