"""This product's own row in HBase: it reads back, and garbage is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import Anchor, Names, StoredOffset, TopicPartition, fingerprint
from reconciler.core.json_fields import FieldError
from reconciler.places.hbase import anchored
from reconciler.places.hbase.anchored import RowChange

INT64 = st.integers(-(2**63), 2**63 - 1)
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


@given(NAMES, NAMES, st.integers(0, 2**31 - 1))
def test_a_key_reads_back(group, topic, partition):
    row = anchored.row_key(group, topic, partition)
    assert anchored.parse_row_key(row) == (group, TopicPartition(topic, partition))
    assert row.startswith(anchored.key_prefix(group, topic))
    assert row.startswith(anchored.key_prefix(group))


def test_names_with_slashes_and_signs_have_different_keys():
    rows = {anchored.row_key(*names, 0) for names in (("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("a", "b%2Fc"))}
    assert len(rows) == 4
    assert anchored.row_key("clicks", "a.events", 3) == b"clicks/a.events/0000000003"
    assert anchored.row_key("gé", "t", 3) == b"g%C3%A9/t/0000000003"


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"a/b",
        b"a/b/3",
        b"a/b/000000000x",
        b"a/%ff/0000000003",
        b"a/b/c/0000000003",
        b"a b/c/0000000003",
        b"a/b/" + b"9" * 5000,
    ],
)
def test_other_keys_are_not_parsed(row):
    assert anchored.parse_row_key(row) is None


@given(st.builds(RowChange, INT64, STORED, NAMES, INT64, st.none() | st.integers(1, 99)))
def test_a_cell_reads_back(entry):
    value = anchored.encode(entry, "nonce")
    assert anchored.decode(value) == entry
    assert value.isascii()
    assert value != anchored.encode(entry, "another")


@pytest.mark.parametrize(
    "change",
    [{"anchor": 5}, {"offset": "1"}, {"change": None}, {"offset": None}, {"at_ms": "x"}, {"anchor": {"offset": []}}],
)
def test_a_cell_with_a_wrong_field_names_it(change):
    content = json.loads(anchored.encode(RowChange(1, StoredOffset(5), "why", 7), "n")) | change
    with pytest.raises(FieldError) as caught:
        anchored.decode(json.dumps(content).encode())
    assert caught.value.field in {*change, "offset"}
