"""CDAP's rows: dumps of real tables are read right, written rows have CDAP's format, and garbage is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import Anchor, Names, StoredOffset, TopicPartition
from reconciler.places.hbase import cdap, flowlet
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
