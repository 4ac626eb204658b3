"""A small failover for audits: two logs, an output, and a plain Python count of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.core.anchors import fingerprint
from reconciler.core.verdicts import Verdict
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan, PlanAnchor
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

    def row(self, topic: str, partition: int, topic_id: str | None = None) -> PartitionPlan:
        last = self.source[self.stored - 1] if self.stored else None
        anchor = last and PlanAnchor(self.stored - 1, last.stamp, fingerprint(last.key, last.value), None)
        return PartitionPlan(
            source_topic=topic,
            topic=f"a.{topic}",
            topic_id=topic_id,
            partition=partition,
            stored_offset=self.stored,
            anchor=anchor,
            verdict=Verdict.MOVED,
            resume_offset=self.resume,
            replay_at_most=self.replay,
            replay_exact=self.replay,
            matched_by="id",
            record_offset=self.resume - 1,
            probes=1,
            rounds=1,
            detail="",
        )


Worlds = dict[tuple[str, int], History]
"""Histories by source topic and partition."""


def plan_of(worlds: Worlds, source: Kafka | None, destination: Kafka) -> Plan:
    rows = tuple(history.row(topic, partition) for (topic, partition), history in sorted(worlds.items()))
    times = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    source_id = source.cluster_id() if source else None
    job = JobPlan("clicks", "clicks", "memory:", rows)
    return Plan("0.1.0", *times, "a", source_id, destination.bootstrap, destination.cluster_id(), (job,))


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


SCHEMA = "topic string, partition int, offset bigint, event string, key binary, value binary, fp string, seq bigint"


def output_frame(spark: Any, worlds: Worlds, seed: int = 0) -> Any:
    """The output as a table with shuffled rows; ``seq`` is the order in which they were written."""
    rows = []
    for (topic, partition), history in worlds.items():
        for seq, (each, cluster, offset) in enumerate(history.output):
            name = topic if cluster == "source" else f"a.{topic}"
            rows.append(
                (
                    name,
                    partition,
                    offset,
                    each.id.decode(),
                    each.key,
                    each.value,
                    fingerprint(each.key, each.value),
                    seq,
                )
            )
    random.Random(seed).shuffle(rows)
    return spark.createDataFrame(rows, SCHEMA)


# ---------------------------------------------------------------- the plain count


def name_of(each: Record, by: str) -> Any:
    return each.id if by == "id" else (each.key, each.value)


def count(records: Iterable[Record], by: str) -> Counter[Any]:
    return Counter(name_of(each, by) for each in records)


def expected_with_source(history: History, by: str) -> dict[str, int]:
    """Against the source: the records that the output lacks, and those that it has beyond it."""
    source, out = count(history.source, by), count((each for each, _, _ in history.output), by)
    local = count(history.destination[history.resume :], by)
    local = Counter({name: times for name, times in local.items() if name not in source})
    return {"lost": (source + local - out).total(), "doubled": (out - source - local).total()}


def expected_without_source(history: History, by: str) -> dict[str, int]:
    """Against the destination: surely lost is what the output has nowhere, and what the job itself did not read."""
    log, after = count(history.destination, by), count(history.destination[history.resume :], by)
    out = count((each for each, _, _ in history.output), by)
    sure = sum(max(0, max(after[name], 1) - out[name]) for name in log)
    return {
        "lost": sure,
        "possibly_lost": (log - out).total() - sure,
        "doubled": sum(max(0, out[name] - log[name]) for name in log),
    }


def reordered(reference: Sequence[Record], rows: Sequence[Record], by: str) -> int:
    """Rows behind one that the reference has later, among names that are equally often on both sides."""
    equal = {name for name, times in count(reference, by).items() if count(rows, by)[name] == times}
    places: dict[Any, list[int]] = {}
    for place, each in enumerate(reference):
        places.setdefault(name_of(each, by), []).append(place)
    furthest, late = -1, 0
    for each in rows:
        if (name := name_of(each, by)) in equal:
            place = places[name].pop(0)
            late += place < furthest
            furthest = max(furthest, place)
    return late
