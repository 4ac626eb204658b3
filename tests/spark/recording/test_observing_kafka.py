"""Sinks other than foreachBatch: Spark's reports are stored, and belong to the query's checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import fingerprint
from reconciler.core.errors import ConfigError
from reconciler.ports import TopicPartition
from reconciler.spark.recording.observing import Observer, observing
from reconciler.stores.registry import open_store
from tests.spark.sent import BASE_MS, Kafka, Sent

pytestmark = pytest.mark.system


class Job:
    """A query with a file sink over some sources, run until it has read all there is, on one checkpoint."""

    def __init__(self, spark: Any, kafka: Kafka, place: Path) -> None:
        self.spark, self.kafka, self.place = spark, kafka, place
        self.checkpoint = place / "checkpoint"
        self.anchors = f"sqlite:///{place / 'anchors.db'}"
        self.query: Any = None
        """The last one that was run."""

    def frame(self, topics: str, **options: str) -> Any:
        named = {"kafka.bootstrap.servers": self.kafka.bootstrap, "subscribe": topics, "startingOffsets": "earliest"}
        return self.spark.readStream.format("kafka").options(**{**named, "includeHeaders": "true", **options}).load()

    def observing(self, **how: Any) -> Observer:
        place = {"store": f"checkpoint:{self.checkpoint}", "anchors": self.anchors}
        settings = {"group": "clicks", "bootstrap_servers": self.kafka.bootstrap, **place, **how}
        return observing(self.spark, **settings)

    def run(
        self, prepare: Callable[[Observer], Any], *, sink: str = "parquet", mode: str = "append", **how: Any
    ) -> Observer:
        observer = self.observing(**how)
        try:
            frame = prepare(observer)
            places = {"path": str(self.place / "out"), "checkpointLocation": str(self.checkpoint)}
            writer = frame.writeStream.format(sink).outputMode(mode).options(**places)
            self.query = writer.trigger(availableNow=True).start()
            self.query.awaitTermination()
            observer.settle(self.query)
        finally:
            observer.close()
        return observer

    def rows(self) -> dict[TopicPartition, Any]:
        """As every command reads them: the checkpoint's offsets with their anchors."""
        store = open_store(f"checkpoint:{self.checkpoint}", anchors=self.anchors)
        return {row.key: row for row in store.read("clicks")}


@pytest.fixture
def job(spark: Any, kafka: Kafka, tmp_path: Path) -> Job:
    return Job(spark, kafka, tmp_path)


def records(partition: int, count: int, start: int = 0) -> list[Sent]:
    return [
        Sent(partition, b"k%d" % n, b'{"id":%d}' % n, BASE_MS + n, (("id", b"h%d" % n),))
        for n in range(start, start + count)
    ]


