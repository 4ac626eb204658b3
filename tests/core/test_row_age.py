"""A record that is newer than the store's row cannot have been processed when the number was stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import Identity, StoredOffset
from reconciler.core.mirror_pairs import MirrorEvidence, Pairs, Sync
from reconciler.core.question import CLOCKS_MS, KAFKA_BEGAN_MS, Limits
from reconciler.core.unanchored.pairs import evidence_for
from reconciler.core.verdicts import Finding, Verdict
from tests.core.stories import BY_ID, Rec, ask, letters, log_of

HOUR = 3_600_000
LATER = 10**9
"""When the mirror wrote its pairs: after all records."""
FIFTH = 4 * HOUR
"""The records are made an hour apart; the sync for number 5 names the fifth, e."""
SYNC = evidence_for(5, Pairs((Sync(4, 4, LATER),)))


def by(row_ms: int | None, evidence: MirrorEvidence = SYNC, disorder_ms: int = 0, *records: Rec) -> Finding:
    log = log_of(*(records or letters("abcdefgh", 0, HOUR)))
    return ask(log, StoredOffset(5, None, row_ms), BY_ID, mirror=evidence, limits=Limits(disorder_ms))


@pytest.mark.parametrize("row_ms", [None, FIFTH + HOUR, FIFTH, FIFTH - CLOCKS_MS])
def test_records_that_were_there_when_the_number_was_stored_are_passed(row_ms: int | None) -> None:
    found = by(row_ms)
    assert (found.verdict, found.resume_offset) == (Verdict.MATCH, 5)


def test_a_record_that_was_made_later_was_not_processed() -> None:
    found = by(FIFTH - CLOCKS_MS - 1)
    assert (found.verdict, found.resume_offset) == (Verdict.UNRESOLVED, None)
    assert "record 4, in front of the place, was made 600 s after the number was stored" in found.detail
    assert "the source's topic may have been recreated since" in found.detail
    assert "MirrorMaker's sync 4→4" in found.detail


def test_a_row_that_covers_records_until_later_is_as_old_as_that() -> None:
    """A checkpoint of real-time mode has the time at which its batch began."""
    log = log_of(*letters("abcdefgh", 0, HOUR))
    verdicts = [
        ask(log, StoredOffset(5, None, 0, until), BY_ID, mirror=SYNC, limits=Limits(0)).verdict
        for until in (None, FIFTH - CLOCKS_MS - 1, FIFTH - CLOCKS_MS)
    ]
    assert verdicts == [Verdict.UNRESOLVED, Verdict.UNRESOLVED, Verdict.MATCH]


def test_clocks_that_differ_by_more_are_a_matter_of_max_disorder() -> None:
    assert by(0, disorder_ms=FIFTH - CLOCKS_MS).verdict is Verdict.MATCH
    assert by(0, disorder_ms=FIFTH - CLOCKS_MS - 1).verdict is Verdict.UNRESOLVED


def test_a_row_time_from_before_kafka_is_none() -> None:
    """HBase clients may write a cell with a version of their own in place of a time."""
    lately = letters("abcdefgh", KAFKA_BEGAN_MS, HOUR)
    pairs = evidence_for(5, Pairs((Sync(4, 4, KAFKA_BEGAN_MS + LATER),)))
    assert by(7, pairs, 0, *lately).verdict is Verdict.MATCH
    assert by(KAFKA_BEGAN_MS, pairs, 0, *lately).verdict is Verdict.UNRESOLVED


def test_others_records_and_the_brokers_dates_say_nothing() -> None:
    assert by(0, replace(SYNC, local_writers=True)).verdict is Verdict.MATCH
    stamped = [replace(record, stamped_on_arrival=True) for record in letters("abcdefgh", 0, HOUR)]
    assert by(0, SYNC, 0, *stamped).verdict is Verdict.MATCH


def test_a_newer_record_contradicts_a_number_that_records_carry_too() -> None:
    """The topic was recreated and mirrored here anew: its records have the numbers of the old ones."""

    def number(record: object) -> int:
        return int(record.offset)

    identity = Identity(BY_ID.timestamp_of, BY_ID.id_of, source_value_of=number)
    for row_ms, verdict in ((FIFTH, Verdict.MATCH), (0, Verdict.UNRESOLVED)):
        found = ask(log_of(*letters("abcdefgh", 0, HOUR)), StoredOffset(5, None, row_ms), identity, mirror=SYNC)
        assert found.verdict is verdict
