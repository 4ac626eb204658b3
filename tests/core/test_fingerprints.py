"""The fingerprint's layout is a contract: these vectors are built byte by byte, without the product's code."""

from __future__ import annotations

import hashlib
import struct

import pytest

from reconciler.core.anchors import Anchor, Names, fingerprint, order_key

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
