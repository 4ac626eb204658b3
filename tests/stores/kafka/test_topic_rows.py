"""Rows of a compacted topic: keys that compaction can compare, values, and invalid bytes."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import Anchor, Names, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError
from reconciler.formats.json_fields import FieldError
from reconciler.stores.kafka import topic_rows
from reconciler.stores.kafka.topic_rows import RowName, Value

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
ROW_NAMES = st.builds(RowName, NAMES, NAMES, st.integers(0, 2**31 - 1))
INT64 = st.integers(-(2**63), 2**63 - 1)
ANCHORS = st.builds(
    Anchor,
    offset=st.none() | st.integers(0, 2**63 - 1),
    timestamp_ms=INT64,
    id=st.none() | st.binary(max_size=300),
    fingerprint=st.none() | st.binary(max_size=8).map(lambda value: fingerprint(None, value)),
    cluster_id=st.none() | NAMES,
    topic_id=st.none() | NAMES,
    names=st.sampled_from(Names),
)
STORED = st.builds(StoredOffset, INT64, st.none() | ANCHORS, st.none() | INT64)


@given(ROW_NAMES, ROW_NAMES)
def test_a_key_names_one_row_and_reads_back(one, other):
    key = topic_rows.encode_key(one)
    assert topic_rows.decode_key(key) == one
    assert (key == topic_rows.encode_key(other)) == (one == other)
    assert key.startswith(topic_rows.group_begins(other.group)) == (one.group == other.group)
    assert topic_rows.is_ours(key)
    assert key.isascii()


@given(STORED)
def test_a_value_reads_back(stored):
    assert topic_rows.decode_value(topic_rows.encode_value(stored).encode()) == Value(stored)


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_read_or_refused_with_a_message(data):
    for decode in (topic_rows.decode_key, topic_rows.decode_value):
        with pytest.raises(FieldError):
            decode(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("vswadotifcpnx"), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from("vswad"), JSON), JSON)
def test_values_of_the_right_shape_and_wrong_types_are_read_or_refused_with_a_message(content, any_json):
    for tried in (content, {"v": 1, **content}, {"v": 1, "s": 1, "a": any_json}, any_json):
        with suppress(FieldError):
            topic_rows.decode_value(json.dumps(tried).encode())


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (b'["reconciler.rows/1","clicks","events",0]', RowName("clicks", "events", 0)),
        (b'["reconciler.rows/1","a\\"],[","\\u4e3b",2147483647]', RowName('a"],[', "主", 2147483647)),
    ],
)
def test_keys_are_encoded_to_the_byte(key, name):
    assert topic_rows.encode_key(name) == key
    assert topic_rows.decode_key(key) == name


@pytest.mark.parametrize(
    "key",
    [
        b'["reconciler.rows/1", "clicks","events",0]',
        b'["reconciler.rows/1","clicks","events",0] ',
        b'["reconciler.rows/1","clicks","events",-1]',
        b'["reconciler.rows/1","clicks","events",true]',
        b'["reconciler.rows/1","clicks","events",1e0]',
        b'["reconciler.rows/1","clicks","events"]',
        b'["reconciler.rows/1","","events",0]',
        b'["reconciler.rows/2","clicks","events",0]',
        '["reconciler.rows/1","clicks","主",0]'.encode(),
        b"[" * 100_000,
    ],
)
def test_keys_written_in_another_way_are_no_keys(key):
    with pytest.raises(FieldError):
        topic_rows.decode_key(key)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (b'{"v":1,"s":42}', StoredOffset(42)),
        (b'{"v":1,"s":-2,"w":5}', StoredOffset(-2, None, 5)),
        (b'{"v":1,"s":42,"a":{}}', StoredOffset(42, Anchor())),
        (b'{"v":1,"s":42,"a":{"t":5,"n":"max-time"}}', StoredOffset(42, Anchor(None, 5, names=Names.MAX_TIME))),
    ],
)
def test_values_are_read_and_written_to_the_byte(value, stored):
    assert topic_rows.encode_value(stored).encode() == value
    assert topic_rows.decode_value(value) == Value(stored)


def test_a_deleted_row_keeps_only_its_time():
    assert topic_rows.encode_deleted(7) == '{"v":1,"d":7}'
    assert topic_rows.decode_value(b'{"v":1,"d":7}') == Value(None, 7)
    assert [Value(None, 7).written_at_ms, Value(StoredOffset(1)).written_at_ms] == [7, -1]


def test_a_later_writer_may_add_fields():
    assert topic_rows.decode_value(b'{"v":1,"s":3,"zz":[],"a":{"o":2,"q":{}}}') == Value(StoredOffset(3, Anchor(2)))


def test_an_id_too_long_is_left_out_and_impossible_ids_are_refused():
    anchor = Anchor(8, 1, b"k" * topic_rows.MAX_BYTES, fingerprint(b"k", b""))
    text = topic_rows.encode_value(StoredOffset(9, anchor))
    assert len(text) <= topic_rows.MAX_BYTES
    found = topic_rows.decode_value(text.encode()).stored.anchor
    assert (found.id, found.fingerprint) == (None, anchor.fingerprint)
    with pytest.raises(ConfigError, match="does not fit"):
        topic_rows.encode_value(StoredOffset(9, Anchor(cluster_id="c" * topic_rows.MAX_BYTES)))


@pytest.mark.parametrize("text", [None, "", "no JSON", '{"v":1,"s":9}', '{"v":1,"s":7,"a":{"o":14}}', '{"v":1,"d":5}'])
def test_a_text_is_restored_only_if_it_says_what_the_row_does(text: str | None) -> None:
    """It comes from a snapshot, which anyone who may write to a plan's folder can edit."""
    row = StoredOffset(7, Anchor(offset=6), 5)
    assert topic_rows.decode_value(topic_rows.restored_text(text, row).encode()) == Value(row, None)
    whole = '{"v": 1, "s": 7, "w": 5, "a": {"o": 6}}'
    assert topic_rows.restored_text(whole, row) == whole
