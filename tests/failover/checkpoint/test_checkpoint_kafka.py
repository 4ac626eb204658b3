"""The offsets read from a checkpoint, compared with the records that a restarted query really reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.places.checkpoint.reading import read_checkpoint
from reconciler.places.registry import open_store
from reconciler.ports import TopicPartition
from tests.spark.fixtures import FEW_PROCESSES
from tests.spark.sent import Kafka, Sent
from tests.spark.sessions import set_for_now

pytestmark = pytest.mark.system

Place = tuple[str, int]
BATCH = 8


class Stopped(Exception):
    """Ends a query in mid-batch: the batch is planned, and not committed."""


class Query:
    """A streaming query over some sources, started again and again on one checkpoint."""

    def __init__(self, spark: Any, kafka: Kafka, sources: list[str], home: Path) -> None:
        self.spark, self.kafka, self.sources, self.home = spark, kafka, sources, home

    def frame(self, topics: str) -> Any:
        reader = self.spark.readStream.format("kafka")
        options = {"subscribe": topics, "startingOffsets": "earliest", "maxOffsetsPerTrigger": BATCH}
        reader = reader.options(**{"kafka.bootstrap.servers": self.kafka.bootstrap, **options})
        return reader.load().select("topic", "partition", "offset")

    def run(self, *, stop_in: int | None = None) -> dict[int, dict[Place, tuple[int, int]]]:
        """Read all there is; the first and last offset of each partition in each batch that was begun."""
        began: dict[int, dict[Place, tuple[int, int]]] = {}

        def take(batch: Any, number: int) -> None:
            offsets: dict[Place, list[int]] = {}
            for row in batch.collect():
                offsets.setdefault((row[0], row[1]), []).append(row[2])
            began[number] = {place: (min(each), max(each)) for place, each in offsets.items()}
            if number == stop_in:
                raise Stopped

        frames = [self.frame(topics) for topics in self.sources]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.union(frame)
        writer = whole.writeStream.foreachBatch(take).option("checkpointLocation", str(self.home))
        query = writer.trigger(availableNow=True).start()
        if stop_in is None:
            query.awaitTermination()
        else:
            with pytest.raises(Exception, match="Stopped"):
                query.awaitTermination()
        return began

    def send_more(self) -> None:
        for topics in self.sources:
            for topic in topics.split(","):
                self.kafka.send(topic, [Sent(partition=number % 2) for number in range(4)])

    def rows(self) -> dict[Place, int]:
        store = open_store(f"checkpoint:{self.home}")
        return {(row.key.topic, row.key.partition): row.stored.offset for row in store.read("any")}


@pytest.fixture
def query(spark: Any, kafka: Kafka, tmp_path: Path, topic_name: str) -> Callable[..., Query]:
    def make(*sources: tuple[str, ...]) -> Query:
        names = [[f"{topic_name}-{topic}" for topic in topics] for topics in sources]
        for name in {name for each in names for name in each}:
            kafka.create(name, 2)
            kafka.send(name, [Sent(partition=number % 2) for number in range(12)])
        return Query(spark, kafka, [",".join(each) for each in names], tmp_path / "checkpoint")

    return make


def places_of(query: Query) -> list[Place]:
    return [(topic, partition) for topics in query.sources for topic in topics.split(",") for partition in range(2)]


@pytest.mark.parametrize("sources", [[("o", "p")], [("o",), ("p",)]], ids=["two topics", "two sources"])
def test_a_restart_reads_from_the_rows_on_whatever_the_query_was_stopped_in(
    query: Callable[..., Query], sources: list[tuple[str, ...]]
) -> None:
    this = query(*sources)
    places = places_of(this)

    # Stopped in the very first batch, which is then repeated.
    first = this.run(stop_in=0)[0]
    assert this.rows() == dict.fromkeys(places, 0)
    found = read_checkpoint(str(this.home))
    assert (found.last.batch, found.committed, found.repeats_a_batch) == (0, False, True)
    assert found.query_id is not None
    ends = {place: end for each in found.positions for place, end in (each.end or {}).items()}
    assert ends == {place: last + 1 for place, (_, last) in first.items()}

    # Stopped in a later batch: the first one is committed by then.
    second = this.run(stop_in=1)
    assert second[0] == first
    assert this.rows() == {place: ends[place] for place in places}
    rows = {row.key: row for row in open_store(f"checkpoint:{this.home}").read("any")}
    assert "batch 1 is not committed" in rows[TopicPartition(*places[0])].note
    third = this.run()
    assert {place: begin for place, (begin, _) in third[1].items()} == {place: ends[place] for place in places}

    # Stopped after a commit: what is read next begins at the rows.
    assert this.rows() == dict.fromkeys(places, 6)
    assert read_checkpoint(str(this.home)).committed
    this.send_more()
    after = this.run()
    assert {place: begin for place, (begin, _) in after[min(after)].items()} == dict.fromkeys(places, 6)


def test_a_changed_digit_of_the_offset_log_is_believed_as_by_sparks_default(
    query: Callable[..., Query], spark: Any
) -> None:
    this = query(("o",))
    this.run()
    newest = this.home / "offsets" / str(read_checkpoint(str(this.home)).last.batch)
    newest.write_text(newest.read_text().replace(":6", ":5", 1))
    assert sorted(this.rows().values()) == [5, 6]
    with pytest.raises(Exception, match=r"(?i)checksum"):  # with the file manager of the tests' session
        this.run()
    default = FEW_PROCESSES.replace("FileSystemBased", "FileContextBased")
    with set_for_now(spark, {"spark.sql.streaming.checkpointFileManagerClass": default}):
        begun = this.run()
    assert [begin for each in begun.values() for begin, _ in each.values()] == [5]
