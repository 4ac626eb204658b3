"""The rows of each layout in HBase: dumps of real tables are read right, written rows have their format, and garbage is
refused.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import Anchor, Names, StoredOffset, TopicPartition, fingerprint
from reconciler.places.hbase import cdap, cloudera, flowlet
from reconciler.places.hbase.cdap import LogSaver, Metrics, NewRow
from reconciler.places.hbase.flowlet import Flowlet
from reconciler.places.hbase.table import HBaseCell

INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.integers(0, 2**31 - 1)
TOPICS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
TRANSACTION = 1_478_732_791_857_000_000
NEVER = b"\xff" * 8
KEY = TopicPartition("events", 3)
METRICS, FLOWLET = Metrics(), Flowlet(dict.fromkeys)


def cells(at: int = TRANSACTION, **values: bytes) -> dict[bytes, HBaseCell]:
    return {f"d:{name}".encode(): HBaseCell(value, at) for name, value in values.items()}


# ---------------------------------------------------------------- log saver


@pytest.mark.parametrize(
    ("row", "prefix", "partition", "latest", "time", "next_offset", "offset"),
    [
        # As HBase's shell printed cdap_system:log.meta, topic logs.user-v2; "d" is 100, "e" is 101.
        (b"\0\0\0dlogs.user-v2\0\0\0\0", 100, 0, b"\0\0\x01XKW\xa1\xe7", 1478732784103, b"\0\0\0\0\0\0\x13\xc9", 5065),
        (b"\0\0\0dlogs.user-v2\0\0\0\x08", 100, 8, b"\0\0\x01XK\r9(", 1478727907624, b"\0\0\0\0\0\0P\x1e", 20510),
        (b"\0\0\0dlogs.user-v2\0\0\0\x09", 100, 9, b"\0\0\x01XJ\xc7\xaf\x09", 1478723350281, b"\0\0\0\0\0\0\0\x06", 6),
        (b"\0\0\0elogs.user-v2\0\0\0\x01", 101, 1, NEVER, None, NEVER, -1),
    ],
)
def test_a_dumped_row_of_the_log_saver_is_read_and_written_to_the_byte(
    row, prefix, partition, latest, time, next_offset, offset
):
    key = TopicPartition("logs.user-v2", partition)
    assert LogSaver(prefix).row_key(key) == row
    assert LogSaver(prefix).parse_key(row) == key
    assert LogSaver(201 - prefix).parse_key(row) is None
    stored = LogSaver(prefix).read(cells(maxEventTime=latest, nextOffset=next_offset))
    anchor = None if time is None else Anchor(timestamp_ms=time, names=Names.MAX_TIME)
    assert stored == StoredOffset(offset, anchor, 1478732791857)
    assert log_saver_cells(stored, None) == {b"d:nextOffset": next_offset, b"d:maxEventTime": latest}


def log_saver_cells(stored: StoredOffset, latest_ms: int | None) -> dict[bytes, bytes]:
    """The cells that replace a row with this largest event time."""
    current = {} if latest_ms is None else cells(maxEventTime=cdap.long(latest_ms))
    return LogSaver(100).new_cells([NewRow(KEY, stored, current)])[KEY]


def test_a_correction_never_makes_the_largest_event_time_smaller():
    corrected = StoredOffset(7, Anchor(offset=6, timestamp_ms=500))
    assert log_saver_cells(corrected, 900)[cdap.MAX_EVENT_TIME] == cdap.long(900)
    assert log_saver_cells(corrected, 400)[cdap.MAX_EVENT_TIME] == cdap.long(500)
    assert log_saver_cells(corrected, None)[cdap.MAX_EVENT_TIME] == cdap.long(500)
    assert log_saver_cells(StoredOffset(7), 900)[cdap.MAX_EVENT_TIME] == cdap.long(900)
    ahead = StoredOffset(7, Anchor(timestamp_ms=950, names=Names.NEXT))
    assert log_saver_cells(ahead, 900)[cdap.MAX_EVENT_TIME] == cdap.long(900), "it names a record not processed yet"


def test_a_sentinel_is_written_as_nothing_yet():
    assert log_saver_cells(StoredOffset(-1), None) == {b"d:nextOffset": NEVER, b"d:maxEventTime": NEVER}


# ---------------------------------------------------------------- metrics processor


@pytest.mark.parametrize(
    ("row", "partition", "value", "offset"),
    [
        (b"metrics.00", 0, b"\0\0\0\0\0\0YQ", 22865),
        (b"metrics.01", 1, b"\0\0\0\0\0\x06\xf6)", 456233),
        (b"metrics.02", 2, b"\0\0\0\0\0\0'\xa6", 10150),
        (b"metrics.08", 8, b"\0\0\0\0\0\0*\xfd", 11005),
        (b"metrics.09", 9, b"\0\0\0\0\0\x01:\x0d", 80397),
    ],
)
def test_a_dumped_row_of_the_metrics_processor_is_read_and_written_to_the_byte(row, partition, value, offset):
    key = TopicPartition("metrics", partition)
    assert METRICS.row_key(key) == row
    assert METRICS.parse_key(row) == key
    stored = METRICS.read(cells(1478732942360, o=value))
    assert stored == StoredOffset(offset, None, 1478732942360)
    assert metrics_cells(stored) == {b"d:o": value}


def metrics_cells(stored: StoredOffset) -> dict[bytes, bytes]:
    return METRICS.new_cells([NewRow(KEY, stored, {})])[KEY]


def test_partitions_from_100_on_have_as_many_digits_as_they_need():
    rows = [METRICS.row_key(TopicPartition("m", n)) for n in (7, 99, 100, 12345)]
    assert rows == [b"m.07", b"m.99", b"m.100", b"m.12345"]


@pytest.mark.parametrize("row", [b"m.7", b"m.007", b"m", b".07", b"m.", b"m.-1", b"m.99999999999", b"\xff.07", b""])
def test_other_keys_are_no_rows_of_the_metrics_processor(row):
    assert METRICS.parse_key(row) is None


# ---------------------------------------------------------------- flowlet


@given(INT64, INT64)
def test_a_flowlets_value_is_its_offset_and_the_id_of_the_record_at_it(offset, number):
    written = {b"d:c": cdap.long(offset) + cdap.long(number)}
    assert offset < 0 or written == flowlet_cells(offset, number)
    stored = FLOWLET.read(cells(c=written[b"d:c"]))
    assert stored.offset == offset
    assert flowlet.message_id_of(stored.anchor) == (number if offset >= 0 else None)
    assert offset < 0 or stored.anchor == Anchor(offset=offset, id=b"%d" % number, names=Names.NEXT)


def test_an_old_row_of_a_flowlet_is_the_offset_alone():
    assert FLOWLET.read(cells(5, c=cdap.long(300))) == StoredOffset(300, None, 5)
    assert flowlet_cells(300, None) == {b"d:c": cdap.long(300)}


def flowlet_cells(offset: int, message_id: int | None) -> dict[bytes, bytes]:
    """The cells of a row at whose offset the log has a record with this id, or no record."""
    anchor = None if message_id is None else Anchor(offset=offset, id=b"%d" % message_id, names=Names.NEXT)
    return FLOWLET.new_cells([NewRow(KEY, StoredOffset(offset, anchor), {})])[KEY]


@pytest.mark.parametrize("id_bytes", [None, b"", b"x", b"01", b"+1", b" 1", b"1.0", b"9223372036854775808", b"\xff"])
def test_an_id_that_is_no_number_of_8_bytes_is_no_message_id(id_bytes):
    assert flowlet.as_message_id(id_bytes) is None


# ---------------------------------------------------------------- anything


@given(TOPICS, PARTITIONS, st.binary(max_size=40))
def test_a_key_reads_back_and_a_parsed_key_is_the_key_that_would_be_made(topic, partition, row):
    key = TopicPartition(topic, partition)
    for layout in (LogSaver(100), METRICS, FLOWLET):
        assert layout.parse_key(layout.row_key(key)) == key
        assert layout.row_key(key).startswith(layout.key_prefix(topic))
        found = layout.parse_key(row)
        assert found is None or layout.row_key(found) == row


@pytest.mark.parametrize(
    ("stamp", "written_at_ms"), [(1478732942360, 1478732942360), (TRANSACTION, 1478732791857), (0, 0), (1, 1)]
)
def test_a_cells_timestamp_is_the_servers_time_or_a_transactions_number(stamp, written_at_ms):
    assert cdap.written_at_ms(stamp) == written_at_ms


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
ANCHORS = st.builds(
    Anchor,
    offset=st.none() | st.integers(0, 2**63 - 1),
    timestamp_ms=INT64,
    id=st.none() | st.binary(max_size=20),
    fingerprint=st.none() | st.binary(max_size=5).map(lambda value: fingerprint(None, value)),
    cluster_id=st.none() | NAMES,
    topic_id=st.none() | NAMES,
    names=st.sampled_from(Names),
)
STORED = st.builds(StoredOffset, INT64, st.none() | ANCHORS, st.none() | INT64)


GROUPS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
TRICKY = st.sampled_from(["g", "g1", "g10", "g:1", "g:14", "g:0", "g:1497628830000", ":", "1497628830000", "ü"])
TIMES = st.integers(0, cloudera.MAX_EPOCH_MS)


@pytest.mark.parametrize(
    ("row", "topic", "group", "epoch_ms", "text"),
    [
        (b"kafkablog2:groupid-1:1497628830000", "kafkablog2", "groupid-1", 1497628830000, b"285"),
        (b"kafkablog2:groupid-1:1497628770000", "kafkablog2", "groupid-1", 1497628770000, b"225"),
        (b"kafkablog1:groupid-2:1497628650000", "kafkablog1", "groupid-2", 1497628650000, b"165"),
        (b"kafkablog1:groupid-1:1497628530000", "kafkablog1", "groupid-1", 1497628530000, b"120"),
    ],
)
def test_a_dumped_row_is_read_and_written_to_the_byte(row, topic, group, epoch_ms, text):
    assert cloudera.row_key(topic, group, epoch_ms) == row
    assert cloudera.epoch_of(row, cloudera.key_prefix(topic, group)) == epoch_ms
    assert cloudera.topic_of(row) == topic
    dumped = {b"offsets:0": text, b"offsets:1": text, b"offsets:2": text}
    assert cloudera.offset_texts(dumped) == dict.fromkeys(range(3), text)
    assert [cloudera.offset_of(column, value) for column, value in dumped.items()] == [int(text)] * 3
    assert cloudera.dense(dict.fromkeys(range(3), text)) == dumped


@given(st.lists(st.tuples(TRICKY | GROUPS, TIMES), min_size=1, max_size=12), TRICKY | GROUPS)
def test_a_backward_scan_finds_exactly_the_groups_rows(rows, group):
    """A table in memory, scanned backwards as HBase does: it finds each row of the group, the latest first."""
    table = sorted({cloudera.row_key("t", name, time) for name, time in rows})
    prefix, met = cloudera.key_prefix("t", group), []
    start, passed = cloudera.from_latest(prefix), b""
    for _ in range(10 * len(table) + 10):
        row = next((key for key in reversed(table) if prefix < key <= start and key != passed), None)
        if row is None:
            break
        passed, epoch_ms = row, cloudera.epoch_of(row, prefix)
        start = row if epoch_ms is not None else cloudera.before_others(row, prefix)
        assert start <= row
        met += [epoch_ms] if epoch_ms is not None else []
    else:
        pytest.fail("the scan does not end")
    assert met == sorted({time for name, time in rows if name == group}, reverse=True)


@given(st.binary(max_size=40), GROUPS)
def test_a_parsed_key_is_the_key_that_would_be_made(row, group):
    prefix = cloudera.key_prefix("t", group)
    epoch_ms = cloudera.epoch_of(row, prefix)
    assert epoch_ms is None or cloudera.row_key("t", group, epoch_ms) == row
    topic = cloudera.topic_of(row)
    assert topic is None or cloudera.is_topic(topic)


@pytest.mark.parametrize("epoch_ms", [-1, 10**13])
def test_a_time_without_13_digits_would_not_sort(epoch_ms):
    with pytest.raises(ValueError, match="13 digits"):
        cloudera.row_key("t", "g", epoch_ms)


@pytest.mark.parametrize("name", ["", "a:b", "a b", "!", "ü", "a" * 250, "a/b", "a\n"])
def test_names_that_kafka_does_not_allow_are_not_topics(name):
    assert not cloudera.is_topic(name)


def test_a_row_is_dense_since_its_reader_counts_the_cells():
    row = cloudera.dense({0: b"7", 3: b"9"})
    assert row == {b"offsets:0": b"7", b"offsets:1": b"00", b"offsets:2": b"00", b"offsets:3": b"9"}
    assert cloudera.offset_texts(row) == {0: b"7", 3: b"9"}
    assert cloudera.offset_of(b"offsets:1", b"00") is None
    assert cloudera.offset_of(b"offsets:1", b"0") == 0
    assert cloudera.dense({}) == {}


@pytest.mark.parametrize("value", [b"", b"x", b"1.5", b"9223372036854775808", b"\xff\xff", b"1e3"])
def test_a_value_that_is_no_offset_is_refused_with_its_column(value):
    with pytest.raises(cloudera.NotAnOffset, match="column offsets:3"):
        cloudera.offset_of(b"offsets:3", value)


@pytest.mark.parametrize(
    "column", [b"offsets:-1", b"offsets:01", b"offsets:x", b"other:1", b"offsets:4294967296", b"1"]
)
def test_other_columns_are_ignored(column):
    assert cloudera.partition_of(column) is None
    assert cloudera.offset_texts({column: b"5"}) == {}
