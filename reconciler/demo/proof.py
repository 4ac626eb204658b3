"""The demo's proof by ids, and the outcome of other ways to fail over."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.formats.plan import JobPlan
from reconciler.lab.in_use import ClusterInUse


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


@dataclass(frozen=True, slots=True)
class Alternative:
    """The records that a start at other offsets would have read again and skipped."""

    again: int
    skipped: int


def alternative(job: JobPlan, offsets: Mapping[int, int], ends: Mapping[int, int]) -> Alternative:
    """Compare offsets with the plan's. Mirrored topics have no gaps here, so offsets count records.

    A partition without an offset starts at the earliest; one past the end skips all there is.
    """
    again = skipped = 0
    for row in job.partitions:
        resume = row.resume_offset or 0
        start = min(offsets.get(row.partition, 0), ends[row.partition])
        again += max(0, resume - start)
        skipped += max(0, start - resume)
    return Alternative(again, skipped)


def group_offsets(cluster: ClusterInUse, group: str, topic: str) -> dict[int, int]:
    """A group's committed offsets on one topic; empty if it has none."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    (future,) = cluster.admin().list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    found = future.result().topic_partitions or []
    return {tp.partition: tp.offset for tp in found if tp.topic == topic and tp.offset >= 0}


def commit_group(cluster: ClusterInUse, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit a group's offsets, as a job that reports its progress to Kafka does."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    partitions = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    (future,) = cluster.admin().alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)]).values()
    future.result()
