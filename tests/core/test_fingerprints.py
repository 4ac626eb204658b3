"""The fingerprint's layout is a contract: these vectors are built byte by byte, without the product's code."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

import pytest

from reconciler.core.anchors import Anchor, Identity, Names, fingerprint, order_key
from reconciler.core.verdicts import Verdict
from tests.core.stories import BY_ID, Rec, anchor_of, ask, log_of
from tests.memory_log import MemoryLog

LAYOUTS = [
    (None, None, b"\x00\x00"),
    (b"", None, b"\x01" + struct.pack(">Q", 0) + b"\x00"),
    (None, b"", b"\x00\x01" + struct.pack(">Q", 0)),
    (b"", b"", b"\x01" + b"\x00" * 8 + b"\x01" + b"\x00" * 8),
    (b"k", None, b"\x01\x00\x00\x00\x00\x00\x00\x00\x01k\x00"),
    (b"k", b"v", b"\x01\x00\x00\x00\x00\x00\x00\x00\x01k\x01\x00\x00\x00\x00\x00\x00\x00\x01v"),
    (b"ab", b"c", b"\x01" + struct.pack(">Q", 2) + b"ab" + b"\x01" + struct.pack(">Q", 1) + b"c"),
    (b"a", b"bc", b"\x01" + struct.pack(">Q", 1) + b"a" + b"\x01" + struct.pack(">Q", 2) + b"bc"),
    (
        b"\x00\xff",
        b"x" * 70_000,
        b"\x01" + struct.pack(">Q", 2) + b"\x00\xff\x01" + struct.pack(">Q", 70_000) + b"x" * 70_000,
    ),
]

KNOWN = [
    (None, None, "71d0aacb690b61280d0c97c6b6a66664"),
    (b"k", b"v", "61a95fb188692f93d8a0ee5223b2369a"),
    (b"user-1", b'{"n":17}', "17ac7a742682d257afd32309157bc6c3"),
    (b"user-1", None, "bb01fee6c70c9f62658ad86d48588b44"),
]


@pytest.mark.parametrize(("key", "value", "layout"), LAYOUTS)
def test_a_fingerprint_is_16_bytes_of_blake2b_over_the_documented_layout(
    key: bytes | None, value: bytes | None, layout: bytes
) -> None:
    assert fingerprint(key, value) == hashlib.blake2b(layout, digest_size=16).hexdigest()


@pytest.mark.parametrize(("key", "value", "hex_digits"), KNOWN)
def test_known_vectors_never_change(key: bytes | None, value: bytes | None, hex_digits: str) -> None:
    assert fingerprint(key, value) == hex_digits


def test_no_two_layouts_collide() -> None:
    assert len({fingerprint(key, value) for key, value, _ in LAYOUTS}) == len(LAYOUTS)


def test_an_anchor_refuses_an_invalid_fingerprint() -> None:
    with pytest.raises(ValueError, match="32 hex digits"):
        Anchor(fingerprint="abc")


def test_a_largest_event_time_needs_a_time() -> None:
    with pytest.raises(ValueError, match="timestamp"):
        Anchor(names=Names.MAX_TIME)


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        (b"9", b"10"),
        (b"-5", b"3"),
        (b"-10", b"-9"),
        (b"99", b"a"),
        (b"a", b"b"),
        (b"a", b"ab"),
        (b"007", b"8"),
        (b"5", b"5-"),
    ],
)
def test_increasing_ids_compare_as_numbers_where_they_are_numbers(smaller: bytes, larger: bytes) -> None:
    assert order_key(smaller) < order_key(larger)


@pytest.mark.parametrize("odd", [b"", b"-", b"--5", b"\xff\xfe", b"1" * 10_000, "٣".encode()])
def test_any_id_can_be_ordered(odd: bytes) -> None:
    assert order_key(odd) == order_key(odd)
    assert order_key(b"5") < order_key(odd)


# ---------------------------------------------------------------- a schema registry's frame


def framed(schema: int, rest: bytes) -> bytes:
    return b"\0" + struct.pack(">I", schema) + rest


FRAMED = replace(BY_ID, framed=True)


def log_under(schema: int, key: bytes = b"k") -> MemoryLog:
    return log_of(*(Rec(name, 100, id=b"same", key=key, value=framed(schema, name.encode())) for name in "abcdef"))


def of_source(schema: int, identity: Identity, key: bytes = b"k") -> Anchor:
    return anchor_of(Rec("d", 100, id=b"same", key=key, value=framed(schema, b"d")), identity)


def test_a_frame_is_left_out_of_a_fingerprint_if_the_job_says_so() -> None:
    whole, content = of_source(7, BY_ID), of_source(7, FRAMED)
    assert whole.fingerprint == fingerprint(b"k", framed(7, b"d"))
    assert content.fingerprint == of_source(63, FRAMED).fingerprint == fingerprint(b"k", b"d")
    both = of_source(7, FRAMED, key=framed(9, b"k"))
    assert both.fingerprint == fingerprint(b"k", b"d")


@pytest.mark.parametrize("value", [None, b"", b"\0abc", b"text", b"\1abcd"])
def test_what_has_no_frame_is_taken_whole(value: bytes | None) -> None:
    record = Rec("x", 100, value=value, tombstone=value is None)
    assert anchor_of(record, FRAMED).fingerprint == fingerprint(None, value)


def test_a_record_is_found_under_another_schema_id() -> None:
    found = ask(log_under(63), of_source(7, FRAMED), FRAMED)
    assert (found.verdict, found.resume_offset) == (Verdict.EXACT, 4)
    again = ask(log_under(63), of_source(7, FRAMED), BY_ID)
    assert again.resume_offset == 4, "the setting decides only how anchors are recorded"
    assert ask(log_under(7), of_source(7, BY_ID), FRAMED).resume_offset == 4


def test_an_anchor_that_was_recorded_with_its_frame_is_not_trusted_under_another_schema_id() -> None:
    assert ask(log_under(63), of_source(7, BY_ID), FRAMED).verdict is not Verdict.EXACT
