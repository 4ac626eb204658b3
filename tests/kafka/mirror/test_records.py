"""The records of MirrorMaker's own topics, byte for byte."""

from __future__ import annotations

import struct

import pytest

from reconciler.core.anchors import TopicPartition
from reconciler.core.mirrored.pairs import MirrorCheckpoint, Sync
from reconciler.kafka.mirror.records import Beat, UnreadableRecord, read_checkpoint, read_heartbeat, read_sync
from tests.kafka.mirror.written import checkpoint_key, checkpoint_value, sync_key, sync_value, text
from tests.memory_log import MemoryRecord


def record(key: bytes | None, value: bytes | None) -> MemoryRecord:
    return MemoryRecord(3, 77, key, value)


def test_an_offset_sync_is_read() -> None:
    key = bytes.fromhex("0006 6576656e7473 00000002")
    value = bytes.fromhex("0000000000001151 0000000000000e0e")
    assert read_sync(record(key, value)) == (TopicPartition("events", 2), Sync(4433, 3598, 77))


def test_a_checkpoint_is_read() -> None:
    key = bytes.fromhex("0001 67 0008 612e6576656e7473 00000000")
    value = bytes.fromhex("0000 0000000000001151 0000000000000e0f 0000")
    assert read_checkpoint(record(key, value)) == (TopicPartition("a.events", 0), MirrorCheckpoint("g", 4433, 3599, 77))


def test_a_heartbeat_is_read() -> None:
    key = text("a") + text("b")
    assert read_heartbeat(record(key, struct.pack(">hq", 0, 1700))) == Beat("a", "b", 1700)


def test_a_tombstone_is_no_pair() -> None:
    assert read_sync(record(sync_key(), None)) is None
    assert read_checkpoint(record(checkpoint_key("g"), None)) is None
    assert read_heartbeat(record(b"", None)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, sync_value(1, 1)),
        (b"", sync_value(1, 1)),
        (sync_key()[:-1], sync_value(1, 1)),
        (sync_key() + b"x", sync_value(1, 1)),
        (struct.pack(">h", -1) + b"abcd", sync_value(1, 1)),
        (struct.pack(">h", 2) + b"\xff\xfe" + struct.pack(">i", 0), sync_value(1, 1)),
        (sync_key(partition=-1), sync_value(1, 1)),
        (sync_key(), sync_value(-1, 1)),
        (sync_key(), sync_value(1, 1)[:-1]),
        (sync_key(), sync_value(1, 1) + b"x"),
    ],
)
def test_what_is_no_sync_is_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        read_sync(record(key, value))


def test_a_checkpoint_of_another_version_is_refused() -> None:
    with pytest.raises(UnreadableRecord, match="version 1"):
        read_checkpoint(record(checkpoint_key("g"), checkpoint_value(1, 1, version=1)))
