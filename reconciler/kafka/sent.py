"""Records as bytes, sent by the process that reads them to the one that judges them (or handed over within one).

One frame holds the chunks of many partitions: a JSON header and, column by column over all their records, plain numbers
and bytes. Nothing that makes objects is read back, and a record is cut out only when it is used.
"""

from __future__ import annotations

import json
import logging
import struct
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from itertools import accumulate, starmap
from typing import Any, NamedTuple, overload

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import NotRead
from reconciler.core.probes import Chunk, Counted, Withheld

COLUMNS = {"offsets": "q", "stamps": "q", "keys": "i", "values": "i"}
"""One number of 8 or 4 bytes per record: offset, timestamp, lengths of key and value (-1: null)."""
KIND = 1
"""Bytes per record for the kind of its timestamp."""
RECORDS_A_FRAME = 8_192
"""A frame ends with the chunk that reaches this number of records."""

Headers = tuple[tuple[str, bytes | None], ...]

log = logging.getLogger(__name__)


@lru_cache(maxsize=1_000)
def warn_of_headers(partition: str) -> None:
    """Warn, once for each partition, that the headers of some of its records cannot be read: they count as absent.

    Called only where headers are needed: a job whose ids are elsewhere is not concerned.
    """
    log.warning("%s has records with a header name that is not UTF-8: their headers cannot be read here", partition)


def readable(headers: Headers | str) -> Headers:
    """A record's headers. A text instead of them is its partition's name: they could not be read, which is logged."""
    if isinstance(headers, str):
        warn_of_headers(headers)
        return ()
    return headers


class SentRecord:
    """One record as a ``core.anchors.Record``. Its bytes are cut out on demand: most are never used."""

    __slots__ = ("_at", "_columns", "append_time", "offset", "timestamp_ms")

    def __init__(self, columns: SentColumns, at: int, offset: int, kind: int, stamp: int) -> None:
        self._columns = columns
        self._at = at
        self.offset = offset
        # A batch of KIP-98 without times says -1.
        self.timestamp_ms = None if kind == TIMESTAMP_NOT_AVAILABLE or stamp < 0 else stamp
        self.append_time = kind == TIMESTAMP_LOG_APPEND_TIME

    @property
    def key(self) -> bytes | None:
        columns, at = self._columns, self._at
        length, start = columns.keys[at], columns.key_starts[at]
        return None if length < 0 else bytes(columns.content[start : start + length])

    @property
    def value(self) -> bytes | None:
        columns, at = self._columns, self._at
        length, start = columns.values[at], columns.value_starts[at]
        return None if length < 0 else bytes(columns.content[start : start + length])

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        return readable(self._columns.headers.get(self._at, ()))


class SentColumns:
    """The records of one frame, column by column."""

    def __init__(
        self, numbers: Sequence[array[int]], kinds: bytes, content: memoryview, headers: Mapping[int, Headers | str]
    ) -> None:
        self.offsets, self.stamps, self.keys, self.values = numbers
        self.kinds = kinds
        self.content = content
        """All keys, then all values."""
        self.headers = headers
        """The headers of the records that have any, by index; the partition's name where they cannot be read."""

    @cached_property
    def key_starts(self) -> Sequence[int]:
        """Where each record's key starts in ``content``, and where the last one ends."""
        return list(accumulate(_sizes(self.keys), initial=0))

    @cached_property
    def value_starts(self) -> Sequence[int]:
        return list(accumulate(_sizes(self.values), initial=sum(_sizes(self.keys))))


def _sizes(lengths: array[int]) -> Sequence[int]:
    """The bytes that keys or values take."""
    return [max(length, 0) for length in lengths] if -1 in lengths else lengths


