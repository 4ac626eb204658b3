"""The records of MirrorMaker 2's own topics, as bytes. Pure.

Formats of Kafka's ``connect:mirror`` (``OffsetSync``, ``Checkpoint``, ``Heartbeat``): fields of Kafka's protocol types,
a STRING with its length as INT16. Keys have no version. Of values, those of checkpoints and heartbeats begin with one
(INT16, 0 so far); an offset sync's has none.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from reconciler.core.anchors import Record, TopicPartition
from reconciler.core.mirror_pairs import MirrorCheckpoint, Sync

VERSION = 0


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
