"""A log whose calls are held to a rate of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock

from reconciler.core.probes import Chunk
from reconciler.kafka.reader import AT_ONCE
from reconciler.kafka.records import turns
from reconciler.ports import ClusterInfo, LogReader, ReadRequest, TopicInfo, TopicPartition, separate_reads

BURST_S = 1.0
"""Seconds after which unused requests expire."""


class RateLimit:
    """At most ``per_second`` requests a second on average, a second's worth at once.

    ``clock`` gives monotonic seconds, ``sleep`` waits for as many, or less if the caller is stopping.
    ``taken`` and ``waited_s`` count all requests, and the seconds for which they were held back. Threads may share it:
    one that waits has taken its requests already.
    """

    def __init__(self, per_second: float, clock: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self.set_rate(per_second)
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock() - BURST_S
        self._lock = Lock()
        self.taken = 0
        self.waited_s = 0.0

    def set_rate(self, per_second: float) -> None:
        self._each_s = 1.0 / per_second

    def take(self, requests: int) -> None:
        """Wait until ``requests`` may be sent. More than a second's worth is sent at once and delays the next ones."""
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now - BURST_S)
            wait_s = self._free_at + min(requests * self._each_s, BURST_S) - now
            self._free_at += requests * self._each_s
            self.taken += requests
        if wait_s > 0:
            self._sleep(wait_s)
            with self._lock:
                self.waited_s += self._clock() - now


class LimitedReader:
    """``reader``, no faster than ``limit``. Satisfies ``ports.LogReader``.

    A request is what a call sends to each broker that leads one of its partitions: one for a look-up of the
    offsets of up to ``AT_ONCE`` partitions; three for a description (cluster, topics, settings). A read counts once for
    each position in the same partition; the number of its fetches depends on the records.
    """

    def __init__(self, reader: LogReader, limit: RateLimit) -> None:
        self._reader = reader
        self._limit = limit

    @property
    def reads_apart(self) -> bool:
        return separate_reads(self._reader) is not None

    def expect(self, topics: Mapping[str, TopicInfo]) -> None:
        if (reader := separate_reads(self._reader)) is not None:
            reader.expect(topics)

    def describe(self, topics: Iterable[str]) -> ClusterInfo:
        names = list(topics)
        self._limit.take(3 if names else 1)
        return self._reader.describe(names)

    def log_starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._limit.take(_look_ups(partitions))
        return self._reader.log_starts(partitions)

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._limit.take(_look_ups(partitions))
        return self._reader.log_ends(partitions)

    def offsets_for_times(self, asked: Sequence[tuple[TopicPartition, int]]) -> Sequence[int | None]:
        self._limit.take(_look_ups([partition for partition, _ in asked]))
        return self._reader.offsets_for_times(asked)

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        self._limit.take(len(turns([request.partition for request in requests])))
        return self._reader.read(requests)

    def close(self) -> None:
        self._reader.close()


def _look_ups(partitions: Sequence[TopicPartition]) -> int:
    """A call looks up one position of a partition at a time, and so many partitions at once."""
    return sum(-(-len(turn) // AT_ONCE) for turn in turns(partitions))