class SentRecords(Sequence[SentRecord]):
    """Records of one chunk, each made on access."""

    __slots__ = ("_columns", "_places")

    def __init__(self, columns: SentColumns, places: range) -> None:
        self._columns = columns
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> SentRecord: ...
    @overload
    def __getitem__(self, index: slice) -> SentRecords: ...
    def __getitem__(self, index: int | slice) -> SentRecord | SentRecords:
        if isinstance(index, slice):
            return SentRecords(self._columns, self._places[index])
        columns, at = self._columns, self._places[index]
        return SentRecord(columns, at, columns.offsets[at], columns.kinds[at], columns.stamps[at])

    def __iter__(self) -> Iterator[SentRecord]:
        columns, places = self._columns, self._places
        if places.step != 1:
            return map(self.__getitem__, range(len(places)))
        cut = slice(places.start, places.stop)
        found = zip(places, columns.offsets[cut], columns.kinds[cut], columns.stamps[cut], strict=True)
        return starmap(partial(SentRecord, columns), found)

    def are_older(self, count: int, before_ms: int) -> bool:
        """See ``core.scan.Dated``: this runs over every record in front of a bound."""
        kinds, times, places = self._columns.kinds, self._columns.stamps, self._places[:count]
        if places.step != 1 or kinds.count(TIMESTAMP_CREATE_TIME, places.start, places.stop) != len(places):
            return False
        return max(times[places.start : places.stop], default=0) < before_ms

    def not_created_after(self, latest_ms: int, stamps: Collection[int]) -> Sequence[SentRecord]:
        """See ``core.matching.ByTime``: this runs over every record behind an anchor."""
        kinds, times, places = self._columns.kinds, self._columns.stamps, self._places
        if places.step == 1 and kinds.count(TIMESTAMP_CREATE_TIME, places.start, places.stop) == len(places):
            # Nearly always all are newer, and then the oldest tells.
            oldest = min(times[places.start : places.stop], default=latest_ms + 1)
            if oldest > latest_ms and all(stamp < oldest for stamp in stamps):
                return ()
        return [
            self[index]
            for index, at in enumerate(places)
            if kinds[at] != TIMESTAMP_CREATE_TIME or (stamp := times[at]) <= latest_ms or stamp in stamps
        ]


# ---------------------------------------------------------------- to and from bytes


def frames(answers: Sequence[tuple[int, Chunk]]) -> Iterator[Sequence[tuple[int, Chunk]]]:
    """Answers, divided into those of one frame each."""
    begin = records = 0
    for place, (_, chunk) in enumerate(answers):
        records += 0 if isinstance(chunk, Withheld) else len(chunk.records)
        if records >= RECORDS_A_FRAME:
            yield answers[begin : place + 1]
            begin, records = place + 1, 0
    if begin < len(answers):
        yield answers[begin:]


class ReadColumns(NamedTuple):
    """Records of a frame as a client's library has them, column by column. ``kinds`` are those of librdkafka."""

    offsets: Sequence[int]
    stamps: Sequence[int]
    kinds: bytes
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: Sequence[Any]
    """Empty if no record has any. As in ``SentColumns``, a text stands for headers that cannot be read."""


def columns_of(messages: list[Any]) -> ReadColumns:
    """Consumed messages, column by column."""
    # One call a column and no loop in Python: this runs over every record.
    kinds, stamps = zip(*map(Message.timestamp, messages), strict=True) if messages else ((), ())
    headers = headers_of(messages)
    return ReadColumns(
        offsets=list(map(Message.offset, messages)),
        stamps=stamps,
        kinds=bytes(kinds),
        keys=list(map(Message.key, messages)),
        values=list(map(Message.value, messages)),
        headers=headers if any(headers) else (),
    )


def headers_of(messages: list[Any]) -> list[Any]:
    """The headers of messages; the partition's name for a message whose headers the client cannot decode.

    The client (2.16) has two faults: for such headers it returns a half-made list with the error set, and only a call
    through ``map`` or the like raises that error; and it keeps the list, which ends the process when it is read.
    """
    found: list[Any] = []
    left = map(Message.headers, messages)
    while True:
        try:
            found.extend(left)
            return found
        except (SystemError, UnicodeDecodeError):
            message = messages[len(found)]
            message.set_headers([])
            found.append(str(TopicPartition(message.topic(), message.partition())))


