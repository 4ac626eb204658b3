"""The stores in HBase with a real server: other programs' rows are read right and written byte for byte."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, Names, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError, Refused
from reconciler.places.hbase import cloudera
from reconciler.places.hbase.cdap import LogSaver
from reconciler.ports import Change, TopicPartition
from tests.places.hbase.fixtures import Tables, change, only
from tests.places.store_cases import NOW, put

pytestmark = pytest.mark.system

KEY = TopicPartition("events", 0)
OURS = Anchor(
    offset=99, timestamp_ms=NOW - 7, id=b"17", fingerprint=fingerprint(b"k", b"v"), cluster_id="b", topic_id="t"
)
TRANSACTION = 1_478_732_791_857_000_000


def write(store: Any) -> None:
    store.write("g", [Change(KEY, None, StoredOffset(1))], reason="test", now_ms=NOW)


def longs(*numbers: int) -> bytes:
    return b"".join(struct.pack(">q", number) for number in numbers)


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("query", "ddl"),
    [
        ("cloudera", "create '{}', {{NAME => 'offsets', TTL => 2592000}}"),
        ("cdap-metrics", "create '{}', {{NAME => 'd'}}"),
    ],
)
def test_a_missing_table_is_refused_with_its_ddl_and_created_only_on_request(tables: Tables, query, ddl):
    store, name = tables.open(query), tables.name(query)
    for call in (lambda: store.read("g"), lambda: store.check_writable("g"), lambda: write(store)):
        with pytest.raises(Refused, match=f"There is no table '{name}' in HBase") as caught:
            call()
        assert ddl.format(name) in caught.value.hint
    assert name.encode() not in tables.plain.tables()
    store.create()
    store.check_writable("g")
    assert store.read("g") == []
    families = tables.plain.table(name).families()
    if query.startswith("cloudera"):
        assert {family["time_to_live"] for family in families.values()} == {2_592_000}


def test_a_misspelt_table_is_told_with_one_of_a_like_name(tables: Tables):
    tables.open("cdap-metrics").create()
    name = tables.name("cdap-metrics")
    with pytest.raises(Refused, match=f"There is no table '{name}x' in HBase") as caught:
        tables.at(f"{name}x", "cdap-metrics").read("g")
    assert f"'{name}'" in caught.value.hint.partition("Correct the store's address")[0]


def test_a_missing_namespace_is_refused_with_the_command_that_creates_it(hbase, tables: Tables):
    store = tables.at("no_such_space:log.meta", "cdap-logsaver&prefix=100")
    with pytest.raises(Refused, match="There is no namespace 'no_such_space' in HBase") as caught:
        store.create()
    assert "create_namespace 'no_such_space'" in caught.value.hint


def test_a_table_in_a_namespace_is_created_read_and_written(hbase, tables: Tables):
    hbase.create_namespace("cdap_system")
    store = tables.at("cdap_system:log.meta", "cdap-logsaver&prefix=100")
    store.create()
    row = b"\0\0\0dlogs.user-v2\0\0\0\x02"
    plain = tables.plain.table("cdap_system:log.meta")
    plain.put(row, {b"d:nextOffset": b"\0\0\0\0\0\0\x0d\x1f", b"d:maxEventTime": b"\0\0\x01XKLW\xed"})
    assert only(store).stored.anchor == Anchor(timestamp_ms=1478732044269, names=Names.MAX_TIME)
    change(store, StoredOffset(7, OURS), TopicPartition("logs.user-v2", 2))
    assert plain.row(row)[b"d:nextOffset"] == longs(7)


@pytest.mark.parametrize("query", ["cloudera", "cdap-metrics"])
def test_a_table_of_another_layout_is_refused_before_anything_is_written(tables: Tables, query):
    tables.plain.create_table(tables.name("x"), {"x": {}})
    store = tables.at(tables.name("x"), query)
    with pytest.raises(Refused, match="lacks a column family that this layout needs") as caught:
        store.check_writable("g")
    assert "alter '" in caught.value.hint


def test_a_disabled_table_is_refused_before_anything_is_written(tables: Tables):
    store = tables.made("cdap-metrics")
    tables.plain.disable_table(tables.name("cdap-metrics"))
    for call in (
        lambda: store.check_writable("g"),
        lambda: store.read("g"),
        lambda: write(store),
    ):
        with pytest.raises(Refused, match="is disabled") as caught:
            call()
        assert "enable '" in caught.value.hint


# ---------------------------------------------------------------- CDAP's layouts

ROWS = {
    "cdap-logsaver&prefix=100": (
        b"\0\0\0devents\0\0\0\0",
        {b"d:nextOffset": longs(5065), b"d:maxEventTime": longs(NOW)},
        Anchor(timestamp_ms=NOW, names=Names.MAX_TIME),
        {b"d:nextOffset": longs(100), b"d:maxEventTime": longs(NOW)},  # the largest time stays, since OURS is older
    ),
    "cdap-metrics": (b"events.00", {b"d:o": longs(5065)}, None, {b"d:o": longs(100)}),
}


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.parametrize("stamp", [None, TRANSACTION])
def test_a_row_of_cdap_is_read_and_corrected_byte_for_byte_and_the_job_goes_on(tables: Tables, case, stamp):
    row, before, anchor, after = ROWS[case]
    store, plain = tables.made(case), tables.table(case)
    plain.put(row, before, timestamp=stamp)
    found = only(store)
    assert (found.key, found.stored.offset, found.stored.anchor) == (KEY, 5065, anchor)
    assert stamp is None or found.stored.written_at_ms == TRANSACTION // 1_000_000
    change(store, StoredOffset(100, OURS), KEY)
    assert dict(plain.scan()) == {row: after}
    change(store, StoredOffset(5065), KEY)
    assert plain.row(row) == before
    number = next(iter(before))
    plain.put(row, {number: longs(5100)}, timestamp=stamp and 2 * stamp)
    assert only(store).stored.offset == 5100


@pytest.mark.parametrize("case", ROWS)
def test_a_new_row_of_cdap_is_its_own_cells(tables: Tables, case):
    row, _, _, after = ROWS[case]
    store, plain = tables.made(case), tables.table(case)
    change(store, StoredOffset(100, OURS), KEY)
    assert dict(plain.scan()) == {row: after | ({b"d:maxEventTime": longs(NOW - 7)} if len(after) > 1 else {})}


def test_other_rows_stay_and_are_not_taken_for_the_jobs(tables: Tables):
    store = tables.made("cdap-logsaver&prefix=100")
    plain = tables.table("cdap-logsaver&prefix=100")
    cells = {b"d:nextOffset": longs(5), b"d:maxEventTime": longs(-1)}
    others = {
        LogSaver(101).row_key(TopicPartition("events", 0)),
        LogSaver(100).row_key(TopicPartition("events.more", 0)),
        LogSaver(100).row_key(TopicPartition("event", 0x73000000)),
        b"\0\0\0d",
        b"\0\0\0d\0\0\0\0",
        b"\0\0\0d\xff\xfe\0\0\0\0",
    }
    for row in others:
        plain.put(row, cells)
    plain.put(LogSaver(100).row_key(TopicPartition("events", 0)), cells)
    assert [row.key for row in store.read("g", ["events"])] == [KEY]
    assert {row.key.topic for row in store.read("g")} == {"events", "events.more", "event"}
    change(store, StoredOffset(9, OURS), KEY)
    assert all(plain.row(row) == cells for row in others)


def test_other_columns_of_a_row_stay(tables: Tables):
    store, plain = tables.made("cdap-metrics"), tables.table("cdap-metrics")
    plain.put(b"events.00", {b"d:o": longs(5), b"d:pct": longs(77)})
    change(store, StoredOffset(9, OURS), KEY)
    assert plain.row(b"events.00") == {b"d:o": longs(9), b"d:pct": longs(77)}


@pytest.mark.parametrize(
    ("query", "row", "cells", "what"),
    [
        ("cdap-metrics", b"events.00", {b"d:o": b"5065"}, "d:o has 4 bytes, not 8"),
        (
            "cdap-logsaver&prefix=100",
            b"\0\0\0devents\0\0\0\0",
            {b"d:nextOffset": b""},
            "d:nextOffset has 0 bytes, not 8",
        ),
        ("cloudera", b"events:g:1700000000000", {b"offsets:0": b"x"}, "column offsets:0 is not a whole number"),
    ],
)
def test_a_damaged_row_is_malformed_by_its_key_and_hides_no_other(tables: Tables, query, row, cells, what):
    store, plain = tables.made(query), tables.table(query)
    put(store, "g", {TopicPartition("other", 0): StoredOffset(8, OURS)})
    plain.put(row, cells)
    bad, sound = store.read("g", ["events", "other"])
    assert sound.stored.offset == 8
    assert bad.key.topic == "events"
    assert what in bad.malformed.message
    assert repr(row) in bad.malformed.message


# ---------------------------------------------------------------- Cloudera's layout


def batch(**offsets: int) -> dict[bytes, bytes]:
    return {f"offsets:{name[1:]}".encode(): b"%d" % offset for name, offset in offsets.items()}


def test_a_correction_is_a_new_row_of_all_partitions_and_history_stays(tables: Tables):
    store, plain = tables.made("cloudera"), tables.table("cloudera")
    plain.put(b"events:g:1497628770000", batch(p0=225, p1=225, p2=225))
    plain.put(b"events:g:1497628830000", batch(p0=285, p1=286, p2=287))
    rows = store.read("g", ["events"])
    assert [(row.key.partition, row.stored) for row in rows] == [
        (n, StoredOffset(285 + n, None, 1497628830000)) for n in range(3)
    ]
    new = [Change(row.key, row.version, StoredOffset(row.stored.offset - 100)) for row in rows[:2]]
    assert len(store.write("g", new, reason="apply", now_ms=NOW).written) == 2
    everything = dict(plain.scan(row_prefix=b"events:g:"))
    assert everything == {
        b"events:g:1497628770000": batch(p0=225, p1=225, p2=225),
        b"events:g:1497628830000": batch(p0=285, p1=286, p2=287),
        b"events:g:%d" % NOW: batch(p0=185, p1=186, p2=287),
    }
    assert {row.stored.written_at_ms for row in store.read("g")} == {NOW}


def example_reader(plain: Any, topic: str, group: str, partitions: int, now_ms: int) -> dict[int, int]:
    """The starting offsets of a job of Cloudera's example, which reads one row backwards and counts its cells."""
    scan = plain.scan(
        row_start=f"{topic}:{group}:{now_ms}".encode(), row_stop=f"{topic}:{group}:0".encode(), reverse=True, limit=1
    )
    row = next((cells for _, cells in scan), {})
    count = len(row)
    stored = {number: int(row[b"offsets:%d" % number]) for number in range(count)}
    return stored | dict.fromkeys(range(count, partitions), 0)