def test_every_partition_of_every_source_has_the_anchor_of_the_checkpoints_offset(job: Job, topic_name: str) -> None:
    one, two, more = (f"{topic_name}-{name}" for name in ("one", "two", "more"))
    for topic in (one, two, more):
        job.kafka.create(topic, 2)
    job.kafka.send(one, [*records(0, 9), *records(1, 4)])
    job.kafka.send(two, records(0, 5), transaction=f"tx-{topic_name}")

    def two_sources(observer: Observer) -> Any:
        first = observer.watch(job.frame(f"{one},{two}", **{"kafka.isolation.level": "read_committed"}), [one, two])
        second = observer.watch(job.frame(more), more.replace("-more", "-m.*"))
        return first.where("partition = 0").unionByName(second.where("offset > 2")).select("topic", "value")

    job.run(two_sources, id="header:id")
    rows = job.rows()
    ends = {(at.topic, at.partition): row.stored.offset for at, row in rows.items()}
    assert ends == {(one, 0): 9, (one, 1): 4, (two, 0): 6, (two, 1): 0, (more, 0): 0, (more, 1): 0}
    for at, last in (((one, 0), 8), ((one, 1), 3), ((two, 0), 4)):
        row = rows[TopicPartition(*at)]
        anchor, value = row.stored.anchor, b'{"id":%d}' % last
        assert row.anchor_lag == 0
        assert (anchor.offset, anchor.timestamp_ms, anchor.id) == (last, BASE_MS + last, b"h%d" % last)
        assert anchor.fingerprint == fingerprint(b"k%d" % last, value)
        assert anchor.cluster_id == job.kafka.cluster_id()
    for at in ((two, 1), (more, 0)):
        assert rows[TopicPartition(*at)].stored.anchor.is_bare, "never held a record"

    # A restart: some partitions are silent, one gets a marker alone, one is new to the query.
    job.kafka.send(more, records(1, 3))
    job.kafka.send(one, records(0, 2, start=9))
    job.run(two_sources, id="header:id")
    after = job.rows()
    assert after[TopicPartition(more, 1)].stored.anchor.offset == 2, "observed in front of the filter"
    assert after[TopicPartition(one, 0)].stored.anchor.id == b"h10"
    assert after[TopicPartition(two, 0)].stored.anchor == rows[TopicPartition(two, 0)].stored.anchor
    assert all(row.anchor_lag == 0 and row.stored.anchor is not None for row in after.values())

    # The report of the last batch is lost, as in a driver that is killed: the anchors lag, and are not taken for exact.
    job.kafka.send(one, records(0, 5, start=11))
    job.run(lambda observer: _unheard(two_sources(observer), observer), id="header:id")
    lagging = job.rows()[TopicPartition(one, 0)]
    assert (lagging.stored.offset, lagging.stored.anchor.offset, lagging.anchor_lag) == (16, 10, 5)


def _unheard(frame: Any, observer: Observer) -> Any:
    observer._watched.clear()
    return frame


def counted(job: Job, topic: str) -> Callable[[Observer], Any]:
    """Records a window of time, each put out once the watermark has passed it."""
    from pyspark.sql import functions as f

    return lambda observer: (
        observer.watch(job.frame(topic), [topic])
        .withWatermark("timestamp", "10 minutes")
        .groupBy(f.window("timestamp", "1 hour"))
        .count()
    )


def test_records_that_wait_in_a_window_do_not_count_as_processed(job: Job, topic_name: str, tmp_path: Path) -> None:
    job.kafka.create(topic_name, 1)
    job.kafka.send(topic_name, records(0, 8))
    rows = {"store": f"sqlite:///{tmp_path / 'offsets.db'}", "anchors": None}
    with pytest.raises(ConfigError, match="the query has an aggregation in append mode, which may hold records back"):
        job.run(counted(job, topic_name), **rows)
    assert job.spark.read.parquet(str(job.place / "out")).count() == 0, "all of them wait"
    assert not (tmp_path / "offsets.db").exists()

    job.checkpoint = tmp_path / "update"
    job.run(counted(job, topic_name), sink="noop", mode="update", **rows)
    (row,) = open_store(rows["store"]).read("clicks")
    assert row.stored.offset == 8, "each record's effect was put out"

    job.checkpoint, job.place = tmp_path / "checkpoint of its own", tmp_path / "its output"
    job.run(counted(job, topic_name))
    (kept,) = job.rows().values()
    assert (kept.stored.offset, kept.anchor_lag) == (8, 0)


def test_a_wrong_setup_is_reported_before_the_query_starts(job: Job, topic_name: str) -> None:
    job.kafka.create(topic_name, 1)
    with pytest.raises(ConfigError, match="cannot be written"):
        job.observing(anchors=f"checkpoint:{job.checkpoint}")
    observer = job.observing()
    with pytest.raises(ConfigError, match="does not have"):
        observer.watch(job.frame(topic_name), ["nowhere"])
    with pytest.raises(ConfigError, match="No topic of the cluster"):
        observer.watch(job.frame(topic_name), "nowhere.*")
    observer.close()
