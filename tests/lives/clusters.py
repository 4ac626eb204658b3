"""Two clusters in memory, producers at one of them, and a mirror to the other that may lag, stop and send again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from reconciler.core.anchors import Record
from reconciler.kafka.memory import MemoryLog, MemoryPartition
from reconciler.ports import TopicPartition

BEGIN = 1_795_301_759_566
OTHER = {"a": "b", "b": "a"}


def number_of(record: Record) -> int:
    """The number of a record among all records of a life, whichever copy this is."""
    return next(int(value) for name, value in record.headers if name == "n" and value is not None)


@dataclass(frozen=True)
class Habits:
    """How the records of a life look, and what the mirror does."""

    partitions: int
    disorder_ms: int
    """No record is dated further before an earlier one, nor is its payload's time."""
    alike: float
    """How many records are equal to others in key and value; their ids and times differ."""
    marks_ends: bool
    """The mirror writes in transactions."""
    stays: bool
    """The producers stay at ``a``, whose cluster comes back after a loss; else they follow the job."""

    @classmethod
    def of(cls, draw: random.Random, *, may_be_alike: bool) -> Habits:
        return cls(
            partitions=draw.choice([1, 1, 2, 3]),
            disorder_ms=draw.choice([0, 0, 2_000, 20_000]),
            alike=draw.choice([0.0, 0.3]) if may_be_alike else 0.0,
            marks_ends=draw.random() < 0.3,
            stays=draw.random() < 0.4,
        )


@dataclass
class Clusters:
    """``topics``: the topic's name at each cluster. ``produces``: the cluster that the mirror reads."""

    draw: random.Random
    topics: dict[str, str]
    habits: Habits
    produces: str = "a"
    now_ms: int = BEGIN
    is_down: bool = False
    """The cluster that the mirror reads is away."""
    produced: int = 0
    made: int = 0
    logs: dict[str, MemoryLog] = field(default_factory=dict)
    mirrored: dict[int, int] = field(default_factory=dict)
    """By partition, up to which offset the other cluster has the records."""

    def __post_init__(self) -> None:
        for side in OTHER:
            self.build(side)
        self.mirrored = dict.fromkeys(range(self.habits.partitions), 0)

    def build(self, side: str) -> None:
        self.made += 1
        self.logs[side] = MemoryLog(f"{side}{self.made}")
        self.logs[side].create(self.topics[side], self.habits.partitions)

    def at(self, side: str, partition: int) -> MemoryPartition:
        return self.logs[side].partition(self.topics[side], partition)

    def places(self, side: str) -> list[TopicPartition]:
        return [TopicPartition(self.topics[side], number) for number in range(self.habits.partitions)]

    def ends(self) -> str:
        sides = {side: [self.at(side, n) for n in range(self.habits.partitions)] for side in OTHER}
        return " ".join(f"{side}{[f'{log.start}-{log.end}' for log in logs]}" for side, logs in sides.items())

    # ------------------------------------------------------------ what happens

    def produce(self) -> None:
        if self.is_down:
            return
        partition = self.draw.randrange(self.habits.partitions)
        log = self.at(self.produces, partition)
        if self.draw.random() < 0.2:
            log.roll()
        for _ in range(self.draw.randrange(1, 8)):
            if self.draw.random() < 0.1:
                log.append_marker(self.now_ms)
            self.now_ms += self.draw.choice([0, 0, 1_000, 3_000])
            log.append(self._time(), *self._content(), headers=(("n", b"%d" % self.produced),))
            self.produced += 1

    def _time(self) -> int:
        return self.now_ms - self.draw.randint(0, self.habits.disorder_ms)

    def _content(self) -> tuple[bytes, bytes]:
        if self.draw.random() < self.habits.alike:
            return b"k", b'{"ts": 1}'
        return b"k%d" % self.produced, b'{"ts": %d, "n": %d}' % (self._time(), self.produced)

    def mirror(self, *, everything: bool = False) -> None:
        """Deliver some records; a record that the source has deleted before is never delivered."""
        if self.is_down:
            return
        for partition, begin in self.mirrored.items():
            source, destination = self.at(self.produces, partition), self.at(OTHER[self.produces], partition)
            end = source.end if everything else min(source.end, begin + self.draw.randrange(0, 9))
            new = [record for record in source.records if begin <= record.offset < end]
            if self.draw.random() < 0.1:
                destination.roll()
            for record in new:
                destination.append(record.timestamp_ms, record.key, record.value, record.headers)
            if new and self.habits.marks_ends:
                destination.append_marker(self.now_ms)
            self.mirrored[partition] = end

    def restart_mirror(self) -> None:
        for partition, end in self.mirrored.items():
            self.mirrored[partition] = self.draw.randrange(max(0, end - 10), end + 1)

    def follow(self, side: str, *, is_lost: bool) -> None:
        """The job has moved to ``side``. Producers follow, and the mirror turns round; or the lost cluster is away."""
        if self.habits.stays:
            self.is_down = is_lost
            return
        self.produces = side
        if is_lost:
            self.build(OTHER[side])
        for partition in self.mirrored:
            self.mirrored[partition] = 0 if is_lost else self.at(side, partition).end

    def come_back(self) -> None:
        self.is_down = False

    def retain(self, side: str, partition: int, before: int) -> None:
        log = self.at(side, partition)
        log.delete_before(before)
        if self.draw.random() < 0.7:
            log.retire()

    def numbers(self, side: str, partition: int, start: int, end: int) -> Iterator[int]:
        """The numbers of the records that are between two offsets, copy by copy."""
        return (number_of(each) for each in self.at(side, partition).records if start <= each.offset < end)