def test_a_job_of_the_example_reads_the_written_offsets(tables: Tables):
    store, plain = tables.made("cloudera"), tables.table("cloudera")
    keys = [TopicPartition("events", number) for number in (0, 2)]
    put(store, "g", {keys[0]: StoredOffset(7, OURS), keys[1]: StoredOffset(9, OURS)}, now_ms=NOW)
    assert example_reader(plain, "events", "g", 4, NOW) == {0: 7, 1: 0, 2: 9, 3: 0}
    put(store, "g", {keys[0]: StoredOffset(8, OURS)}, now_ms=NOW + 1)
    assert example_reader(plain, "events", "g", 4, NOW + 1) == {0: 8, 1: 0, 2: 9, 3: 0}
    assert {row.key.partition for row in store.read("g")} == {0, 2}


def test_a_partition_that_the_latest_row_lacks_has_no_stored_offset(tables: Tables):
    store, plain = tables.made("cloudera"), tables.table("cloudera")
    plain.put(b"events:g:1497628770000", batch(p0=225, p1=225))
    plain.put(b"events:g:1497628830000", batch(p0=285))
    assert [(row.key.partition, row.stored.offset) for row in store.read("g")] == [(0, 285)]
    assert example_reader(plain, "events", "g", 2, NOW) == {0: 285, 1: 0}


