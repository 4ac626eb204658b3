"""How the numbers that records carry are written, as several records of a partition tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.mirror_pairs import MirrorEvidence
from reconciler.core.unanchored.spelling import reader_of
from reconciler.core.verdicts import Finding, Verdict
from reconciler.identity import identity_from_spec
from reconciler.kafka.memory import MemoryRecord
from tests.core.stories import Rec, anchor_of, ask, log_of

BY_HEADER = identity_from_spec(source_offset="header:o")
BIG, LITTLE = "big", "little"
WRITINGS: dict[str, Callable[[int], bytes]] = {
    "text": lambda number: b"%d" % number,
    "text in quotes": lambda number: b'"%d"' % number,
    "8 bytes, big-endian": lambda number: number.to_bytes(8, "big"),
    "8 bytes, little-endian": lambda number: number.to_bytes(8, "little"),
    "4 bytes, big-endian": lambda number: number.to_bytes(4, "big"),
    "4 bytes, little-endian": lambda number: number.to_bytes(4, "little"),
}
BEGINS = (0, 7, 250, 65_530, 2**24 - 3, 2**31 + 5)
"""Numbers whose bytes overflow in the middle of what is read, or which are plausible in either order."""


def records(*values: bytes | None) -> list[MemoryRecord]:
    return [
        MemoryRecord(at, 100 + at, b"k", b"v", headers=() if value is None else (("o", value),))
        for at, value in enumerate(values)
    ]


def read(*values: bytes | None) -> list[int | None] | str:
    found = reader_of(BY_HEADER, records(*values))
    return found if isinstance(found, str) else [found(record) for record in records(*values)]


@pytest.mark.parametrize("writing", WRITINGS)
@pytest.mark.parametrize("begin", BEGINS)
def test_numbers_that_grow_show_how_they_are_written(writing: str, begin: int) -> None:
    numbers = [*range(begin, begin + 20), *range(begin + 5, begin + 30, 2)]
    assert read(*map(WRITINGS[writing], numbers)) == numbers


def test_a_record_without_the_header_or_with_another_value_in_it_has_no_number() -> None:
    eight = WRITINGS["8 bytes, little-endian"]
    numbers = list(range(500, 510))
    values = [*map(eight, numbers), None, b"x", b"\xff" * 8]
    assert read(*values) == [*numbers, None, None, None]


def test_digits_are_text() -> None:
    assert read(b"12345678", b"12345679") == [12_345_678, 12_345_679]
    assert read(b"1234") == [1234]


def test_one_number_is_read_only_if_the_other_order_gives_no_offset() -> None:
    assert read(b"\0\0\0\0\0\0\x11\xa2") == [4514]
    assert read(b"\xa2\x11\0\0\0\0\0\0") == [4514]
    assert read(b"\0" * 8) == [0]
    assert read(b"\0\0\x11\xa2") == (
        'the header "o" of record 0 holds 4 bytes (00 00 11 a2), and too few records show the order of its bytes'
    )


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([None, None], 'none of the 2 records read has the header "o"'),
        ([None, b"12345"[:3] + b"\0\1"], 'the header "o" of record 1 holds 5 bytes (31 32 33 00 01), which is neither'),
        ([b"-1"], 'the header "o" of record 0 holds 2 bytes (2d 31), which is neither decimal text nor 4 or 8 bytes'),
        ([b"x" * 20], "holds 20 bytes (78 78 78 78 78 78 78 78 …)"),
        ([b"\xff" * 8], "holds 8 bytes (ff ff ff ff ff ff ff ff)"),
        ([b""], "holds 0 bytes"),
        ([b"3"] * 8, 'the header "o" holds 3 in all of the 8 records read, so it is no offset'),
    ],
)
def test_what_cannot_be_read_is_named(values: list[bytes | None], why: str) -> None:
    found = read(*values)
    assert isinstance(found, str)
    assert why in found


def test_numbers_in_a_json_value_are_numbers_or_decimal_text() -> None:
    by_value = identity_from_spec(source_offset="json:$.o")

    def first(value: bytes) -> int | str | None:
        held = MemoryRecord(0, 100, None, value)
        found = reader_of(by_value, [held])
        return found if isinstance(found, str) else found(held)

    assert (first(b'{"o": 17}'), first(b'{"o": "17"}')) == (17, 17)
    assert [isinstance(first(b'{"o": %s}' % value), str) for value in (b"true", b"1.5", b"null")] == [True] * 3
    assert "a value at $.o of record 0 holds 1.5" in str(first(b'{"o": 1.5}'))


# ---------------------------------------------------------------- in a check


def carrying(*values: bytes | None) -> list[Rec]:
    return [
        Rec(f"r{at}", 100 + at, headers=() if value is None else (("o", value),)) for at, value in enumerate(values)
    ]


def by_number(stored: int, *values: bytes | None) -> Finding:
    return ask(log_of(*carrying(*values)), StoredOffset(stored), BY_HEADER, mirror=MirrorEvidence(stored))


@pytest.mark.parametrize("writing", WRITINGS)
def test_a_bare_offset_is_found_however_its_number_is_written(writing: str) -> None:
    found = by_number(200, *map(WRITINGS[writing], range(40, 300)))
    assert (found.verdict, found.resume_offset, found.replay_at_most) == (Verdict.MOVED, 160, 0)


def test_a_header_that_cannot_be_read_is_named_in_the_finding_and_nothing_is_lost() -> None:
    found = by_number(200, *(b"%d!" % number for number in range(40, 300)))
    assert found.verdict is Verdict.UNRESOLVED
    assert 'the header "o" of record 0 holds 3 bytes (34 30 21), which is neither' in found.detail
    assert 'none of the 3 records read has the header "o"' in by_number(200, None, None, None).detail


def test_an_anchor_is_compared_with_the_number_as_it_is_written() -> None:
    log = log_of(*carrying(*map(WRITINGS["8 bytes, little-endian"], range(40, 60))))
    anchor = anchor_of(carrying(*[None] * 11)[10], BY_HEADER, 50)
    assert ask(log, anchor, BY_HEADER).verdict is Verdict.MOVED
    other = anchor_of(carrying(*[None] * 11)[10], BY_HEADER, 51)
    assert "carries the source's offset 50 instead of 51" in ask(log, other, BY_HEADER).detail
