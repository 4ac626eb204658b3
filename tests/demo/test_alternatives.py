"""Counts, by ids, the records that a start at other offsets would have read again and skipped."""

from __future__ import annotations

import pytest

from reconciler.demo.proof import Alternative, alternative

THERE = [(0, 0, "a"), (0, 1, "b"), (0, 4, "c"), (0, 5, "d"), (1, 0, "e"), (1, 1, "f")]
PROCESSED = {"a", "b", "e"}


@pytest.mark.parametrize(
    ("offsets", "again", "skipped"),
    [
        ({0: 2, 1: 1}, 0, 0),
        ({0: 4, 1: 1}, 0, 0),  # a gap is no record
        ({0: 5, 1: 2}, 0, 2),
        ({0: 1, 1: 0}, 2, 0),
        ({0: 9}, 1, 2),  # past the end, and a partition without an offset
        ({}, 3, 0),
    ],
)
def test_records_are_counted_not_offsets(offsets: dict[int, int], again: int, skipped: int) -> None:
    assert alternative(THERE, offsets, PROCESSED) == Alternative(again, skipped)


def test_a_record_is_skipped_only_if_none_of_its_copies_is_read() -> None:
    """The mirror went back after d, and had sent c once more when it was lost."""
    there = [*THERE[:4], (0, 6, "a"), (0, 7, "b"), (0, 8, "c")]
    assert alternative(there, {0: 4}, {"a", "b"}) == Alternative(again=2, skipped=0)
    assert alternative(there, {0: 5}, {"a", "b"}) == Alternative(again=2, skipped=0)
    assert alternative(there, {0: 8}, {"a", "b"}) == Alternative(again=0, skipped=1)
    assert alternative(there, {0: 9}, {"a", "b"}) == Alternative(again=0, skipped=2)
