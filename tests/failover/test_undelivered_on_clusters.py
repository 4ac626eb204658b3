"""There and back between real clusters under one name: what the first one had not delivered is read after all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from reconciler.core.anchors import RECORD_TIME_ONLY, StoredOffset
from reconciler.kafka.reader import KafkaLogReader
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition
from tests.memory_log import MemoryRecord
from tests.places.bare_jobs import exits
from tests.world import World

pytestmark = pytest.mark.system


class Job:
    """A job that keeps anchors in a table, on one topic of both clusters; record n has the value ``n``."""

    def __init__(self, world: World, clusters: Any) -> None:
        self.world, self.topic = world, world.topic
        self.clusters: Mapping[str, Any] = {"a": clusters.source, "b": clusters.destination}
        self.place = f"sqlite:///{world.folder}/table.db"
        self.processed: Counter[int] = Counter()
        servers = {name: f'[clusters.{name}]\nbootstrap_servers = "{each.bootstrap}"' for name, each in self}
        self.config = world.folder / "reconciler.toml"
        self.config.write_text(
            "\n".join(servers.values())
            + f'\n[topics]\npolicy = "identity"\n[state]\nstore = "files:{world.folder}/state"\n'
            + '[[jobs]]\nname = "clicks"\n'
            + f'group = "{world.group}"\nhome = "a"\ntopics = ["{self.topic}"]\noffsets = "{self.place}"\n'
        )
        for _, cluster in self:
            cluster.create_topic(self.topic, 1)
        self.run("init")
        with closing(open_store(self.place)) as store:
            store.create()

    def __iter__(self) -> Any:
        return iter(self.clusters.items())

    def run(self, *words: object) -> str:
        ended = exits(self.world.run(*words, "-c", self.config), 0)
        return ended.out

    def write(self, cluster: str, numbers: Iterable[int]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.clusters[cluster].bootstrap})
        for number in numbers:
            producer.produce(self.topic, b"%d" % number, b"k", timestamp=1_700_000_000_000 + number)
        assert producer.flush(30) == 0

    def works(self, cluster: str, most: int = 1_000) -> None:
        """One run by the hook, of ``most`` records."""
        said = self.run("hook", "--job", "clicks", "--plans", self.world.folder / "plans", "--accept", "new")
        start = json.loads(Path(dict(line.split("=", 1) for line in said.splitlines())["RECONCILER_START"]).read_text())
        assert start["cluster"] == cluster
        first = start["offsets"].get(self.topic, {}).get("0", 0)
        log = [each for each in records(self.clusters[cluster].bootstrap, self.topic) if each.offset >= first][:most]
        self.processed.update(int(each.value or b"") for each in log)
        with closing(KafkaLogReader({"bootstrap.servers": self.clusters[cluster].bootstrap})) as reader:
            there = reader.describe([self.topic])
        names = {"cluster_id": there.cluster_id, "topic_id": there.topic_id(self.topic)}
        stored = StoredOffset(log[-1].offset + 1, RECORD_TIME_ONLY.anchor_of(log[-1], **names))
        with closing(open_store(self.place)) as store:
            now = {row.key: row.version for row in store.read(self.world.group)}
            change = Change(TopicPartition(self.topic, 0), now.get(TopicPartition(self.topic, 0)), stored)
            assert store.write(self.world.group, [change], reason="job", now_ms=time_ns() // 1_000_000).written


def records(servers: str, topic: str) -> list[MemoryRecord]:
    """The log, read with a plain client."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Partition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "judge", "enable.partition.eof": True})
    consumer.assign([Partition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(MemoryRecord(message.offset(), message.timestamp()[1], message.key(), message.value()))
    consumer.close()
    return found


def test_what_was_not_delivered_when_a_failed_is_read_on_the_way_back(world: World, clusters: Any) -> None:
    job = Job(world, clusters)
    job.write("a", range(30))
    job.write("b", range(5, 25))  # the mirror began late, and 25 to 29 are not delivered
    job.works("a", 18)
    job.run("move", "--to", "b", "--yes")
    job.works("b")
    job.write("b", range(100, 140))
    job.works("b")
    assert set(job.processed) == {*range(25), *range(100, 140)}

    job.write("a", range(100, 140))  # a is there again, and the mirror was turned round
    moved = job.run("move", "--to", "a", "--yes")
    assert "starts early" in moved
    job.works("a")
    assert set(job.processed) == {*range(30), *range(100, 140)}
    assert {number for number, count in job.processed.items() if count > 1} == {*range(100, 140)}
