"""The demo's proof by ids, and the outcome of other ways to fail over."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from reconciler.demo.lab.in_use import ClusterInUse
from reconciler.demo.lab.traffic import ID_HEADER


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


def copies(cluster: ClusterInUse, topic: str) -> list[Copy]:
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
    """What a start at ``offsets`` would read again and skip; a partition without an offset starts at the earliest.

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