def pack(
    answers: Sequence[tuple[int, Chunk]], columns_of: Callable[[list[Any]], ReadColumns] = columns_of
) -> list[bytes]:
    """Parts of a frame: the indexes of requests and the chunks that answer them. ``columns_of`` reads their records."""
    messages: list[Any] = []
    chunks, withheld = [], []
    for index, chunk in answers:
        if isinstance(chunk, Withheld):
            withheld.append((index, chunk.error.message, chunk.error.hint))
        else:
            own = chunk.records
            counted = chunk.counted and (chunk.counted.count, chunk.counted.last, chunk.counted.oldest_ms)
            chunks.append((index, chunk.next_offset, chunk.out_of_range, counted, len(own)))
            messages += own
    found = columns_of(messages)
    columns = {
        "offsets": found.offsets,
        "stamps": found.stamps,
        "keys": _lengths(found.keys),
        "values": _lengths(found.values),
    }
    headers = [(at, each) for at, each in enumerate(found.headers) if each]
    about = {
        "chunks": chunks,
        "withheld": withheld,
        "headers": [(at, each if isinstance(each, str) else _in_hex(each)) for at, each in headers],
    }
    header = json.dumps(about).encode()
    # struct takes a fifth of the time that array takes for small numbers.
    numbers = [struct.pack(f"{len(each)}{COLUMNS[name]}", *each) for name, each in columns.items()]
    return [
        len(header).to_bytes(8, "little") + header,
        *numbers,
        found.kinds,
        _joined(found.keys),
        _joined(found.values),
    ]


def _in_hex(headers: Headers) -> list[tuple[str, str | None]]:
    return [(name, None if content is None else content.hex()) for name, content in headers]


def _of_hex(headers: list[tuple[str, str | None]]) -> Headers:
    return tuple((name, None if content is None else bytes.fromhex(content)) for name, content in headers)


def _joined(parts: list[bytes | None]) -> bytes:
    try:
        return b"".join(parts)  # type: ignore[arg-type]
    except TypeError:  # some are null
        return b"".join(filter(None, parts))


def _lengths(parts: list[bytes | None]) -> list[int]:
    try:
        return list(map(len, parts))  # type: ignore[arg-type]
    except TypeError:  # some are null
        return [-1 if part is None else len(part) for part in parts]


def unpack(framed: memoryview) -> list[tuple[int, Chunk]]:
    """The indexes of requests and their answers. Raises ValueError or KeyError for bytes that ``pack`` did not make."""
    size = int.from_bytes(framed[:8], "little")
    about = json.loads(bytes(framed[8 : 8 + size]))
    position, numbers = 8 + size, []
    count = sum(count for *_, count in about["chunks"])
    for kind in COLUMNS.values():
        column = array(kind)
        column.frombytes(framed[position : position + column.itemsize * count])
        position += column.itemsize * count
        numbers.append(column)
    headers = {at: found if isinstance(found, str) else _of_hex(found) for at, found in about["headers"]}
    kinds = bytes(framed[position : position + KIND * count])
    if len(kinds) != count:
        raise ValueError(f"a frame lacks some of its {count} records")
    columns = SentColumns(numbers, kinds, framed[position + KIND * count :], headers)
    answers: list[tuple[int, Chunk]] = [
        (index, Withheld(NotRead(message, hint=hint))) for index, message, hint in about["withheld"]
    ]
    begin = 0
    for index, following, gone, newer, own in about["chunks"]:
        records, counted = SentRecords(columns, range(begin, begin + own)), newer and Counted(*newer)
        answers.append((index, Chunk(records, following, gone, counted)))
        begin += own
    return answers
