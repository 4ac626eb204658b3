"""A real streaming query on a real cluster: the stored rows match the records that another client reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import clock_ms
from reconciler.core.anchors import fingerprint
from reconciler.ports import TopicPartition
from reconciler.spark.recording.foreach_batch import recording
from reconciler.stores.registry import open_store
from tests.spark.recording.world import SEARCHES, Job, records
from tests.spark.sent import BASE_MS, Sent
from tests.spark.sessions import set_for_now
from tests.waiting import wait_until

pytestmark = pytest.mark.system


@pytest.fixture
def job(spark, kafka, topic_name, tmp_path) -> Job:
    return Job(spark, kafka, topic_name, tmp_path)


@pytest.mark.parametrize(
    ("how", "reads"),
    [({}, 1), ({"processed": "received"}, 1), ({"processed": "received", "cache": False}, 2)],
    ids=["by range", "searched", "searched without cache"],
)
def test_the_last_record_of_every_partition_is_stored(job, topic_name, how, reads, spark, caplog):
    job.kafka.create(topic_name, 3)
    job.kafka.send(topic_name, [*records(0, 50), *records(1, 7)])
    started = clock_ms()
    cached = spark.sparkContext._jsc.sc().getPersistentRDDs().size()  # by other tests of this session
    query = job.run(options={"maxOffsetsPerTrigger": "20"}, **how)

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
    assert counted == 57 * reads, "a search without the cache has Spark read Kafka once more, and counts it"
    assert spark.sparkContext._jsc.sc().getPersistentRDDs().size() == cached
    assert SEARCHES not in caplog.text


@pytest.mark.parametrize(
    ("spec", "id", "timestamp_ms"),
    [
        ({"id": "header:id"}, b"h9", BASE_MS + 9),
        ({"id": "json:$.id"}, b"9", BASE_MS + 9),
        ({"id": "key", "timestamp": "json:$.ts", "unit": "s"}, b"k9", 1_700_000_009_000),
    ],
)
def test_ids_and_times_of_every_kind_are_stored(job, topic_name, spec, id, timestamp_ms):
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 10))
    job.run(options={"includeHeaders": "true"}, **spec)
    (row,) = job.rows().values()
    assert (row.stored.anchor.id, row.stored.anchor.timestamp_ms) == (id, timestamp_ms)


def test_the_sessions_time_zone_changes_nothing(job, topic_name, spark):
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 3))
    with set_for_now(spark, {"spark.sql.session.timeZone": "Pacific/Chatham"}):
        job.run()
    (row,) = job.rows().values()
    assert row.stored.anchor.timestamp_ms == BASE_MS + 2


@pytest.mark.parametrize(("key", "value"), [(b"gone", None), (None, b"\xff\x00"), (None, None)])
def test_null_keys_and_tombstones_have_fingerprints(job, topic_name, key, value):
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, [*records(0, 2), Sent(0, key, value)])
    job.run(id="json:$.id")
    (row,) = job.rows().values()
    assert (row.stored.anchor.fingerprint, row.stored.anchor.id) == (fingerprint(key, value), None)


def test_after_a_transaction_the_marker_is_not_counted(job, topic_name):
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 5), transaction=f"tx-{topic_name}")
    job.run(options={"kafka.isolation.level": "read_committed"})
    (row,) = job.rows().values()
    ends = json.loads((job.checkpoint / "offsets" / "0").read_text().splitlines()[-1])
    assert ends[topic_name]["0"] == job.kafka.end(topic_name, 0) == 6, "Spark's end is past the marker"
    assert (row.stored.offset, row.stored.anchor.offset) == (5, 4)


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


def test_a_failing_store_makes_spark_repeat_the_batch(job, topic_name):
    from pyspark.errors import StreamingQueryException

    database = Path(job.address.removeprefix("sqlite:///"))

    def break_the_store(batch: Any, batch_id: int) -> None:
        job.work(batch, batch_id)
        database.write_bytes(b"no database" * 100)

    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 5))
    with pytest.raises(StreamingQueryException, match=r"offsets\.db"):
        job.run(break_the_store)
    database.unlink()
    job.run()
    (row,) = job.rows().values()
    assert job.seen == [(0, 5), (0, 5)]
    assert row.stored.offset == 5


def test_a_store_that_cannot_be_written_is_reported_before_the_work(job, topic_name, tmp_path):
    from pyspark.errors import StreamingQueryException

    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 5))
    job.address = f"sqlite:///{tmp_path / 'no' / 'directory' / 'offsets.db'}"
    with pytest.raises(StreamingQueryException, match="There is no directory"):
        job.run()
    assert job.seen == []


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


def test_a_replay_of_old_batches_holds_the_row_where_it_was(job, topic_name):
    """A checkpoint put back to an earlier state, or a new one: the row waits until the job has caught up."""
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 30))
    job.run()
    (before,) = job.rows().values()
    job.checkpoint = job.checkpoint.with_name("new")
    offsets = []

    def look(batch: Any, batch_id: int) -> None:
        offsets.extend(row.stored.offset for row in job.rows().values())

    job.run(look, options={"maxOffsetsPerTrigger": "10"})
    assert offsets == [30, 30, 30]
    assert list(job.rows().values()) == [before]


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


def test_an_uncommitted_batch_does_not_count(job, topic_name):
    job.kafka.create(topic_name, 2)
    job.kafka.send(topic_name, [*records(0, 5), *records(1, 3)])
    anchors, job.address = job.address, f"checkpoint:{job.checkpoint}"
    job.run(anchors=anchors)
    before = open_store(job.address, anchors=anchors).read("clicks")
    job.kafka.send(topic_name, records(0, 2, start=5))
    job.run(anchors=anchors)
    # Nobody has read the store since: what was laid aside for batch 1 is there, and not believed.
    job.forget_commit(1)
    after = open_store(job.address, anchors=anchors).read("clicks")
    assert [(r.key, r.stored.anchor, r.anchor_lag) for r in after] == [
        (r.key, r.stored.anchor, r.anchor_lag) for r in before
    ]


def test_a_new_topic_is_described_when_it_appears(job, topic_name):
    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 3))
    more = f"{topic_name}-more"

    def grow(batch: Any, batch_id: int) -> None:
        if batch_id == 0:
            job.kafka.create(more)
            job.kafka.send(more, records(0, 4))

    pattern = {"subscribePattern": f"{topic_name}.*", "maxOffsetsPerTrigger": "2", "kafka.metadata.max.age.ms": "500"}
    job.topics = topic_name
    recorder = recording(grow, store=job.address, group="clicks", bootstrap_servers=job.kafka.bootstrap)
    frame = job.spark.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": job.kafka.bootstrap, "startingOffsets": "earliest", **pattern}
    )
    query = frame.load().writeStream.foreachBatch(recorder).option("checkpointLocation", str(job.checkpoint)).start()
    try:

        def recorded() -> bool:
            query.processAllAvailable()
            return {at.topic for at in job.rows()} == {topic_name, more}

        wait_until(recorded, "both topics are recorded", ended=lambda: not query.isActive)
    finally:
        query.stop()
    rows = {at.topic: row.stored for at, row in job.rows().items()}
    assert (rows[topic_name].offset, rows[more].offset) == (3, 4)
    assert rows[topic_name].anchor.topic_id != rows[more].anchor.topic_id


def test_an_error_names_the_source_columns_to_keep(job, topic_name):
    from pyspark.errors import StreamingQueryException

    job.kafka.create(topic_name)
    job.kafka.send(topic_name, records(0, 1))
    with pytest.raises(StreamingQueryException, match=r"no column topic.*Keep them up to foreachBatch"):
        job.run(prepare=lambda frame: frame.selectExpr("value"))
    assert job.seen == [], "found before the work was done"
