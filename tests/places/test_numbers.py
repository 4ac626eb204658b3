"""The meaning of a bare number: as an offset, for an offset, and which addresses leave it open."""

from __future__ import annotations

import pytest

from reconciler.core.json_fields import INT64_MAX
from reconciler.core.text import NotDecimal
from reconciler.places.hbase import cloudera
from reconciler.places.parameters import Number, is_undecided, suspicious_name
from reconciler.places.zookeeper.layouts import Consumers, Single

TABLE = "postgresql://h/db?table=t&topic=topic&partition=part&offset"


@pytest.mark.parametrize(
    ("value", "next_is", "last_is"),
    [(123, 123, 124), (0, 0, 1), (-1, -1, 0), (-2, -2, -2), (INT64_MAX - 1, INT64_MAX - 1, INT64_MAX)],
)
def test_a_number_is_the_next_offset_or_the_one_before_it(value: int, next_is: int, last_is: int) -> None:
    assert (Number.NEXT.stored(value), Number.LAST.stored(value)) == (next_is, last_is)
    assert (Number.NEXT.kept(next_is), Number.LAST.kept(last_is)) == (value, value)
    assert Number.FIRST.stored(value) == Number.FIRST.kept(value) == value


def test_a_last_number_without_a_next_one_is_no_offset() -> None:
    with pytest.raises(NotDecimal):
        Number.LAST.offset(INT64_MAX)
    with pytest.raises(ValueError, match="which Kafka cannot have"):
        Number.LAST.stored(INT64_MAX)


# ---------------------------------------------------------------- codecs


def test_a_znode_of_last_numbers_is_read_and_edited_one_below() -> None:
    layout = Consumers("/kafka", "g", Number.LAST)
    assert layout.entries(b" 0199\n", 3)[3].offset == 200
    assert layout.edited(b" 0199\n", 3, {3: 200}) == b" 0199\n"
    assert layout.edited(b"199", 3, {3: 150}) == b"149"
    assert layout.edited(None, 3, {3: 0}) == b"-1"
    assert layout.entries(b"-1", 3)[3].offset == 0


def test_a_listing_of_last_numbers_is_read_and_edited() -> None:
    layout = Single("/kafka", Number.LAST)
    text = b"0 : 0199, 1 : 7\n"
    assert {number: entry.offset for number, entry in layout.entries(text, None).items()} == {0: 200, 1: 8}
    assert layout.edited(text, None, {0: 150, 1: 8, 2: 0}) == b"0 : 149, 1 : 7,2:-1\n"


def test_a_gap_in_clouderas_rows_of_last_numbers_reads_as_nothing_processed() -> None:
    """A job that goes on after the number would skip record 0 if the gap were 0."""
    row = cloudera.dense({1: b"7"}, Number.LAST)
    assert row == {b"offsets:0": b"-01", b"offsets:1": b"7"}
    assert int(row[b"offsets:0"]) + 1 == 0
    assert cloudera.offset_texts(row, Number.LAST) == {1: b"7"}
    assert cloudera.offset_of(b"offsets:0", b"-01", Number.LAST) is None
    assert [cloudera.offset_of(b"offsets:0", text, Number.LAST) for text in (b"7", b"00", b"-1")] == [8, 1, 0]
    assert cloudera.offset_text(8, Number.LAST) == b"7"


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("address", "undecided", "suspicious"),
    [
        (f"{TABLE}=off", True, None),
        (f"{TABLE}=last_processed_offset", True, "last_processed_offset"),
        (f"{TABLE}=lastOffset", True, "lastOffset"),
        (f"{TABLE.replace('table=t', 'table=latest_offsets')}=off", True, None),
        (f"{TABLE}=last_processed_offset&number=next", False, None),
        (f"{TABLE}=last_processed_offset&number=last", False, None),
        ("postgresql://h/processed", False, None),
        ("zookeeper://h/kafka?layout=consumers", True, None),
        ("zookeeper://h/kafka?layout=consumers&number=last", False, None),
        ("hbase://h/t?layout=cloudera", True, None),
        ("hbase://h/t?layout=cdap-metrics", False, None),
        ("sqlite:///last_processed.db", False, None),
        ("kafka-group:", False, None),
        ("delta:/t?layout=columns&number=last", False, None),
    ],
)
def test_an_address_leaves_the_meaning_open_or_gives_it(address: str, undecided: bool, suspicious: str | None) -> None:
    assert (is_undecided(address), suspicious_name(address)) == (undecided, suspicious)