def test_a_topic_that_kafka_does_not_allow_is_not_written(tables: Tables):
    store = tables.made("cloudera")
    with pytest.raises(ConfigError, match="cannot be a topic in Cloudera's layout"):
        change(store, StoredOffset(1), TopicPartition("a:b", 0))
    assert store.read("g", ["a:b"]) == []


def test_a_long_history_is_not_read(tables: Tables):
    """20,000 rows of history, and as many of another group in between, cost no more rows read than none."""
    store, plain = tables.made("cloudera"), tables.table("cloudera")
    first = 1_497_000_000_000
    with plain.batch(batch_size=5000) as rows:
        for number in range(20_000):
            rows.put(b"events:g:%d" % (first + number), batch(p0=number))
            rows.put(b"events:g:15:%d" % (first + number), batch(p0=1))
    seen = tables.count_rows(store)
    assert only(store).stored.offset == 19_999
    change(store, StoredOffset(5), KEY)
    assert only(store).stored.offset == 5
    assert only(store, "g:15").stored.offset == 1
    assert seen.rows < 700


def test_nothing_is_left_beside_the_rows(tables: Tables):
    store, plain = tables.made("cloudera"), tables.table("cloudera")
    put(store, "g", {KEY: StoredOffset(100, OURS), TopicPartition("events", 1): StoredOffset(7)}, now_ms=NOW)
    assert only(store, topic="events", partition=0).stored == StoredOffset(100, None, NOW)
    assert list(dict(plain.scan())) == [b"events:g:%d" % NOW]
    assert cloudera.TTL_SECONDS == 2_592_000
