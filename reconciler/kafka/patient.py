"""A log whose calls are repeated while its cluster is away. The engine has its own retries; this is for other calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from reconciler.core.probes import Chunk
from reconciler.ports import ClusterInfo, LogReader, ReadRequest, TopicPartition
from reconciler.retry import insist

T = TypeVar("T")


class PatientReader:
    """Repeats a call of ``reader`` while it fails and a retry may help, until ``deadline_s`` seconds after it began.

    ``clock`` gives monotonic seconds. Reading twice harms nothing. Satisfies ``ports.LogReader``.
    """

    def __init__(self, reader: LogReader, clock: Callable[[], float], deadline_s: float) -> None:
        self._reader = reader
        self._clock = clock
        self._deadline_s = deadline_s

    def describe(self, topics: Iterable[str]) -> ClusterInfo:
        names = list(topics)
        return self._insist(lambda: self._reader.describe(names))

    def log_starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._insist(lambda: self._reader.log_starts(partitions))

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._insist(lambda: self._reader.log_ends(partitions))

    def offsets_for_times(self, asked: Sequence[tuple[TopicPartition, int]]) -> Sequence[int | None]:
        return self._insist(lambda: self._reader.offsets_for_times(asked))

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        return self._insist(lambda: self._reader.read(requests))

    def close(self) -> None:
        self._reader.close()

    def _insist(self, call: Callable[[], T]) -> T:
        until = self._clock() + self._deadline_s
        return insist(call, left_s=lambda: until - self._clock())
