"""Cloudera's rows: a dump of a real table is read right, groups with common prefixes stay apart, a row is dense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.places.hbase import cloudera

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
