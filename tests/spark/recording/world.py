"""A job that records, on a real cluster, and its records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from reconciler.ports import TopicPartition
from reconciler.spark.recording.foreach_batch import recording
from reconciler.stores.registry import open_store
from tests.spark.sent import BASE_MS, Kafka, Sent


class Sequenced(list):  # type: ignore[type-arg]
    """A list as Scala's sequences look from Python."""

    def size(self) -> int:
        return len(self)

    def apply(self, number: int) -> Any:
        return self[number]


class Job:
    """A query over some topics, run until it has read all there is; restarts from the same checkpoint."""

    def __init__(self, spark: Any, kafka: Kafka, topics: str, place: Path) -> None:
        self.spark, self.kafka, self.topics = spark, kafka, topics
        self.checkpoint = place / "checkpoint"
        self.address = f"sqlite:///{place / 'offsets.db'}"
        self.seen: list[tuple[int, int]] = []
        """(batch id, records) of every run of the function."""

    def work(self, batch: Any, batch_id: int) -> None:
        self.seen.append((batch_id, batch.count()))

    def run(
        self,
        function: Callable[[Any, int], None] | None = None,
        *,
        prepare: Callable[[Any], Any] = lambda frame: frame,
        options: dict[str, str] | None = None,
        around: Callable[[Any], Any] = lambda recorder: recorder,
        mode: str = "append",
        name: str | None = None,
        **how: Any,
    ) -> Any:
        source = {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "subscribe": self.topics,
            "startingOffsets": "earliest",
            **(options or {}),
        }
        recorder = recording(
            function or self.work,
            store=self.address,
            group="clicks",
            bootstrap_servers=self.kafka.bootstrap,
            **how,
        )
        reader = self.spark.readStream.format("kafka").options(**source)
        query = (
            prepare((reader.name(name) if name else reader).load())
            .writeStream.outputMode(mode)
            .foreachBatch(around(recorder))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def rows(self) -> dict[TopicPartition, Any]:
        return {row.key: row for row in open_store(self.address).read("clicks")}

    def forget_commit(self, batch_id: int) -> None:
        """As after a crash between the function and the commit: Spark runs that batch again."""
        for name in (str(batch_id), f".{batch_id}.crc"):
            (self.checkpoint / "commits" / name).unlink()


def records(partition: int, count: int, start: int = 0) -> list[Sent]:
    return [
        Sent(partition, b"k%d" % n, b'{"id":%d,"ts":%d}' % (n, 1_700_000_000 + n), BASE_MS + n, (("id", b"h%d" % n),))
        for n in range(start, start + count)
    ]
