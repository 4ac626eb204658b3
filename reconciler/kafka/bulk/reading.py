"""Reads of many partitions by plain Fetch requests; whatever is not certain is left to ``KafkaLogReader``.

Invariants:

- An answer is complete: all records that are wanted, or all up to the high watermark that the leader told with them.
- A partition is left as soon as anything about it is unusual: an error, a leader that is not known, a batch above the
  larger fetch size, of an old format, damaged or compressed in a way that is not known here. A failure of a connection
  leaves all that were asked for by it.
- What is held at a time is the answers under way, the records of partitions that are not complete, up to the limit of a
  read, and what one batch decompresses to. Where a batch decompresses to more than the process may hold, the process
  ends as with librdkafka, and the partitions are read again in halves.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from time import monotonic
from typing import Any

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.record import MemoryRecords

from reconciler.core.probes import Chunk, Counted
from reconciler.kafka.bulk import wire
from reconciler.kafka.bulk.wire import Name, Settings, translate_settings
from reconciler.kafka.sent import ReadColumns
from reconciler.ports import ReadRequest

EACH_BYTES, LARGER_BYTES = 64 * 1024, 1024 * 1024
"""Of a partition in one answer, as librdkafka is told for its first two tries: the second for partitions whose next
batch is above the first. A still larger batch is left to it."""
ALL_BYTES = 2 * 1024 * 1024
"""Bytes of one answer, which has at least one batch, however large."""
UNDER_WAY = 2
"""Requests without an answer at a time: a broker prepares one while the records of another are processed."""
DIVIDED_FROM = 200
"""From so many partitions of one leader on, they are split into two requests."""
HAND_OVER_BYTES = 512 * 1024
"""Values that are handed over together, or a little more. The memory of so few records is used again and again: with
8 MiB a read takes a tenth more."""
PATIENCE = 0.5
"""The share of an answer's time that this reader waits: the other reader waits again, and reports the error."""
LEADERS_S = 10.0
"""Seconds after which leaders are looked up again: a broker that is cut off from the others may still answer."""
MOST_FAILURES = 3
"""Stop using this reader after so many failures in a row, or after one timeout: on a slow link, or with a silent
broker, each further read would cost that time again."""

log = logging.getLogger(__name__)
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # its debugging shows logins


