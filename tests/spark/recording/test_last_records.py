"""Finding and naming a batch's last records, on batches that need no Kafka."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from reconciler.core.anchors import fingerprint
from reconciler.core.errors import ConfigError
from reconciler.ports import TopicPartition
from reconciler.spark.identity_columns import BatchIdentity
from tests.spark.sessions import set_for_now

pytestmark = pytest.mark.system

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
BASE_MS = 1_780_000_000_123


def at_ms(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def record(offset: int, *, topic: str = "t", partition: int = 0, value: bytes | None = b"v", **changes: Any) -> tuple:
    given = {"key": b"k", "timestamp": at_ms(BASE_MS + offset), "timestampType": 0, "headers": None, **changes}
    return (
        given["key"],
        value,
        topic,
        partition,
        offset,
        *(given[n] for n in ("timestamp", "timestampType", "headers")),
    )


@pytest.fixture
def batch(spark):
    return lambda *records: spark.createDataFrame(list(records), SCHEMA)


def anchors(identity: BatchIdentity, frame: Any) -> list[Any]:
    identity.check(frame)
    return [identity.anchor_of(last, cluster_id="c", topic_id="i") for last in identity.last_records(frame)]


def test_the_largest_offset_of_each_partition_of_each_topic_is_found(batch):
    frame = batch(
        record(5, value=b"five"), record(9, value=b"nine"), record(7), record(2, partition=1), record(3, topic="u")
    ).repartition(3)
    found = BatchIdentity().last_records(frame)
    assert [(last.at, last.offset) for last in found] == [
        (TopicPartition("t", 0), 9),
        (TopicPartition("t", 1), 2),
        (TopicPartition("u", 0), 3),
    ]
    anchor = BatchIdentity().anchor_of(found[0], cluster_id="c", topic_id="i")
    assert (anchor.timestamp_ms, anchor.fingerprint) == (BASE_MS + 9, fingerprint(b"k", b"nine"))
    assert (anchor.id, anchor.cluster_id, anchor.topic_id) == (None, "c", "i")


@pytest.mark.parametrize("zone", ["Pacific/Chatham", "America/St_Johns", "Europe/Lisbon"])
@pytest.mark.parametrize("ms", [BASE_MS, 1_761_440_400_001, 1_761_444_000_999, 0])
def test_times_know_no_time_zone(batch, spark, zone, ms):
    """Two of these are in the hour that Lisbon's clocks ran through twice."""
    frame = batch(record(1, timestamp=at_ms(ms)))
    with set_for_now(spark, {"spark.sql.session.timeZone": zone}):
        (anchor,) = anchors(BatchIdentity(), frame)
    assert anchor.timestamp_ms == ms


def test_the_brokers_own_time_is_known_as_such(batch):
    stamped, own = BatchIdentity().last_records(batch(record(1, timestampType=1), record(1, partition=1)))
    assert (stamped.append_time, own.append_time) == (True, False)


def test_ids_and_times_are_read_from_headers_and_json(batch):
    headers = [("id", b"first"), ("id", b"\x00last"), ("ts", b"17"), ("none", None)]
    value = b'{"n":17,"s":"caf\xc3\xa9","ts":1780000000,"deep":[{"x":true}]}'
    frame = batch(record(1, value=value, headers=headers))

    def found(**spec: str) -> Any:
        (anchor,) = anchors(BatchIdentity(**spec), frame)
        return anchor

    assert found(id="header:id").id == b"\x00last"
    assert found(id="header:none").id is None
    assert found(id="header:other").id is None
    assert found(timestamp="header:ts", unit="s").timestamp_ms == 17_000
    assert found(id="json:$.n").id == b"17"
    assert found(id="json:$.s").id == "café".encode()
    assert found(id="json:$.deep[0].x").id == b"true"
    assert found(timestamp="json:$.ts", unit="s").timestamp_ms == 1_780_000_000_000


@pytest.mark.parametrize(
    ("projection", "spec", "why"),
    [
        (["value"], {}, r"no column topic, partition, offset, timestamp, key:.*Keep them up to foreachBatch"),
        (["cast(value as string) value", "key", "topic", "partition", "offset", "timestamp"], {}, "value is string"),
        (["value", "key", "topic", "partition", "offset", "timestamp"], {"id": "header:id"}, "includeHeaders"),
    ],
)
def test_a_dropped_column_is_named(batch, projection, spec, why):
    with pytest.raises(ConfigError, match=why):
        BatchIdentity(**spec).check(batch(record(1)).selectExpr(*projection))
