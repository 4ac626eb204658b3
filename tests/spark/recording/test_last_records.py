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


def test_an_empty_batch_has_no_last_records(batch, spark):
    assert BatchIdentity().last_records(spark.createDataFrame([], SCHEMA)) == []


@pytest.mark.parametrize(
    ("key", "value"), [(None, b"v"), (b"k", None), (None, None), (b"", b""), (b"\xff\x00", b"\xfe")]
)
def test_bytes_are_kept_unchanged(batch, key, value):
    (anchor,) = anchors(BatchIdentity(id="key"), batch(record(1, value=value, key=key)))
    assert (anchor.fingerprint, anchor.id) == (fingerprint(key, value), key)


@pytest.mark.parametrize("zone", ["Pacific/Chatham", "America/St_Johns", "Europe/Lisbon"])
@pytest.mark.parametrize("ms", [BASE_MS, 1_761_440_400_001, 1_761_444_000_999, 0])
def test_times_know_no_time_zone(batch, spark, zone, ms):
    """Two of these are in the hour that Lisbon's clocks ran through twice."""
    frame = batch(record(1, timestamp=at_ms(ms)))
    with set_for_now(spark, {"spark.sql.session.timeZone": zone}):
        (anchor,) = anchors(BatchIdentity(), frame)
    assert anchor.timestamp_ms == ms


def test_a_record_without_timestamp_has_none(batch):
    (anchor,) = anchors(BatchIdentity(), batch(record(1, timestamp=at_ms(-1), timestampType=-1)))
    assert anchor.timestamp_ms is None


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


def test_a_tombstone_has_a_fingerprint_but_no_json(batch):
    (anchor,) = anchors(BatchIdentity(id="json:$.id", timestamp="json:$.ts"), batch(record(1, value=None)))
    assert (anchor.id, anchor.timestamp_ms, anchor.fingerprint) == (None, None, fingerprint(b"k", None))


def test_an_id_may_be_any_column_of_the_user(batch):
    from pyspark.sql import functions as f

    frame = batch(record(1, value=b"12;x"), record(2, value=b"34;y")).withColumn(
        "first part", f.split(f.col("value").cast("string"), ";")[0]
    )
    cases = {
        b"34": f.col("`first part`").cast("bigint"),
        b"34;y": f.col("value"),
        b"y": f.split(f.col("value").cast("string"), ";")[1],
        None: f.lit(None).cast("string"),
    }
    for expected, column in cases.items():
        (anchor,) = anchors(BatchIdentity(id=column), frame)
        assert anchor.id == expected


@pytest.mark.parametrize(
    ("expression", "unit", "expected"),
    [
        ("timestamp + interval 1 second", "ms", BASE_MS + 1001),
        ("1780000000123", "ms", 1_780_000_000_123),
        ("1780000000", "s", 1_780_000_000_000),
        ("1780000000123999", "us", 1_780_000_000_123),
        ("1780000000123999999", "ns", 1_780_000_000_123),
        ("cast(null as bigint)", "s", None),
    ],
)
def test_time_columns_are_exact(batch, expression, unit, expected):
    from pyspark.sql import functions as f

    (anchor,) = anchors(BatchIdentity(timestamp=f.expr(expression), unit=unit), batch(record(1)))
    assert anchor.timestamp_ms == expected


def test_the_users_columns_are_computed_only_for_the_last_records(batch):
    from pyspark.sql import functions as f

    frame = batch(record(1, value=b"poison"), record(2, value=b"7"))
    picky = f.when(f.col("value") == b"poison", f.raise_error("computed")).otherwise(f.lit("fine"))
    (anchor,) = anchors(BatchIdentity(id=picky), frame)
    assert anchor.id == b"fine"


@pytest.mark.parametrize(("spec", "what"), [("id", "cast(1.5 as double)"), ("timestamp", "'2026-01-01'")])
def test_columns_of_other_types_are_refused(batch, spec, what):
    from pyspark.sql import functions as f

    with pytest.raises(ConfigError, match=f"The {spec} column is of type"):
        anchors(BatchIdentity(**{spec: f.expr(what)}), batch(record(1)))


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


def test_headers_and_the_timestamps_type_may_be_absent(batch):
    (anchor,) = anchors(BatchIdentity(id="key"), batch(record(1)).drop("headers", "timestampType"))
    assert (anchor.id, anchor.timestamp_ms) == (b"k", BASE_MS + 1)
