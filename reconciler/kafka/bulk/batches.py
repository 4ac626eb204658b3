"""The batches of one partition as the answer to one request, by aiokafka's compiled parser."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from aiokafka.record import MemoryRecords

from reconciler.core.probes import Chunk, Counted
from reconciler.kafka.sent import ReadColumns
from reconciler.ports import ReadRequest

FORMAT = 2
"""The format of batches since Kafka 0.11."""
KINDS = b"\x01", b"\x02"
"""Kinds of timestamps in librdkafka's numbers: set by the producer, and by the broker. A batch counts from 0."""
_OFFSET, _STAMP, _KIND = attrgetter("offset"), attrgetter("timestamp"), attrgetter("timestamp_type")
_KEY, _VALUE, _HEADERS = attrgetter("key"), attrgetter("value"), attrgetter("headers")


class Uncertain(Exception):
    """This reader cannot answer, or not with certainty."""


class Place:
    """One request, and the records for it so far.

    Invariants: ``records``, and behind them those of ``_newer``, are those from the request's offset up to
    ``position``, in order, without control records and at most as many as are wanted. All of ``_newer`` were created
    after ``full_until_ms``, ``_oldest`` or later. ``position`` only grows.
    """

    __slots__ = ("_newer", "_oldest", "bytes", "counted", "index", "position", "records", "request")

    def __init__(self, index: int, request: ReadRequest) -> None:
        self.index = index
        self.request = request
        self.position = request.offset
        self.records: list[Any] = []
        self._newer: list[Any] = []
        self._oldest = 0
        self.counted: Counted | None = None
        """The records of ``_newer``, once the answer is complete."""
        self.bytes = 0
        """Bytes of the records' values."""

    def take(self, batches: memoryview, high: int) -> bool:
        """Whether the answer is complete: as many records as are wanted, or all up to the high watermark.

        Raises Uncertain for batches of an old format and wrong checksums; the parser's own errors tell of others.
        """
        is_complete = len(batches) > 0 and self._take(batches)
        if not is_complete and self.position > high:
            raise Uncertain(f"the log ends at {high}, before {self.position}")
        is_complete = is_complete or self.position == high
        if is_complete and self._newer:
            self.counted = Counted(len(self._newer), self._newer[-1].offset, self._oldest)
            self._newer = []
        self.bytes = _size(self.records) + _size(self._newer)
        return is_complete

    def _take(self, batches: memoryview) -> bool:
        memory, wanted = MemoryRecords(bytes(batches)), self.request.max_records
        while (batch := memory.next_batch()) is not None:
            if getattr(batch, "magic", None) != FORMAT or not batch.validate_crc():
                raise Uncertain("a batch of an old format, or a damaged one")
            following = batch.next_offset
            if following <= self.position:
                continue
            if not batch.is_control_batch:
                self._take_records(batch)
            self.position = following
            if len(self.records) + len(self._newer) >= wanted:
                del self._newer[max(0, wanted - len(self.records)) :]
                del self.records[wanted:]
                self.position = (self._newer or self.records)[-1].offset + 1
                return True
        return False

    def _take_records(self, batch: Any) -> None:
        own = [*batch]
        if batch.base_offset < self.position:  # a broker sends whole batches
            own = [record for record in own if record.offset >= self.position]
        until = self.request.full_until_ms
        if until is None or not own:
            self.records += own
            return
        oldest = min(map(_STAMP, own))
        if oldest <= until or batch.timestamp_type:
            first = len(own)  # of those that may be counted
            while not batch.timestamp_type and own[first - 1].timestamp > until:
                first -= 1
            self.records += self._newer
            self.records += own[:first]
            self._newer, own = [], own[first:]
            oldest = min(map(_STAMP, own), default=0)
        self._oldest = min(self._oldest, oldest) if self._newer else oldest
        self._newer += own

    def chunk(self) -> Chunk:
        return Chunk(self.records, self.position, counted=self.counted)


def _size(records: list[Any]) -> int:
    """Bytes of their values."""
    try:
        return sum(map(len, map(_VALUE, records)))
    except TypeError:  # some are null
        return sum(map(len, filter(None, map(_VALUE, records))))


def taken(records: list[Any]) -> ReadColumns:
    """Records of batches, column by column."""
    count = len(records)
    appended = any(map(_KIND, records))
    return ReadColumns(
        offsets=list(map(_OFFSET, records)),
        stamps=list(map(_STAMP, records)),
        kinds=b"".join(KINDS[kind] for kind in map(_KIND, records)) if appended else KINDS[0] * count,
        keys=list(map(_KEY, records)),
        values=list(map(_VALUE, records)),
        headers=list(map(_HEADERS, records)) if any(map(_HEADERS, records)) else (),
    )
