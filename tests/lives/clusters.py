"""Two clusters in memory with some topics, their producers, and the one mirror between them, for all lives.

The mirror sends from the cluster where the producers write. It may lag, stop and send again.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

from tests.memory_log import MemoryLog, MemoryPartition, MemoryRecord

BEGIN = 1_795_301_759_566
OTHER = {"a": "b", "b": "a"}

Place = tuple[int, int]
"""A topic, by its number, and a partition."""


def number_of(record: MemoryRecord) -> int:
    """Which record of the story it is, on whichever cluster."""
    return int(dict(record.headers)["n"] or b"")


@dataclass(frozen=True)
class Habits:
    """How the records of a life look, and how the mirror writes."""

    disorder_ms: int = 0
    """No record is dated further before an earlier one, nor is its payload's time."""
    alike: float = 0.0
    """How many records are equal to others in key and value; their headers and times differ."""
    marks_ends: bool = False
    """The mirror writes in transactions."""


@dataclass
class Clusters:
    """``names``: by cluster, the name of each topic there. ``active``: where producers write, and the mirror reads."""

    draw: random.Random
    names: dict[str, list[str]]
    habits: Habits = field(default_factory=Habits)
    active: str = "a"
    now_ms: int = BEGIN
    produced: int = 0
    made: int = 0
    logs: dict[str, MemoryLog] = field(default_factory=dict)
    mirrored: dict[Place, int] = field(default_factory=dict)
    """Up to which offset of the active cluster the other one has the records."""
    compacted: dict[str, set[int]] = field(default_factory=lambda: {side: set() for side in OTHER})
    """By cluster, the records that compaction has removed there: newer ones of their keys stand for them."""

    def __post_init__(self) -> None:
        counts = [self.draw.randrange(1, 4) for _ in self.names["a"]]
        for side in OTHER:
            self.build(side, counts)

    def build(self, side: str, counts: list[int]) -> None:
        """A new and empty cluster with the topics."""
        self.made += 1
        self.logs[side] = MemoryLog(f"{side}{self.made}")
        for name, count in zip(self.names[side], counts, strict=True):
            self.logs[side].create(name, count)

    # ------------------------------------------------------------ what is there

    def places(self, side: str) -> list[Place]:
        found = [(each.topic, each.partition) for each in self.logs[side].partitions]
        return [(self.names[side].index(topic), partition) for topic, partition in found]

    def log(self, side: str, place: Place) -> MemoryPartition:
        return self.logs[side].partition(self.names[side][place[0]], place[1])

    def counts(self, side: str) -> list[int]:
        places = self.places(side)
        return [sum(topic == each for each, _ in places) for topic in range(len(self.names[side]))]

    def some(self, side: str, share: float) -> list[Place]:
        return [place for place in self.places(side) if self.draw.random() < share]

    # ------------------------------------------------------------ what happens

    def produce(self) -> None:
        for place in self.some(self.active, 0.6):
            log = self.log(self.active, place)
            for _ in range(self.draw.randrange(1, 6)):
                if self.draw.random() < 0.1:
                    log.append_marker(self.now_ms)
                self.now_ms += self.draw.choice([0, 1_000, 3_000])
                self._append(log)

    def _append(self, log: MemoryPartition) -> None:
        number, disorder_ms, alike = self.produced, self.habits.disorder_ms, self.habits.alike
        at = self.now_ms - (self.draw.randrange(disorder_ms + 1) if disorder_ms else 0)
        is_alike = alike == 1 or (alike > 0 and self.draw.random() < alike)
        self.produced += 1
        value = {"t": 1, "n": 0} if is_alike else {"t": at, "n": number}
        headers = (("id", b"id-%d" % number), ("n", b"%d" % number))
        log.append(at, None if is_alike else b"k%d" % number, json.dumps(value).encode(), headers)

    def mirror(self, *, whole: bool = False) -> None:
        """Send some records, or all; partitions that were added are made at the other cluster first."""
        if whole or self.draw.random() < 0.7:
            self._grow_other()
        there = set(self.places(OTHER[self.active]))
        for place in self.places(self.active):
            if place not in there or not (whole or self.draw.random() < 0.7):
                continue
            source, first = self.log(self.active, place), self.mirrored.get(place, 0)
            end = source.end if whole else min(source.end, first + self.draw.randrange(1, 9))
            there_log = self.log(OTHER[self.active], place)
            new = [record for record in source.records if first <= record.offset < end]
            for record in new:
                there_log.append(record.timestamp_ms, record.key, record.value, record.headers)
            if new and self.habits.marks_ends:
                there_log.append_marker(self.now_ms)
            self.mirrored[place] = max(first, end)

    def _grow_other(self) -> None:
        other = OTHER[self.active]
        for topic, partition in sorted(set(self.places(self.active)) - set(self.places(other))):
            self._add(other, topic, partition)

    def restart_mirror(self) -> None:
        for place, upto in self.mirrored.items():
            self.mirrored[place] = self.draw.randrange(max(0, upto - 10), upto + 1)

    def add_partition(self) -> None:
        topic = self.draw.randrange(len(self.names[self.active]))
        count = self.counts(self.active)[topic]
        if count < 5:
            self._add(self.active, topic, count)

    def _add(self, side: str, topic: int, partition: int) -> None:
        from reconciler.ports import TopicPartition

        self.logs[side].partitions[TopicPartition(self.names[side][topic], partition)] = MemoryPartition()

    def retain(self, side: str, upto: dict[Place, int]) -> None:
        """Move the start of some logs, at most to ``upto``."""
        for place in self.some(side, 0.4):
            log, most = self.log(side, place), upto.get(place, 0)
            if log.start < most:
                log.delete_before(self.draw.randrange(log.start, most + 1))

    def compact(self, side: str) -> None:
        """Remove single records."""
        for place in self.some(side, 0.4):
            log = self.log(side, place)
            if log.records:
                gone = [self.draw.choice(log.records) for _ in range(self.draw.randrange(1, 3))]
                self.compacted[side] |= {number_of(each) for each in gone}
                log.compact([each.offset for each in gone])

    def switch(self, *, is_lost: bool) -> None:
        """The producers move to the other cluster, and the mirror turns round.

        A cluster that was lost is empty when it is there again; or it has its records, also those that were not
        mirrored, and the mirror begins at its log's start or at the records that are new since.
        """
        left, self.active = self.active, OTHER[self.active]
        is_empty = is_lost and self.draw.random() < 0.5
        if is_empty:
            self.build(left, self.counts(self.active))
        from_start = is_empty or (is_lost and self.draw.random() < 0.5)
        self.mirrored = {
            place: 0 if from_start else self.log(self.active, place).end for place in self.places(self.active)
        }
