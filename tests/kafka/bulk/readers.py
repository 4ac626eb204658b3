"""Readers that tests compare: by plain requests alone, and as the reading process uses both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.core.probes import Chunk
from reconciler.kafka.bulk.reading import BulkReader, columns_of
from reconciler.kafka.reader import KafkaLogReader
from reconciler.kafka.records import turns
from reconciler.kafka.sent import frames, pack, unpack
from reconciler.ports import ReadRequest, TopicPartition

MOST_BYTES = 64 * 1024 * 1024


def bulk_reader(client: Mapping[str, Any], *, timeout_s: float = 20.0, most_bytes: int = MOST_BYTES) -> BulkReader:
    return BulkReader(client, timeout_s=timeout_s, most_bytes=most_bytes)


def answered(reader: BulkReader, requests: Sequence[ReadRequest]) -> dict[int, Chunk]:
    """The chunks of the requests that it does not leave, on the way that they take to the other process."""
    found: dict[int, Chunk] = {}
    for answers in reader.read(requests):
        for frame in frames(answers):
            chunks = dict(unpack(memoryview(b"".join(pack(frame, columns_of)))))
            assert not chunks.keys() & found.keys()
            found |= chunks
    return found


def seen(chunk: Chunk) -> tuple[object, ...]:
    """A chunk with all that a search may look at."""
    names = ("offset", "timestamp_ms", "append_time", "key", "value")
    records = [(*(getattr(each, name) for name in names), [*each.headers]) for each in chunk.records]
    return records, chunk.next_offset, chunk.out_of_range


class Both:
    """Reads as the reading process does, however few the requests are."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._bulk = bulk_reader(client)
        self._other = KafkaLogReader(client)
        self.in_bulk: list[ReadRequest] = []
        self.left: list[ReadRequest] = []

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        found: dict[int, Chunk] = {}
        for turn in turns([request.partition for request in requests]):  # it answers one of a partition in each call
            chunks = answered(self._bulk, [requests[index] for index in turn])
            found |= {turn[place]: chunk for place, chunk in chunks.items()}
        left = [index for index in range(len(requests)) if index not in found]
        self.in_bulk += [requests[index] for index in found]
        self.left += [requests[index] for index in left]
        found |= zip(left, self._other.read([requests[index] for index in left]), strict=True) if left else {}
        return [found[index] for index in range(len(requests))]

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._other.log_ends(partitions)

    def close(self) -> None:
        self._bulk.close()
        self._other.close()
