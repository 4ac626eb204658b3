"""Records as MirrorMaker 2 writes them to its own topics."""

from __future__ import annotations

import struct

import pytest

from reconciler.kafka.mirror import reading
from tests.memory_log import MemoryLog

SYNCS = "mm2-offset-syncs.a.internal"
CHECKPOINTS = "a.checkpoints.internal"
LATER = 1_900_000_000_000
"""A time after all records of these tests."""
AT_ONCE = 1_700_000_020_000
"""Some seconds after the first records of these tests were made: the mirror delivers as they come."""


def text(word: str) -> bytes:
    return struct.pack(">h", len(word.encode())) + word.encode()


def sync_key(topic: str = "events", partition: int = 0) -> bytes:
    return text(topic) + struct.pack(">i", partition)


def sync_value(upstream: int, downstream: int) -> bytes:
    return struct.pack(">qq", upstream, downstream)


def checkpoint_key(group: str, topic: str = "a.events", partition: int = 0) -> bytes:
    return text(group) + text(topic) + struct.pack(">i", partition)


def checkpoint_value(upstream: int, downstream: int, version: int = 0) -> bytes:
    return struct.pack(">hqq", version, upstream, downstream) + text("")


def write_syncs(log: MemoryLog, *pairs: tuple[int, int], topic: str = "events", at_ms: int = AT_ONCE) -> None:
    """Write syncs of the first partition."""
    if SYNCS not in log.topic_ids:
        log.create(SYNCS, 1)
    for upstream, downstream in pairs:
        log.partition(SYNCS, 0).append(at_ms, sync_key(topic), sync_value(upstream, downstream))


def write_checkpoints(
    log: MemoryLog, *pairs: tuple[int, int], group: str = "others", topic: str = "a.events", at_ms: int = LATER
) -> None:
    """Write checkpoints of the first partition."""
    if CHECKPOINTS not in log.topic_ids:
        log.create(CHECKPOINTS, 1)
    for upstream, downstream in pairs:
        log.partition(CHECKPOINTS, 0).append(
            at_ms, checkpoint_key(group, topic), checkpoint_value(upstream, downstream)
        )


def limit_reading(monkeypatch: pytest.MonkeyPatch, *, least: int) -> None:
    """Let a read of these topics end after ``least`` of their records, or after 100 if it still lacks a pair."""
    for name, number in (("LEAST", least), ("CHUNK", 10), ("MOST", 100)):
        monkeypatch.setattr(reading, name, number)
