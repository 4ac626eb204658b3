"""Offsets in ZooKeeper, byte for byte: other programs' text is read right, edits keep the rest of it, and no offset
gets another's anchor."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import UNKNOWN_PARTITION, Anchor, Names, StoredOffset, fingerprint
from reconciler.formats import decimal_text
from reconciler.formats.decimal_text import NotDecimal
from reconciler.stores.zookeeper import anchor_node, single_text
from reconciler.stores.zookeeper.anchor_node import AnchorNode, Znode
from reconciler.stores.zookeeper.layouts import Consumers, Single, problem_of
from reconciler.stores.zookeeper.single_text import NotAListing, parse, parse_entry

INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.integers(0, 2**31 - 1)

# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"430497589", 430497589),  # from the table of Kafka's offset checker
        (b"424068412", 424068412),
        (b"0", 0),
        (b"-1", -1),
        (b"+17", 17),
        (b"0042", 42),
        (b" 12\r\n", 12),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        ("285", 285),
    ],
)
def test_an_offset_is_decimal_text(data, offset):
    assert decimal_text.offset_of(data) == offset


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xff", "is not text"),
        (b"\x00\x00\x00\x00\x00\x00\x01\x1d", "is not a whole number"),
        (b"12.0", "is not a whole number"),
        (b"1 2", "is not a whole number"),
        (b"0x11", "is not a whole number"),
        (b'{"offset":3}', "is not a whole number"),
        ("١٢", "is not a whole number"),
        (b"9223372036854775808", "does not fit"),
        (b"9" * 41, "is not a whole number"),
    ],
)
def test_other_text_is_refused_with_a_reason(data, problem):
    with pytest.raises(NotDecimal, match=problem):
        decimal_text.offset_of(data)


@pytest.mark.parametrize(
    ("name", "partition"),
    [("0", 0), ("18", 18), ("2147483647", 2**31 - 1), ("2147483648", None), ("07", None), ("-1", None), ("x", None)],
)
def test_a_partition_is_its_plain_number(name, partition):
    assert decimal_text.partition_of(name) == partition


# ---------------------------------------------------------------- paths


def test_the_paths_are_those_of_kafkas_old_consumers():
    at = Consumers("/kafka", "spark-consumer")
    assert at.offset("beacon_raw-bb17", 18) == "/kafka/consumers/spark-consumer/offsets/beacon_raw-bb17/18"
    assert at.anchor("beacon_raw-bb17", 18) == "/kafka/consumers/spark-consumer/anchors/beacon_raw-bb17/18"
    assert Consumers("", "g").offset("t", 0) == "/consumers/g/offsets/t/0"


def test_a_topic_has_one_znode_in_layout_single():
    assert Single("/offsets").offset("t", 3) == Single("/offsets").offset("t", 0) == "/offsets/t"
    assert Single("/offsets").anchor("t", 3) == "/offsets/~anchors/t/3"
    assert (Single("").base, Single("").offset("t", 0)) == ("/", "/t")


@pytest.mark.parametrize("name", ["a/b", "", ".", "..", "a\nb", "a\x7fb", "\ue000", "\ufffe", "😀", "/"])
def test_names_that_zookeeper_would_refuse_have_a_problem(name):
    assert problem_of(name)


@pytest.mark.parametrize("name", ["events", "a.events", "gé 日本", "a b", "'; DROP TABLE--", "%s?#", "g:1", "...", "~"])
def test_all_other_names_have_no_problem(name):
    assert problem_of(name) is None


# ---------------------------------------------------------------- one text a topic


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("0:430497589,1:424068412,2:429174880", {0: 430497589, 1: 424068412, 2: 429174880}),
        ("18:432487688,2:429174880,19:424975641", {18: 432487688, 2: 429174880, 19: 424975641}),
        ("0:5", {0: 5}),
        ("0:5,", {0: 5}),
        (" 0 : 5 ,\t1:6\n", {0: 5, 1: 6}),
        ("0:5,,1:6,\r\n", {0: 5, 1: 6}),
        ("0:-1,1:+7,02:8", {0: -1, 1: 7, 2: 8}),
        ("", {}),
        (" \n", {}),
    ],
)
def test_a_listing_may_have_any_spacing_and_order(text, offsets):
    listing = parse(text.encode())
    assert {entry.partition: entry.offset for entry in listing.entries} == offsets
    assert listing.text == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"0", "is not a list of PARTITION:OFFSET"),
        (b"0:", "is not a list of PARTITION:OFFSET"),
        (b":5", "is not a list of PARTITION:OFFSET"),
        (b"0:1;1:2", "goes on without a comma after partition 0|is not a list"),
        (b"0:1 1:2", "goes on without a comma after partition 0"),
        (b"0:1,0:2", "names partition 0 twice"),
        (b"2147483648:1", "which Kafka cannot have"),
        (b"0:9223372036854775808", "does not fit into 64 bits"),
        (b'{"0":5}', "is not a list of PARTITION:OFFSET"),
        (b"-1:5", "is not a list of PARTITION:OFFSET"),
        (b"\xff", "is not text"),
    ],
)
def test_other_text_is_no_listing(text, problem):
    with pytest.raises(NotAListing, match=problem):
        parse(text)


@pytest.mark.parametrize(
    ("before", "partition", "offset", "after"),
    [
        ("0:5,1:6", 1, 77, "0:5,1:77"),
        ("0 : 5 , 1 : 6\n", 0, 77, "0 : 77 , 1 : 6\n"),
        ("0:5,1:6", 2, 7, "0:5,1:6,2:7"),
        ("0:5, 1:6,\n", 2, 7, "0:5, 1:6, 2:7,\n"),
        ("0: 5", 1, 7, "0: 5,1: 7"),
        ("00:5", 0, 7, "00:7"),
        ("00:5", 1, 7, "00:5,1:7"),
        ("", 3, 7, "3:7"),
        ("\n", 3, 7, "\n3:7"),
    ],
)
def test_an_edit_keeps_the_form_of_the_rest(before, partition, offset, after):
    assert parse(before).edited({partition: offset}).text == after


@pytest.mark.parametrize(
    ("before", "partition", "after"),
    [("0:5,1:6,2:7", 0, "1:6,2:7"), ("0:5, 1:6, 2:7", 1, "0:5, 2:7"), ("0:5,1:6\n", 1, "0:5\n"), ("0:5\n", 0, "\n")],
)
def test_removing_an_entry_removes_one_comma(before, partition, after):
    assert parse(before).edited({partition: None}).text == after
    assert parse(before).edited({99: None}).text == before


SPACES = st.sampled_from(["", " ", "  ", "\t", "\n"])


@st.composite
def listings(draw: st.DrawFn) -> str:
    numbers = draw(st.lists(PARTITIONS, unique=True, max_size=6))
    parts = [f"{n}{draw(SPACES)}:{draw(SPACES)}{draw(INT64)}" for n in numbers]
    separator = draw(SPACES) + "," + draw(SPACES)
    return draw(SPACES) + separator.join(parts) + draw(st.sampled_from(["", ",", "\n", ", \n"]))


@given(listings(), PARTITIONS, INT64)
def test_an_entry_added_and_removed_or_restored_leaves_no_trace(text, partition, offset):
    listing = parse(text)
    there = next((entry.text for entry in listing.entries if entry.partition == partition), None)
    edited = parse(listing.edited({partition: offset}).text)
    assert [entry.offset for entry in edited.entries if entry.partition == partition] == [offset]
    assert [e for e in edited.entries if e.partition != partition] == [
        e for e in listing.entries if e.partition != partition
    ]
    assert edited.edited({partition: None if there is None else parse_entry(there)}).text == text


def test_one_entry_is_all_of_its_text():
    assert parse_entry("3 : 5") == single_text.PartitionText(3, 5, "3 : 5")
    for text in ("3:5,", " 3:5", "3:5,4:6", ""):
        with pytest.raises(NotAListing):
            parse_entry(text)


# ---------------------------------------------------------------- the anchor beside


def znode(data: bytes = b"", *, at: int = 5, mtime_ms: int = 1000) -> Znode:
    return Znode(data, 0, 1, at, mtime_ms)


AT = Anchor(9, 5, b"i", names=Names.NEXT)
LAST = Anchor(8, 1700000000000, b"\x00id", "0" * 32, "cluster", "topic")


def test_the_anchors_format_is_fixed():
    data = anchor_node.encode(StoredOffset(9, LAST, 1700000000001), seen_zxid=77)
    assert data == (
        b'{"v":1,"w":1700000000001,"a":{"o":8,"t":1700000000000,"i":"AGlk",'
        b'"f":"00000000000000000000000000000000","c":"cluster","p":"topic"},"s":9,"z":77}'
    )
    assert anchor_node.decode(data) == AnchorNode(LAST, 1700000000001, 9, 77)


@given(INT64, st.none() | st.integers(0, 2**63 - 1), st.none() | INT64, st.binary(max_size=40), st.sampled_from(Names))
def test_every_anchor_reads_back(offset, seen, written, id_bytes, names):
    anchor = Anchor(max(offset, 0), 7, id_bytes, fingerprint(None, id_bytes), "c", "t", names)
    data = anchor_node.encode(StoredOffset(offset, anchor, written), seen_zxid=seen)
    assert anchor_node.decode(data) == AnchorNode(anchor, written, offset, seen)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no metadata"),
        (b"\xff", "does not hold text"),
        (b"17", "is not a JSON object"),
        (b'{"v":2,"s":5}', "newer release"),
        (b'{"v":1,"s":"5"}', "without an anchor"),
        (b'{"v":1,"a":{"o":1},"s":"5"}', "field 's' of the anchor's znode is not a whole number"),
    ],
)
def test_a_znode_without_an_anchor_has_a_reason(data, reason):
    found = anchor_node.decode(data)
    assert found.anchor is None
    assert re.search(reason, found.reason)


def read(offset, node, beside, *, shared=False):
    found = anchor_node.pair(offset, node, beside, shared=shared)
    return found.stored, found.lag


def written(stored, *, at, seen=None):
    return znode(anchor_node.encode(stored, seen_zxid=seen), at=at, mtime_ms=2000)


def test_an_offset_and_anchor_of_one_transaction_belong_together():
    stored = StoredOffset(9, LAST, 1234)
    assert read(9, znode(at=7), written(stored, at=7)) == (stored, None)


def test_an_anchor_written_beside_an_offset_belongs_to_that_very_znode():
    stored = StoredOffset(9, LAST, 1234)
    assert read(9, znode(at=7), written(stored, at=20, seen=7)) == (stored, None)
    assert read(9, znode(at=8), written(stored, at=20, seen=7)) == (StoredOffset(9, LAST, 1000), 0)


@pytest.mark.parametrize(("now", "lag"), [(9, 0), (10, 1), (509, 500), (8, -1), (3, -6)])
def test_an_offset_that_the_job_wrote_later_has_a_lagging_anchor(now, lag):
    """A lag below zero means that the two contradict each other; the caller then uses neither."""
    beside = written(StoredOffset(9, LAST, 1234), at=7)
    assert read(now, znode(at=8), beside) == (StoredOffset(now, LAST, 1000), lag)
    assert anchor_node.pair(now, znode(at=8), beside, shared=False).anchored_ms == 1234  # and not the offset's 1000


@pytest.mark.parametrize(
    "anchor",
    [
        AT,
        Anchor(None, 5, names=Names.MAX_TIME),
        Anchor(None, 5, b"id without a place"),
        None,
    ],
)
def test_an_anchor_that_cannot_lag_is_dropped_with_its_offset(anchor):
    beside = written(StoredOffset(9, anchor, 1234), at=7)
    assert read(9, znode(at=7), beside) == (StoredOffset(9, anchor, 1234), None)
    assert read(10, znode(at=8), beside) == (StoredOffset(10, None, 1000), None)


def test_a_time_stored_beside_an_offset_replaces_the_znodes_own():
    kept = written(StoredOffset(9, None, 500), at=7)
    assert read(9, znode(at=7), kept) == (StoredOffset(9, None, 500), None)
    assert read(9, znode(at=8), kept) == (StoredOffset(9, None, 1000), None)
    assert read(9, znode(at=8), None) == (StoredOffset(9, None, 1000), None)


def test_in_a_shared_znode_offset_and_anchor_belong_together_by_the_number():
    stored = StoredOffset(9, AT, 1234)
    assert read(9, znode(at=99), written(stored, at=7), shared=True) == (stored, None)
    assert read(10, znode(at=7), written(stored, at=7), shared=True) == (StoredOffset(10, None, 1000), None)


def test_the_empty_znode_of_a_deleted_row_is_no_anchor():
    assert read(9, znode(at=8), znode(b"", at=7)) == (StoredOffset(9, None, 1000), None)


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (b"", "for a job that writes bare offsets let track keep anchors"),
        (anchor_node.encode(StoredOffset(9, None, 5)), ""),
        (
            anchor_node.encode(StoredOffset(9, Anchor(9, 5, b"i", names=Names.NEXT))),
            "does not say how far it lags",
        ),
        (b"consumer-1", "is not JSON"),
        (b'{"v":2}', "newer release"),
    ],
)
def test_a_row_without_an_anchor_has_a_note_where_a_znode_is_beside_it(data, note):
    found = anchor_node.pair(10, znode(at=8), znode(data, at=7), shared=False)
    assert found.stored == StoredOffset(10, None, 1000)
    assert re.search(note or "^$", found.note)


@pytest.mark.parametrize(
    ("text", "sound", "bad"),
    [
        (b"0:5,1:x,2:7", {0: 5, 2: 7}, [1]),
        (b"0:5,1:,2:99999999999999999999", {0: 5}, [1, 2]),
        (b"0:5,1:6,1:7", {0: 5}, [1]),
        (b"0:5 1:6,2:7", {2: 7}, [UNKNOWN_PARTITION, 0]),
        (b"0:5,1:6,1", {0: 5}, [UNKNOWN_PARTITION, 1]),  # cut within 12:7, perhaps
        (b"0:5,colour=blue", {0: 5}, [UNKNOWN_PARTITION]),
        (b"0:5,99999999999:1", {0: 5}, [UNKNOWN_PARTITION]),
        (b"0:5,\xff", {0: 5}, [UNKNOWN_PARTITION]),
    ],
)
def test_damaged_entries_hide_no_sound_ones(text, sound, bad):
    entries, faulty = single_text.salvage(text)
    assert {number: entry.offset for number, entry in entries.items()} == sound
    assert faulty == bad
