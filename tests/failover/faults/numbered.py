"""A log whose offsets are its records' numbers, jobs that have read it up to one record, and what is right for them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from reconciler.clock import clock_ms
from reconciler.config.file import Cluster, Config, Job, PolicySettings, SearchSettings, TopicNames
from reconciler.config.identity import identity_from_spec
from reconciler.config.streams import Naming, Stream
from reconciler.core.anchors import Anchor, Identity, StoredOffset, fingerprint
from reconciler.core.verdicts import Verdict
from reconciler.failover.outside import Outside
from reconciler.places.memory import MemoryStore
from reconciler.plan.document import PartitionPlan
from reconciler.ports import Change, LogReader, TopicPartition
from tests.demo.lab.kafka import KafkaCluster

BEGIN = 1_700_000_000_000
BASE = 7_000
"""The source's offset of record 0."""
COUNT, LAST = 60, 30
"""How many records the log holds, and the last one that was processed."""
GROUP = "readers"


@dataclass(frozen=True, slots=True)
class Numbered:
    """Record ``number``: a second after the one before."""

    number: int

    @property
    def time(self) -> int:
        return BEGIN + 1_000 * self.number

    @property
    def key(self) -> bytes:
        return b"k%d" % self.number

    @property
    def value(self) -> bytes:
        return json.dumps({"n": self.number, "ts": self.time, "text": f"value {self.number}"}).encode()

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key, self.value)


def write(
    cluster: KafkaCluster,
    topic: str,
    numbers: Iterable[int],
    partitions: Iterable[int] = (0,),
    *,
    padding: int = 0,
    **settings: Any,
) -> None:
    """Write these records, in this order, to each of these partitions. ``padding``: bytes that no anchor knows of."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **settings})
    records, headers = [Numbered(number) for number in numbers], [("padding", random.randbytes(padding))]
    for partition in partitions:
        for record in records:
            producer.produce(
                topic, record.value, record.key, partition=partition, timestamp=record.time, headers=headers
            )
    assert producer.flush(60) == 0


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to keep an offset after record ``LAST``: how records are told apart, and what is stored.

    ``store`` makes the row from the ids of the destination's cluster and topic; ``own`` rows are the destination's.
    """

    name: str
    identity: Identity
    store: Callable[[str, str], StoredOffset | None]
    own: bool = False


def _of_source(anchor: Anchor | None, offset: int = BASE + LAST + 1) -> Callable[[str, str], StoredOffset | None]:
    return lambda cluster_id, topic_id: StoredOffset(offset, anchor)


def own_row(cluster_id: str, topic_id: str | None, number: int = LAST) -> StoredOffset:
    """The row that a job on the destination has stored after record ``LAST``, with record ``number`` as its anchor."""
    record = Numbered(number)
    return StoredOffset(LAST + 1, Anchor(number, record.time, None, record.fingerprint, cluster_id, topic_id))


def _anchor(number: int = LAST, **changes: Any) -> Anchor:
    record = Numbered(number)
    known = {"timestamp_ms": record.time, "fingerprint": record.fingerprint}
    return Anchor(BASE + number, cluster_id="the-source", topic_id="its-topic", **{**known, **changes})


_PLAIN = identity_from_spec()
KINDS = (
    Kind("by content", _PLAIN, _of_source(_anchor())),
    Kind(
        "by an increasing id alone",
        identity_from_spec(id="json:$.n", id_order="increasing"),
        _of_source(_anchor(timestamp_ms=None, fingerprint=None, id=b"%d" % LAST)),
    ),
    Kind("by the payload's time", identity_from_spec(timestamp="json:$.ts"), _of_source(_anchor())),
    Kind("by time alone", _PLAIN, _of_source(_anchor(fingerprint=None))),
    Kind("by a record that did not come", _PLAIN, _of_source(_anchor(fingerprint="0" * 32))),
    Kind("by a record three before the last", _PLAIN, _of_source(_anchor(LAST - 3))),
    Kind("in the destination's numbers", _PLAIN, own_row, own=True),
)


@dataclass
class Jobs:
    """Jobs with a store in memory: one of every kind for every topic."""

    store: MemoryStore
    config: Config

    @classmethod
    def of(cls, name: str, topics: Iterable[str], kinds: Iterable[Kind] = KINDS, deadline_s: float = 60.0) -> Jobs:
        kinds = tuple(kinds)
        jobs = [
            Job(
                f"{topic} {kind.name}",
                f"{GROUP} {kind.name}",
                (topic,),
                "memory:",
                kind.identity,
                home="a",
                moved=kind.own,
                streams=(Stream(topic, "a"),),
            )
            for topic in topics
            for kind in kinds
        ]
        names, search = TopicNames(Naming(), "a", "b", ("a", "b")), SearchSettings(deadline_s=deadline_s)
        clusters = {"a": None, "b": Cluster("b", "b", {"bootstrap.servers": "b"})}
        config = Config(clusters, names, search, PolicySettings(), tuple(jobs))
        return cls(MemoryStore(name), config)

    def outside(self, reader: LogReader) -> Outside:
        return Outside(reader, lambda _: self.store, time.monotonic, clock_ms)

    def save(self, reader: LogReader, kinds: Iterable[Kind] = KINDS) -> None:
        """Store the offsets that each job has after record ``LAST`` of every partition."""
        by_group = {f"{GROUP} {kind.name}": kind for kind in kinds}
        cluster = reader.describe({f"a.{topic}" for job in self.config.jobs for topic in job.topics})
        for job in self.config.jobs:
            (topic,) = job.topics
            kind, info = by_group[job.group], cluster.topics[f"a.{topic}"]
            stored = kind.store(cluster.cluster_id, info.topic_id or "")
            there = {row.key: row.version for row in self.store.read(job.group)}
            keys = [TopicPartition(info.name if kind.own else topic, number) for number in info.partitions]
            changes = [Change(key, there.get(key), stored) for key in keys]
            assert not self.store.write(job.group, changes, reason="test", now_ms=BEGIN).conflicts


def wrong(row: PartitionPlan, start: int, numbers: Iterable[int]) -> str | None:
    """The fault of a row, given where the log starts and which record lies at each offset from 0; else None.

    Records up to ``LAST`` were processed. A row that names an offset before the start is not judged as a loss: who uses
    it is told that the log does not hold it.
    """
    there = dict(enumerate(numbers))
    left = {offset: number for offset, number in there.items() if offset >= start}
    if row.resume_offset is None:
        return None if row.finding in (Verdict.LOST, Verdict.UNRESOLVED) else "no offset"
    skipped = [number for offset, number in left.items() if number > LAST and offset < row.resume_offset]
    if skipped:
        return f"skips {skipped}"
    again = sum(number <= LAST for offset, number in left.items() if offset >= row.resume_offset)
    if row.replay_at_most is None or again > row.replay_at_most:
        return f"reads {again} again, and says {row.replay_at_most}"
    gone = [number for offset, number in there.items() if number > LAST and offset < start]
    if gone and row.resume_offset >= start and row.finding is not Verdict.LOST:
        return f"{gone} are gone, and it says {row.finding.value}"
    return None
