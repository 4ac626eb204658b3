"""The records of MirrorMaker 2's own topics: their formats, and reading the newest ones.

Formats of Kafka's ``connect:mirror`` (``OffsetSync``, ``Checkpoint``, ``Heartbeat``): fields of Kafka's protocol types,
a STRING with its length as INT16. Keys have no version. Of values, those of checkpoints and heartbeats begin with one
(INT16, 0 so far); an offset sync's has none.

The offsets topic of its Connect worker has keys in JSON, ``["MirrorSourceConnector",{"cluster":"a","partition":0,
"topic":"events"}]`` (the connector's name may be any), and values ``{"offset":1499}``: the last source offset whose
delivery was committed. In MirrorMaker's own mode that topic is ``mm2-offsets.ALIAS.internal``; another worker names it
in ``offset.storage.topic``.

A watch follows heartbeats: each round reads only what is new, the first one ``FIRST_BEATS`` records before the topic's
end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reconciler.core.anchors import Record
from reconciler.core.errors import NotRead, Refused, Unreachable
from reconciler.core.json_fields import FieldError, json_value
from reconciler.core.mirrored.pairs import MirrorCheckpoint, Sync
from reconciler.ports import LogReader, ReadRequest, TopicPartition

VERSION = 0
CHUNK = 8_192
"""Records in one read."""


class UnreadableRecord(ValueError):
    """The bytes are not a record of this format, or of a version that is not known here."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat: sent at ``timestamp_ms`` by a mirror from one alias to another."""

    source: str
    target: str
    timestamp_ms: int


def read_sync(record: Record) -> tuple[TopicPartition, Sync] | None:
    """The source's partition and a sync of it; None for a tombstone. Raises Unreadable."""
    if record.value is None:
        return None
    key, value = _Fields(record.key), _Fields(record.value)
    place = TopicPartition(key.text(), key.number("i"))
    sync = Sync(value.number("q"), value.number("q"), record.timestamp_ms)
    key.done()
    value.done()
    _refuse_negative(place.partition, sync.upstream, sync.downstream)
    return place, sync


def read_checkpoint(record: Record) -> tuple[TopicPartition, MirrorCheckpoint] | None:
    """The destination's partition and a group's checkpoint of it; None for a tombstone. Raises Unreadable."""
    if record.value is None:
        return None
    key, value = _Fields(record.key), _Fields(record.value)
    group, place = key.text(), TopicPartition(key.text(), key.number("i"))
    value.version()
    checkpoint = MirrorCheckpoint(group, value.number("q"), value.number("q"), record.timestamp_ms)
    value.text()  # the commit's metadata
    key.done()
    value.done()
    _refuse_negative(place.partition, checkpoint.upstream, checkpoint.downstream)
    return place, checkpoint


def read_heartbeat(record: Record) -> Beat | None:
    """A heartbeat; None for a tombstone. Raises Unreadable."""
    if record.value is None:
        return None
    key, value = _Fields(record.key), _Fields(record.value)
    value.version()
    beat = Beat(key.text(), key.text(), value.number("q"))
    key.done()
    value.done()
    return beat


def _refuse_negative(*numbers: int) -> None:
    if min(numbers) < 0:
        raise UnreadableRecord("an offset or a partition is negative")


class _Fields:
    """Kafka's protocol types, read from front to back."""

    def __init__(self, content: bytes | None) -> None:
        if content is None:
            raise UnreadableRecord("the key is missing")
        self._content = content
        self._at = 0

    def number(self, code: str) -> int:
        """An INT16 (h), INT32 (i) or INT64 (q), big-endian."""
        begin, self._at = self._at, self._at + struct.calcsize(f">{code}")
        if self._at > len(self._content):
            raise UnreadableRecord("it ends too early")
        (found,) = struct.unpack(f">{code}", self._content[begin : self._at])
        return int(found)

    def text(self) -> str:
        length = self.number("h")
        begin, self._at = self._at, self._at + length
        if length < 0 or self._at > len(self._content):
            raise UnreadableRecord("a text is longer than the record")
        try:
            return self._content[begin : self._at].decode()
        except UnicodeDecodeError as error:
            raise UnreadableRecord("a text is not UTF-8") from error

    def version(self) -> None:
        if (found := self.number("h")) != VERSION:
            raise UnreadableRecord(f"version {found} is not known")

    def done(self) -> None:
        if self._at != len(self._content):
            raise UnreadableRecord("more follows than the format has")


FIRST_BEATS = 10
MOST_A_ROUND = 200_000


