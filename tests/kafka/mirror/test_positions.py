"""The positions of MirrorMaker's tasks, as Connect writes them."""

from __future__ import annotations

import pytest

from reconciler.kafka.mirror.records import position_of
from reconciler.ports import TopicPartition
from tests.memory_log import MemoryRecord

KEY = b'["MirrorSourceConnector",{"cluster":"a","partition":0,"topic":"events"}]'


def record(key: bytes | None, value: bytes | None) -> MemoryRecord:
    return MemoryRecord(0, 1, key, value)


def test_a_position_is_the_last_source_offset_that_was_delivered() -> None:
    assert position_of(record(KEY, b'{"offset":1499}'), "a") == (TopicPartition("events", 0), 1499)


def test_a_connector_may_have_any_name() -> None:
    assert position_of(record(KEY.replace(b"MirrorSourceConnector", b"mine"), b'{"offset":3}'), "a") is not None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (KEY, None),
        (None, b'{"offset":1}'),
        (KEY.replace(b'"a"', b'"c"'), b'{"offset":1}'),
        (b'["MirrorCheckpointConnector",{"partition":1,"topic":"a.events","group":"g"}]', b'{"offset":0}'),
        (b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"a","targetClusterAlias":"b"}]', b'{"offset":0}'),
        (b'["a file",{"filename":"/tmp/x"}]', b'{"position":7}'),
        (KEY, b'{"offset":-1}'),
        (KEY, b'{"offset":true}'),
        (KEY, b'{"offset":1.5}'),
        (KEY, b'"1499"'),
        (b"no JSON", b'{"offset":1}'),
        (b"\xff\xfe", b'{"offset":1}'),
        (b"[" * 5_000, b'{"offset":1}'),
        (b'["' + b"x" * 20_000 + b'",{"cluster":"a","partition":0,"topic":"events"}]', b'{"offset":1}'),
    ],
)
def test_everything_else_in_the_topic_is_passed_over(key: bytes | None, value: bytes | None) -> None:
    assert position_of(record(key, value), "a") is None