class BulkReader:
    """Answers those requests of a read that it can answer with certainty."""

    def __init__(self, client: Mapping[str, Any], *, timeout_s: float, most_bytes: int) -> None:
        self._client = client
        self._wait_s = timeout_s * PATIENCE
        self._most_bytes = most_bytes
        self._loop = asyncio.new_event_loop()
        self._settings: Settings | None = None
        self._connections: dict[int, AIOKafkaConnection] = {}
        self._known = wire.Leaders({}, {})
        self._known_until = inf
        self._stale: set[str] = set()
        """Topics with a partition whose leader has changed."""
        self._failures = 0

    def expect(self, topics: Sequence[str]) -> None:
        """Connect to the leaders of topics that are about to be read. After a failure the other reader reads alone:
        it waits for silent brokers itself, so that they are not waited for twice.
        """
        try:
            if self._may_be_used():
                self._learn(set(topics))
                for leader in sorted(set(self._known.of.values())):
                    self._connect(leader)
        except Exception as error:  # noqa: BLE001 - as in a read
            log.debug("nothing was prepared: %r", error)
            self._failures = MOST_FAILURES
            self._forget()

    def _may_be_used(self) -> bool:
        """True if every setting of the client can be translated."""
        if self._settings is None:
            self._settings = translate_settings(self._client)
            if self._settings is None:
                self._failures = MOST_FAILURES
        return self._settings is not None

    def read(self, requests: Sequence[ReadRequest]) -> Iterator[list[tuple[int, Chunk]]]:
        """The indexes of requests and their answers, as soon as some are known; the others are left."""
        if self._failures >= MOST_FAILURES:
            return
        try:
            for places in self._read(requests):
                yield [(place.index, place.chunk()) for place in places]
            self._failures = 0
        except Exception as error:  # noqa: BLE001 - whatever it is, the other reader meets it, and says it
            log.debug("left to the other reader: %r", error)
            self._failures += MOST_FAILURES if isinstance(error, TimeoutError) else 1
            self._forget()

    def _read(self, requests: Sequence[ReadRequest]) -> Iterator[list[Place]]:
        if not self._may_be_used():
            return
        places: dict[Name, Place] = {}
        for index, request in enumerate(requests):
            if not request.committed:  # a broker names aborted records, and does not leave them out
                name = request.partition.topic, request.partition.partition
                places.setdefault(name, Place(index, request))
        self._learn({topic for topic, _ in places})
        by_leader: dict[int, dict[Name, Place]] = {}
        for name, place in places.items():
            if (leader := self._known.of.get(name)) is not None:
                by_leader.setdefault(leader, {})[name] = place
        yield from self._take_turns(deque(_parts(by_leader)))

    def _take_turns(self, parts: deque[_Part]) -> Iterator[list[Place]]:
        """Ask for the parts in turn, until all their places are complete or left; yield the complete ones."""
        under_way: deque[tuple[_Part, asyncio.Future[memoryview]]] = deque()
        try:
            while parts or under_way:
                while parts and len(under_way) < UNDER_WAY:
                    part = parts.popleft()
                    under_way.append((part, self._ask(part.leader, part.fetch())))
                part, asked = under_way.popleft()
                answer = list(wire.parse_fetch(self._run(asked)))
                too_large: dict[Name, Place] = {}
                yield from self._sort(answer, part, too_large)
                if part.waiting:
                    parts.append(part)
                if too_large and part.each_bytes < LARGER_BYTES:
                    parts.append(_Part(part.leader, too_large, LARGER_BYTES))
        finally:
            for _, asked in under_way:
                asked.cancel()

    def _sort(self, answer: Sequence[wire.Fetched], part: _Part, too_large: dict[Name, Place]) -> Iterator[list[Place]]:
        """Yield the complete places. They, and places left to the other reader, wait no longer.

        A place whose next batch is above the fetch size goes into ``too_large``.
        """
        waiting, has_room = part.waiting, part.has_room(answer)
        done: list[Place] = []
        moved, filled = False, 0
        for name, error, high, batches in answer:
            place = waiting[name]
            before = place.position
            try:
                if error:
                    self._stale.add(name[0])
                    raise LookupError(f"error {error}")
                is_complete = place.take(batches, high)
            except Exception as problem:  # noqa: BLE001 - of a parser, which has errors of many kinds
                log.debug("%s-%s is left to the other reader: %r", *name, problem)
                is_left, is_complete = True, False
            else:
                is_left = not is_complete and place.position == before and (has_room or len(batches) > 0)
                if is_left and not batches:
                    too_large[name] = place
            if is_complete or is_left:
                moved = True
                del waiting[name]
            moved = moved or place.position > before
            if is_complete:
                done.append(place)
                filled += place.bytes
            if filled >= HAND_OVER_BYTES:
                yield done
                done, filled = [], 0
        if done:
            yield done
        if not moved or sum(place.bytes for place in waiting.values()) > self._most_bytes // UNDER_WAY:
            waiting.clear()

    def _learn(self, topics: set[str]) -> None:
        """Ask who leads the partitions of topics that are not known yet."""
        if monotonic() > self._known_until:
            self._known = wire.Leaders({}, {})
        unknown = sorted(topics - {topic for topic, _ in self._known.of} | topics & self._stale)
        if not unknown:
            return
        if not self._known.of:
            self._known_until = monotonic() + LEADERS_S
        brokers, leaders = wire.parse_leaders(self._run(self._look_up(unknown)))
        self._stale.difference_update(unknown)
        self._known.brokers.update(brokers)
        self._known.of.update(leaders)

    async def _look_up(self, topics: Sequence[str]) -> memoryview:
        """The answer of a broker that is known, or of the first one that lets this client in."""
        assert self._settings is not None
        for connection in self._connections.values():
            return await _sent(connection, wire.Metadata(topics))
        for host, port in self._settings.servers:
            try:
                connection = await self._connected(host, port)
            except OSError as error:  # this broker may be down
                log.debug("%s:%s: %r", host, port, error)
                continue
            try:
                return await _sent(connection, wire.Metadata(topics))
            finally:
                connection.close()
        raise LookupError("no broker answers")

    def _ask(self, leader: int, fetch: wire.Fetch) -> asyncio.Future[memoryview]:
        """Send a request; its answer is to come."""
        return self._loop.create_task(_sent(self._connect(leader), fetch))

    def _connect(self, leader: int) -> AIOKafkaConnection:
        connection = self._connections.get(leader)
        if connection is None or not connection.connected():
            address = self._known.brokers[leader]
            connection = self._connections[leader] = self._loop.run_until_complete(self._connected(*address))
        return connection

    async def _connected(self, host: str, port: int) -> AIOKafkaConnection:
        assert self._settings is not None
        timeout_ms = int(self._wait_s * 1000)
        return await create_conn(host, port, request_timeout_ms=timeout_ms, **self._settings.options)

    def _run(self, waiting: Any) -> memoryview:
        found: memoryview = self._loop.run_until_complete(waiting)
        return found

    def _forget(self) -> None:
        """Close all connections and forget the leaders."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._known = wire.Leaders({}, {})

    def close(self) -> None:
        self._forget()
        self._loop.run_until_complete(asyncio.sleep(0))  # transports close in the loop
        self._loop.close()


@dataclass(frozen=True, slots=True)
class _Part:
    """Places of one leader that are asked for together, so many bytes of each."""

    leader: int
    waiting: dict[Name, Place]
    each_bytes: int = EACH_BYTES

    def fetch(self) -> wire.Fetch:
        return wire.Fetch(((name, place.position) for name, place in self.waiting.items()), self.each_bytes, ALL_BYTES)

    def has_room(self, answer: Sequence[wire.Fetched]) -> bool:
        """True if the answer could have held one more batch of this size."""
        return ALL_BYTES - sum(len(each.batches) for each in answer) >= self.each_bytes


def _parts(by_leader: Mapping[int, Mapping[Name, Place]]) -> Iterator[_Part]:
    for leader, waiting in by_leader.items():
        items = list(waiting.items())
        size = len(items) if len(items) < DIVIDED_FROM else -(-len(items) // UNDER_WAY)
        for first in range(0, len(items), size):
            yield _Part(leader, dict(items[first : first + size]))


async def _sent(connection: AIOKafkaConnection, request: wire.Fetch | wire.Metadata) -> memoryview:
    content: memoryview = (await connection.send(request)).content
    return content


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
        """True if the answer is complete: as many records as are wanted, or all up to the high watermark.

        Raises Uncertain for batches of an old format and wrong checksums; the parser's own errors report the others.
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
            first = len(own)  # the first that may be counted
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


def columns_of(records: list[Any]) -> ReadColumns:
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
