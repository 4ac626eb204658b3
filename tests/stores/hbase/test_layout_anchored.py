"""This product's own row in HBase, and its companion rows beside CDAP's: they read back, and garbage is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import Anchor, Names, StoredOffset, TopicPartition, fingerprint
from reconciler.formats.json_fields import FieldError
from reconciler.stores.hbase.layouts import anchored
from reconciler.stores.hbase.layouts import cdap_companion as companion
from reconciler.stores.hbase.layouts.anchored import RowChange
from reconciler.stores.hbase.layouts.cdap_companion import Companion, CompanionState, Meaning, continued, meaning
from reconciler.stores.hbase.layouts.cells import HBaseCell

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
CELLS = st.dictionaries(
    st.sampled_from([b"d:o", b"d:t"]), st.builds(HBaseCell, st.binary(max_size=16), INT64), max_size=2
)
# ---------------------------------------------------------------- the product's own


@given(NAMES, NAMES, st.integers(0, 2**31 - 1))
def test_a_key_reads_back(group, topic, partition):
    row = anchored.row_key(group, topic, partition)
    assert anchored.parse_row_key(row) == (group, TopicPartition(topic, partition))
    assert row.startswith(anchored.prefix(group, topic))
    assert row.startswith(anchored.prefix(group))


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


@given(st.builds(RowChange, INT64, st.none() | STORED, NAMES, INT64))
def test_a_cell_reads_back(entry):
    value = anchored.encode(entry, "nonce")
    assert anchored.decode(value) == entry
    assert value.isascii()
    assert value != anchored.encode(entry, "another")


@pytest.mark.parametrize(
    "change", [{"anchor": 5}, {"offset": "1"}, {"change": None}, {"at_ms": "x"}, {"anchor": {"offset": []}}]
)
def test_a_cell_with_a_wrong_field_names_it(change):
    content = json.loads(anchored.encode(RowChange(1, StoredOffset(5), "why", 7), "n")) | change
    with pytest.raises(FieldError) as caught:
        anchored.decode(json.dumps(content).encode())
    assert caught.value.field in {*change, "offset"}


# ---------------------------------------------------------------- companions


@given(
    st.builds(CompanionState, CELLS, st.none() | STORED),
    st.lists(st.builds(CompanionState, CELLS, st.none() | STORED), max_size=2),
    st.integers(0, 2**62),
    INT64,
)
def test_a_companion_reads_back(new, others, floor, at):
    found = companion.decode(companion.encode(new, floor=floor, nonce="n", others=others), at)
    stamped = CompanionState(
        {name: HBaseCell(cell.value, max(floor, at)) for name, cell in new.cells.items()}, new.stored
    )
    assert found == Companion("n", floor, at, False, (stamped, *others))
    settled = companion.decode(companion.encode_settled(found), at + 1)
    assert (settled.settled, settled.nonce, settled.states) == (True, "n", (stamped,))


def test_a_state_with_a_wrong_field_is_refused():
    good = json.loads(
        companion.encode(CompanionState({b"d:o": HBaseCell(b"5", 0)}, StoredOffset(5)), floor=0, nonce="n", others=[])
    )
    for states in (
        [5],
        [{}],
        [{"cells": {"d:o": 5}}],
        [{"cells": {"d:o": ["zz", 1]}}],
        [{"cells": {"d:o": ["00", "x"]}}],
    ):
        with pytest.raises(FieldError):
            companion.decode(json.dumps(good | {"states": states}).encode(), 0)


ANCHOR = Anchor(offset=99, timestamp_ms=900, fingerprint=fingerprint(b"k", b"v"), cluster_id="b", topic_id="t")
OURS = StoredOffset(100, ANCHOR, 5)


def beside(*, settled: bool = True, stamp: int = 50) -> Companion:
    before = CompanionState({b"d:o": HBaseCell(b"old", 10)}, StoredOffset(7, Anchor(timestamp_ms=3), 1))
    written = CompanionState({b"d:o": HBaseCell(b"new", stamp)}, OURS)
    return Companion("n", 0, stamp, settled, (written,) if settled else (written, before))


def test_a_row_in_its_written_state_has_that_states_meaning():
    legacy = StoredOffset(100, None, 50)
    for settled in (True, False):
        assert meaning(beside(settled=settled), {b"d:o": HBaseCell(b"new", 50)}, legacy) == Meaning(OURS)


def test_a_row_that_the_write_did_not_reach_keeps_its_meaning():
    cells = {b"d:o": HBaseCell(b"old", 10)}
    assert meaning(beside(settled=False), cells, StoredOffset(7)).stored.anchor == Anchor(timestamp_ms=3)


def test_the_same_value_from_another_program_has_no_anchor():
    cells = {b"d:o": HBaseCell(b"new", 51)}
    assert meaning(beside(settled=False), cells, StoredOffset(100, None, 51)) == Meaning(StoredOffset(100, None, 51))


def test_a_row_after_an_unsettled_write_has_no_anchor():
    cells = {b"d:o": HBaseCell(b"later", 60)}
    assert meaning(beside(settled=False), cells, StoredOffset(120)) == Meaning(StoredOffset(120))


def test_a_job_that_continued_counts_in_the_same_numbering():
    cells = {b"d:o": HBaseCell(b"later", 60)}
    assert meaning(beside(), cells, StoredOffset(120, None, 60)) == Meaning(StoredOffset(120, ANCHOR, 60), 20, 5)
    own = Anchor(timestamp_ms=950, names=Names.MAX_TIME)
    numbered = Anchor(timestamp_ms=950, names=Names.MAX_TIME, cluster_id="b", topic_id="t")
    assert meaning(beside(), cells, StoredOffset(120, own)) == Meaning(StoredOffset(120, numbered))


@pytest.mark.parametrize(
    "legacy",
    [
        StoredOffset(99),  # went back
        StoredOffset(-1),
        StoredOffset(120, Anchor(timestamp_ms=899, names=Names.MAX_TIME)),  # time went back
    ],
)
def test_a_job_that_went_back_gets_no_numbering(legacy):
    assert continued(OURS, legacy) == Meaning(legacy)


def test_a_bare_anchor_gives_only_the_numbering():
    bare = StoredOffset(0, Anchor(cluster_id="b", topic_id="t"))
    assert continued(bare, StoredOffset(20)) == Meaning(StoredOffset(20, Anchor(cluster_id="b", topic_id="t")))
