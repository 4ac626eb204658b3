"""Offsets in ZooKeeper, byte for byte: other programs' text is read right, and edits keep the rest of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.text import NotDecimal, offset_of, partition_of
from reconciler.places.zookeeper.layouts import Consumers, NotAListing, Single, edit_listing, parse_listing, problem_of

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
    assert offset_of(data) == offset


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
        offset_of(data)


@pytest.mark.parametrize(
    ("name", "partition"),
    [("0", 0), ("18", 18), ("2147483647", 2**31 - 1), ("2147483648", None), ("07", None), ("-1", None), ("x", None)],
)
def test_a_partition_is_its_plain_number(name, partition):
    assert partition_of(name) == partition


# ---------------------------------------------------------------- paths


def test_the_paths_are_those_of_kafkas_old_consumers():
    at = Consumers("/kafka", "spark-consumer")
    assert at.offset("beacon_raw-bb17", 18) == "/kafka/consumers/spark-consumer/offsets/beacon_raw-bb17/18"
    assert Consumers("", "g").offset("t", 0) == "/consumers/g/offsets/t/0"


def test_a_topic_has_one_znode_in_layout_single():
    assert Single("/offsets").offset("t", 3) == Single("/offsets").offset("t", 0) == "/offsets/t"
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
    assert {number: entry.offset for number, entry in parse_listing(text.encode()).items()} == offsets


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"0", "is not a list of PARTITION:OFFSET"),
        (b"0:", "is not a list of PARTITION:OFFSET"),
        (b":5", "is not a list of PARTITION:OFFSET"),
        (b"0:1;1:2", "is not a list of PARTITION:OFFSET"),
        (b"0:1 1:2", "is not a list of PARTITION:OFFSET"),
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
        parse_listing(text)


@pytest.mark.parametrize(
    ("before", "partition", "offset", "after"),
    [
        ("0:5,1:6", 1, 77, "0:5,1:77"),
        ("0 : 5 , 1 : 6\n", 0, 77, "0 : 77 , 1 : 6\n"),
        ("0:5,1:6", 2, 7, "0:5,1:6,2:7"),
        ("0:5, 1:6,\n", 2, 7, "0:5, 1:6,2:7,\n"),
        ("0: 5", 1, 7, "0: 5,1:7"),
        ("00:5", 0, 7, "00:7"),
        ("00:5", 1, 7, "00:5,1:7"),
        ("", 3, 7, "3:7"),
        ("\n", 3, 7, "3:7\n"),
    ],
)
def test_an_edit_keeps_the_form_of_the_rest(before, partition, offset, after):
    assert edit_listing(before, {partition: offset}) == after


SPACES = st.sampled_from(["", " ", "  ", "\t", "\n"])


@st.composite
def listings(draw: st.DrawFn) -> str:
    numbers = draw(st.lists(PARTITIONS, unique=True, max_size=6))
    parts = [f"{n}{draw(SPACES)}:{draw(SPACES)}{draw(INT64)}" for n in numbers]
    separator = draw(SPACES) + "," + draw(SPACES)
    return draw(SPACES) + separator.join(parts) + draw(st.sampled_from(["", ",", "\n", ", \n"]))


@given(listings(), PARTITIONS, INT64)
def test_an_edit_changes_one_entry_alone(text, partition, offset):
    before, after = parse_listing(text.encode()), parse_listing(edit_listing(text, {partition: offset}).encode())
    assert after.pop(partition).offset == offset
    before.pop(partition, None)
    assert after == before
