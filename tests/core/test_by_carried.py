"""A bare stored offset, and records that carry the source's offset: where the job resumes, and with which detail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.config.identity import identity_from_spec
from reconciler.core.anchors import Identity, Record, StoredOffset, record_timestamp
from reconciler.core.mirrored.carried_numbers import reader_of
from reconciler.core.mirrored.pairs import MirrorEvidence
from reconciler.core.verdicts import Finding, Verdict
from tests.core.stories import BY_ID, Rec, anchor_of, ask, found, header_id, log_of
from tests.memory_log import MemoryLog, MemoryRecord


def number_of(record: Record) -> int | None:
    name = header_id(record)
    return int(name) if name else None


CARRIED = Identity(record_timestamp, source_value_of=number_of)


def numbered(*numbers: int | None) -> list[Rec]:
    return [
        Rec("local", 900, headers=()) if number is None else Rec(f"r{number}", 100 + number, id=b"%d" % number)
        for number in numbers
    ]


def asked(log: MemoryLog, stored: int, own: int | None = None, *, of_source: bool = True) -> Finding:
    evidence = MirrorEvidence(stored, own=own, is_of_source=of_source)
    return ask(log, StoredOffset(stored), CARRIED, mirror=evidence)


def test_the_job_resumes_at_the_next_record() -> None:
    finding = asked(log_of(*numbered(4, 5, 6, 7, 8)), 6)
    assert found(finding) == ("exact", 2, 0, 0)
    assert finding.detail == "the next record carries the source's offset 6, and the job stopped at 6"
    assert (finding.record_offset, finding.record_fingerprint is not None) == (1, True)


def test_what_was_sent_again_is_stepped_over_only_where_the_rest_comes_again() -> None:
    assert found(asked(log_of(*numbered(3, 4, 5, 6, 7, 4, 5, 6, 7, 8)), 6)) == ("exact", 7, 0, 0)
    assert found(asked(log_of(*numbered(3, 4, 5, 6, 7, 4, 5, 6)), 6)) == ("exact", 3, 2, 2)


def test_many_records_are_bisected() -> None:
    finding = asked(log_of(*numbered(*range(5000, 9000))), 7777)
    assert found(finding) == ("exact", 2777, 0, 0)


def test_a_number_after_the_last_mirrored_record_is_behind_unless_it_is_the_next_one() -> None:
    assert found(asked(log_of(*numbered(4, 5, 6)), 9)) == ("behind", 3, 0, 0)
    assert found(asked(log_of(*numbered(4, 5, 6)), 7)) == ("exact", 3, 0, 0)
    assert found(asked(log_of(), 7)) == ("behind", 0, 0, 0)


def test_deleted_unprocessed_records_are_lost() -> None:
    assert found(asked(log_of(*numbered(4, 5, 6, 7), deleted_before=2), 5))[:2] == ("lost", 2)
    assert found(asked(log_of(*numbered(4, 5, 6, 7), deleted_before=1), 5)) == ("exact", 1, 0, 0)


def test_records_without_a_number_prove_nothing() -> None:
    assert asked(log_of(*numbered(None, None)), 5).verdict.value == "unresolved"


def test_a_number_of_the_destination_is_not_looked_for_at_the_source() -> None:
    assert asked(log_of(*numbered(4, 5, 6, 7)), 6, of_source=False).verdict.value == "unresolved"


def test_a_number_that_may_be_the_destinations_own_bounds_the_place() -> None:
    finding = asked(log_of(*numbered(0, 1, 1, 2, 3)), 2, own=2)
    assert (finding.verdict.value, finding.resume_offset) == ("early", 2)


def test_an_anchor_of_another_number_contradicts_what_its_record_carries() -> None:
    records = numbered(4, 5, 6, 7)
    both = replace(BY_ID, source_value_of=number_of)
    right = anchor_of(records[1], both, offset=5)
    assert found(ask(log_of(*records), right, both)) == ("exact", 2, 0, 0)
    finding = ask(log_of(*records), replace(right, offset=9), both)
    assert finding.verdict.value == "unresolved"
    assert "carries the source's offset 5 instead of 9" in finding.detail


def test_numbers_that_begin_again_are_of_a_topic_that_was_recreated() -> None:
    again = [replace(record, value=b"other", ms=500 + n) for n, record in enumerate(numbered(1, 2, 3))]
    finding = asked(log_of(*numbered(3, 4, 5, 6, 7, 8), *again), 5)
    assert finding.verdict.value == "unresolved"
    assert "go back to 1 at 6, and that record was never here before" in finding.detail


# ---------------------------------------------------------------- how the numbers are written


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
    assert (found.verdict, found.resume_offset, found.replay_at_most) == (Verdict.EXACT, 160, 0)


def test_a_header_that_cannot_be_read_is_named_in_the_finding_and_nothing_is_lost() -> None:
    found = by_number(200, *(b"%d!" % number for number in range(40, 300)))
    assert found.verdict is Verdict.UNRESOLVED
    assert 'the header "o" of record 0 holds 3 bytes (34 30 21), which is neither' in found.detail
    assert 'none of the 3 records read has the header "o"' in by_number(200, None, None, None).detail


def test_an_anchor_is_compared_with_the_number_as_it_is_written() -> None:
    log = log_of(*carrying(*map(WRITINGS["8 bytes, little-endian"], range(40, 60))))
    anchor = anchor_of(carrying(*[None] * 11)[10], BY_HEADER, 50)
    assert ask(log, anchor, BY_HEADER).verdict is Verdict.EXACT
    other = anchor_of(carrying(*[None] * 11)[10], BY_HEADER, 51)
    assert "carries the source's offset 50 instead of 51" in ask(log, other, BY_HEADER).detail
