"""The demo's proofs: by ids that nothing was lost or doubled, and by counts that the stateful query's state is right.

Both compare the job's output with the records that were produced. ``alternative`` counts what other starts would do.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from reconciler.demo.lab.in_use import ID_HEADER, ClusterInUse, Event, user_of


@dataclass(frozen=True, slots=True)
class Proof:
    """The records that the job processed in both runs, compared with the produced ones."""

    produced: int
    seen: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        return not self.lost and not self.doubled and self.produced == self.seen


def prove(produced: Iterable[str], outputs: Iterable[Path]) -> Proof:
    """Compare the ids in the outputs with the produced ones."""
    wanted = set(produced)
    counts = Counter(found for output in outputs for found in ids_in(output))
    lost = tuple(sorted(wanted - counts.keys()))
    doubled = tuple(sorted(name for name, count in counts.items() if count > 1 or name not in wanted))
    return Proof(len(wanted), counts.total(), lost, doubled)


def ids_in(output: Path) -> list[str]:
    """The ids that a run of the job wrote."""
    found = []
    for part in sorted(output.glob("batch-*/part-*.csv")):
        with part.open(newline="", encoding="utf-8") as file:
            found += [row[3] for row in csv.reader(file)]
    return found


class Alternative(NamedTuple):
    """The records that a start at other offsets would have read again and skipped."""

    again: int
    skipped: int


Copy = tuple[int, int, str]
"""A record at the destination: its partition, its offset and its id."""


def read_copies(cluster: ClusterInUse, topic: str) -> list[Copy]:
    """All records of a topic at the destination."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "log_level": 0})
    found: list[Copy] = []
    unfinished = set(cluster.end_offsets(topic))
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in unfinished])
    while unfinished:
        for message in consumer.consume(1_000, timeout=0.1):
            if (error := message.error()) is None:
                found.append((message.partition(), message.offset(), dict(message.headers())[ID_HEADER].decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise KafkaException(error)
    consumer.close()
    return found


def alternative(there: Iterable[Copy], offsets: Mapping[int, int], processed: Container[str]) -> Alternative:
    """The records that a start at ``offsets`` would read again and skip; without an offset, from the first one.

    A record that the mirror sent twice is skipped only if neither copy is read.
    """
    again = 0
    read: set[str] = set()
    passed: set[str] = set()
    for partition, offset, name in there:
        if offset < offsets.get(partition, 0):
            passed.add(name)
        else:
            read.add(name)
            again += name in processed
    return Alternative(again, sum(name not in processed for name in passed - read))


WINDOW_MINUTES = 4
WINDOW_MS = WINDOW_MINUTES * 60_000

Counts = Mapping[tuple[int, str], int]
"""Clicks by the window's start (epoch ms) and user."""


def plain_counts(events: Iterable[Event]) -> Counts:
    """The counts of a reader without a failover."""
    return Counter((event.timestamp_ms // WINDOW_MS * WINDOW_MS, user_of(event)) for event in events)


def counts_in(folders: Iterable[Path]) -> Counts:
    """The last count of each window and user in the output of successive runs of the query."""
    found: dict[tuple[int, str], int] = {}
    for folder in folders:
        for part in sorted(folder.glob("batch-*/part-*.csv")):
            with part.open(newline="", encoding="utf-8") as file:
                found |= {(int(begin), user): int(count) for begin, user, count in csv.reader(file)}
    return found


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts compared with the plain ones: how many are equal, and the clicks that are missing or too many."""

    counts: int
    equal: int
    too_few: int
    too_many: int

    @property
    def is_equal(self) -> bool:
        return self.counts == self.equal and not self.too_few and not self.too_many


def compare(found: Counts, plain: Counts) -> Comparison:
    """Compare the counts with the plain ones, by window and user."""
    differences = [found.get(name, 0) - plain.get(name, 0) for name in {*found, *plain}]
    return Comparison(
        len(differences),
        differences.count(0),
        -sum(each for each in differences if each < 0),
        sum(each for each in differences if each > 0),
    )
