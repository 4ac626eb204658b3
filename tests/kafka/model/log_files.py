"""What a broker of the lab has on its disk: segments, their batches' headers, and how far the log cleaner has come.

For the facts that no client can ask for: where a segment begins, which records share a batch, a marker's time.
Formats: Kafka's record batch version 2 (https://kafka.apache.org/documentation/#recordbatch), its header alone; Kafka's
checkpoint files (version, count, then "topic partition offset" lines).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.ports import TopicPartition
from tests.demo.lab.kafka import KafkaCluster

HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_COUNTS_FROM = 12
TRANSACTIONAL, CONTROL = 1 << 4, 1 << 5


@dataclass(frozen=True, slots=True)
class BatchOnDisk:
    """A batch's header. ``count`` is how many records are left in it, ``producer`` -1 where there is none."""

    base: int
    last: int
    count: int
    largest_ms: int
    control: bool
    transactional: bool
    producer: int


@dataclass(frozen=True, slots=True)
class SegmentOnDisk:
    """A segment's first offset, its file's modification time (epoch ms) and its batches."""

    base: int
    written_ms: int
    batches: tuple[BatchOnDisk, ...]


Layout = tuple[SegmentOnDisk, ...]


def layout(cluster: KafkaCluster, tp: TopicPartition) -> Layout:
    """A partition's segments as its files are now; nothing must be writing to it."""
    directory = cluster.directory / "data" / f"{tp.topic}-{tp.partition}"
    return tuple(
        SegmentOnDisk(int(file.stem), file.stat().st_mtime_ns // 10**6, tuple(_batches(file.read_bytes())))
        for file in sorted(directory.glob("*.log"))
    )


def _batches(data: bytes) -> Iterator[BatchOnDisk]:
    place = 0
    while place < len(data):
        fields = HEADER.unpack_from(data, place)
        base, length, _, _, _, attributes, delta, _, largest, producer, _, _, count = fields
        control, transactional = bool(attributes & CONTROL), bool(attributes & TRANSACTIONAL)
        yield BatchOnDisk(base, base + delta, count, largest, control, transactional, producer)
        place += LENGTH_COUNTS_FROM + length


def cleaned_to(cluster: KafkaCluster) -> dict[TopicPartition, int]:
    """How far the log cleaner has come, by partition."""
    file: Path = cluster.directory / "data" / "cleaner-offset-checkpoint"
    lines = file.read_text().splitlines()[2:] if file.exists() else []
    rows = [line.rsplit(" ", 2) for line in lines]
    return {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in rows}