class Heartbeats:
    """``names`` are candidates for the heartbeats' topic; the first that exists is read.

    ``newest_ms`` is the time at the source when the newest heartbeat was sent, None if there is none. One that names a
    later time than its reading comes from a clock that is ahead, and counts as sent when it was read.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._new = NewRecords(names, FIRST_BEATS)
        self.newest_ms: int | None = None

    def read(self, reader: LogReader, now_ms: int) -> None:
        """Read what was written since the last call. Raises Unreachable and Refused as the reader does."""
        for records in self._new.read(reader).values():
            sent_ms = _last_sent_ms(records)
            if sent_ms is not None:
                self.newest_ms = max(min(sent_ms, now_ms), self.newest_ms or 0)


def _last_sent_ms(records: Iterable[Record]) -> int | None:
    """When the last heartbeat in the log was sent, even if an earlier one has a later time."""
    sent_ms = None
    for record in records:
        try:
            beat = read_heartbeat(record)
        except UnreadableRecord:
            continue
        sent_ms = sent_ms if beat is None else beat.timestamp_ms
    return sent_ms


class NewRecords:
    """The records of the first of the topics ``names`` that exists; at the first reading its last ``first`` ones."""

    def __init__(self, names: Sequence[str], first: int) -> None:
        self._names = names
        self._first = first
        self._next: dict[TopicPartition, int] = {}
        self._ids: dict[str, str | None] = {}

    def read(self, reader: LogReader) -> Mapping[TopicPartition, Sequence[Record]]:
        """The records since the last call, at most ``MOST_A_ROUND`` of a partition, in the order of the log."""
        described = reader.describe(self._names).topics if self._names else {}
        info = next((described[name] for name in self._names if name in described), None)
        if info is None:
            return {}
        if self._ids.get(info.name, info.topic_id) != info.topic_id:
            self._next = {place: at for place, at in self._next.items() if place.topic != info.name}
        self._ids[info.name] = info.topic_id
        places = info.places
        starts, ends = reader.log_starts(places), reader.log_ends(places)
        found: dict[TopicPartition, Sequence[Record]] = {}
        for place in places:
            end = ends[place]
            begin = min(max(starts[place], self._next.get(place, end - self._first), end - MOST_A_ROUND), end)
            found[place] = list(between(reader, place, begin, end))
        self._next.update(ends)
        return found


MOST = 100_000
"""Records that are read before the end of each of the topic's partitions."""
LARGEST = 10_000
"""Bytes of a key or value. MirrorMaker's are about a hundred."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The last delivered offset of each of the source's partitions; ``why_none`` if there is none."""

    delivered: Mapping[TopicPartition, int]
    why_none: str = ""


def usual_topics(alias: str) -> tuple[str, ...]:
    """The default names of such topics: of MirrorMaker's own mode, of Strimzi's resources, and of Kafka's files."""
    worker = ("mirrormaker2-cluster-offsets", "connect-cluster-offsets", "connect-offsets")
    return (f"mm2-offsets.{alias}.internal", *worker)


def read_positions(reader: LogReader, alias: str, topics: Sequence[str]) -> Positions:
    """The positions that Connect committed for the mirror of ``alias``, in the first of ``topics`` that has any.

    Failures are not raised: they are the reason why there are none. Each topic is asked for on its own, since this user
    may be allowed to read one of them only.
    """
    reasons = []
    for topic in topics:
        try:
            info = reader.describe((topic,)).topics.get(topic)
            places = info.places if info is not None else []
            found = newest_positions(_last_records(reader, places), alias)
        except (NotRead, Refused, Unreachable) as error:
            reasons.append(f'"{topic}" could not be read: {error.message.rstrip(".")}')
            continue
        if found:
            return Positions(found)
        reasons.append(f'there is no topic "{topic}"' if info is None else f'"{topic}" has no position of this mirror')
    return Positions({}, reasons[0] if reasons else "")


def _last_records(reader: LogReader, places: Sequence[TopicPartition]) -> Iterator[Record]:
    starts, ends = reader.log_starts(places), reader.log_ends(places)
    for place in places:
        yield from between(reader, place, max(starts[place], ends[place] - MOST), ends[place])


def newest_positions(records: Iterable[Record], alias: str) -> dict[TopicPartition, int]:
    """The newest position of each of the source's partitions: connectors of other names have keys of their own."""
    found: dict[TopicPartition, int] = {}
    times: dict[TopicPartition, int] = {}
    for record in records:
        position, time_ms = position_of(record, alias), record.timestamp_ms or 0
        if position is not None and time_ms >= times.get(position.partition, 0):
            found[position.partition], times[position.partition] = position.offset, time_ms
    return found


class MirrorPosition(NamedTuple):
    """A partition of the source, and the last offset of it that was delivered."""

    partition: TopicPartition
    offset: int


def position_of(record: Record, alias: str) -> MirrorPosition | None:
    """The position that a record holds; None for every other record of the topic."""
    if record.key is None or record.value is None or max(len(record.key), len(record.value)) > LARGEST:
        return None
    try:
        key, value = json_value(record.key.decode()), json_value(record.value.decode())
    except (FieldError, UnicodeDecodeError):
        return None
    where = key[1] if isinstance(key, list) and len(key) == 2 else None
    if not isinstance(where, Mapping) or not isinstance(value, Mapping):
        return None
    topic, partition, offset = where.get("topic"), where.get("partition"), value.get("offset")
    if where.get("cluster") != alias or not isinstance(topic, str):
        return None
    if type(partition) is not int or type(offset) is not int or partition < 0 or offset < 0:
        return None
    return MirrorPosition(TopicPartition(topic, partition), offset)


def between(reader: LogReader, place: TopicPartition, begin: int, end: int) -> Iterator[Record]:
    """The records from ``begin`` to before ``end``."""
    position = begin
    while position < end:
        (chunk,) = reader.read([ReadRequest(place, position, min(CHUNK, end - position))])
        if chunk.out_of_range or chunk.next_offset <= position:
            return  # retention has removed it meanwhile
        yield from (record for record in chunk.records if record.offset < end)
        position = chunk.next_offset
