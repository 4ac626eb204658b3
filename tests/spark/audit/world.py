"""A small failover for audits: two logs, an output, and a plain Python count of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from reconciler.plan.document import PartitionPlan, Plan
from tests.spark.audit.plans import anchored, plan, row
from tests.spark.sent import BASE_MS, Kafka, Sent


@dataclass(frozen=True)
class Record:
    """One record: equal ones are legitimate."""

    id: bytes
    key: bytes | None
    value: bytes | None
    stamp: int = BASE_MS

    @property
    def sent(self) -> Sent:
        return Sent(key=self.key, value=self.value, timestamp_ms=self.stamp, headers=(("message-id", self.id),))


def record(number: int, partition: int = 0) -> Record:
    """Record ``number``; every seventh is a tombstone, every tenth has a null key."""
    value = None if number % 7 == 6 else b"value %d of %d" % (number, partition)
    key = None if number % 10 == 9 else b"key %d of %d" % (number, partition)
    return Record(b"%d/%d" % (partition, number), key, value, BASE_MS + number)


@dataclass
class History:
    """One partition: the source's log and the stored offset, the destination's and the resume offset, and the output.

    ``output`` are records in the order in which the job put them out, each with the cluster and offset it was read at.
    """

    source: list[Record]
    stored: int
    destination: list[Record]
    resume: int
    output: list[tuple[Record, str, int]] = field(default_factory=list)
    replay: int = 0

    def processed(self) -> History:
        """The output of a correct job."""
        self.output = [(each, "source", n) for n, each in enumerate(self.source[: self.stored])]
        self.output += [(each, "destination", n) for n, each in enumerate(self.destination) if n >= self.resume]
        return self

    def row(self, topic: str, partition: int) -> PartitionPlan:
        last = self.source[self.stored - 1]
        anchor = anchored(self.stored - 1, last.key, last.value)
        names = (topic, f"a.{topic}")
        return row(names, partition, self.stored, self.resume, replay=self.replay, anchor=anchor)


Worlds = dict[tuple[str, int], History]
"""Histories by source topic and partition."""


def plan_of(worlds: Worlds, source: Kafka, destination: Kafka) -> Plan:
    rows = [history.row(topic, partition) for (topic, partition), history in sorted(worlds.items())]
    return plan(1, source.cluster_id(), destination.cluster_id(), *rows)


def write(worlds: Worlds, source: Kafka, destination: Kafka) -> None:
    """Both logs of every history, at the offsets that it says."""
    for topic in sorted({topic for topic, _ in worlds}):
        partitions = 1 + max(partition for name, partition in worlds if name == topic)
        for kafka, name, side in ((source, topic, "source"), (destination, f"a.{topic}", "destination")):
            kafka.create(name, partitions)
            kafka.send(name, [on(each, p) for (of, p), h in worlds.items() if of == topic for each in getattr(h, side)])


def on(each: Record, partition: int) -> Sent:
    sent = each.sent
    return Sent(partition, sent.key, sent.value, sent.timestamp_ms, sent.headers)


SCHEMA = "topic string, partition int, event string, key binary, value binary"


def output_frame(spark: Any, worlds: Worlds, seed: int = 0) -> Any:
    """The output as a table with shuffled rows."""
    rows = [
        (topic if cluster == "source" else f"a.{topic}", partition, each.id.decode(), each.key, each.value)
        for (topic, partition), history in worlds.items()
        for each, cluster, _ in history.output
    ]
    random.Random(seed).shuffle(rows)
    return spark.createDataFrame(rows, SCHEMA)


# ---------------------------------------------------------------- the plain count


def count(records: Iterable[Record], by: str) -> Counter[Any]:
    return Counter(each.id if by == "id" else (each.key, each.value) for each in records)


def expected_with_source(history: History, by: str) -> dict[str, int]:
    """Against the source: the records that the output lacks, and those that it has beyond it."""
    source, out = count(history.source, by), count((each for each, _, _ in history.output), by)
    return {"lost": (source - out).total(), "doubled": (out - source).total()}


def expected_without_source(history: History, by: str) -> dict[str, int]:
    """Against the destination: surely lost is what the output has nowhere. Others may have been sent twice."""
    log, out = count(history.destination, by), count((each for each, _, _ in history.output), by)
    lost = len([name for name in log if not out[name]])
    doubled = Counter({name: max(0, out[name] - log[name]) for name in log}).total()
    return {"lost": lost, "possibly_lost": (log - out).total() - lost, "doubled": doubled}
