"""Anchors whose time cannot be true, and logs that are called lost only on evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import Anchor, Identity, Names, StoredOffset
from reconciler.core.mirrored.pairs import MirrorEvidence, Pairs, Sync, evidence_for
from reconciler.core.question import CLOCKS_MS, KAFKA_BEGAN_MS, Limits, latest_possible_ms, possible_time_ms
from reconciler.core.verdicts import Finding, Verdict
from tests.core.stories import (
    BY_CONTENT,
    BY_EVENT_TIME_AND_ID,
    BY_ID,
    BY_INCREASING_ID,
    Rec,
    anchor_of,
    ask,
    event,
    letters,
    log_of,
    time_only,
)

NOW, HOUR = 1_790_000_000_000, 3_600_000
AHEAD = Rec("ahead", NOW + 2 * HOUR, id=b"5")
LATEST = NOW + CLOCKS_MS


def stored(time_ms: int, *, written_at_ms: int | None = None, covers_until_ms: int | None = None) -> StoredOffset:
    return StoredOffset(1, Anchor(0, time_ms), written_at_ms, covers_until_ms)


# ---------------------------------------------------------------- which times are possible


@pytest.mark.parametrize(
    ("row", "latest"),
    [
        (stored(0), NOW),
        (stored(0, written_at_ms=NOW - HOUR), NOW - HOUR),
        (stored(0, written_at_ms=NOW + HOUR), NOW),
        (stored(0, written_at_ms=NOW - HOUR, covers_until_ms=NOW - 1), NOW - 1),
        (stored(0, written_at_ms=1_700_000), NOW),  # a version or seconds, and no epoch ms
    ],
    ids=["no row time", "the row's", "a row of the future", "a long batch", "no epoch ms"],
)
def test_no_processed_record_is_later_than_its_row_or_than_now(row: StoredOffset, latest: int) -> None:
    assert latest_possible_ms(row, NOW, 0) == latest + CLOCKS_MS
    assert latest_possible_ms(row, NOW, HOUR) == latest + CLOCKS_MS + HOUR


def test_a_time_in_micros_is_no_time_and_a_clock_that_is_five_minutes_off_is_one() -> None:
    assert possible_time_ms(stored(NOW * 1000), NOW, 0) is None
    assert possible_time_ms(stored(NOW + 300_000, written_at_ms=NOW), NOW + HOUR, 0) == NOW + 300_000
    assert possible_time_ms(stored(NOW + HOUR, written_at_ms=NOW), NOW + 2 * HOUR, 0) is None
    assert possible_time_ms(StoredOffset(1), NOW, 0) is None


# ---------------------------------------------------------------- what such a time decides


@pytest.mark.parametrize("identity", [BY_ID, BY_CONTENT], ids=["id", "fingerprint"])
@pytest.mark.parametrize("time_ms", [NOW + 2 * HOUR, NOW * 1000], ids=["two hours", "micros"])
def test_a_record_of_the_future_that_was_refused_here_proves_nothing_of_the_others(identity, time_ms) -> None:  # type: ignore[no-untyped-def]
    """By its time all records would be older, and the unread ones would be skipped."""
    log = log_of(*letters("abcdefgh", NOW - 80, 10))
    anchor = anchor_of(replace(AHEAD, ms=time_ms), identity)
    assert ask(log, anchor, identity).verdict is Verdict.BEHIND, "as if the time were right"
    finding = ask(log, anchor, identity, latest_ms=LATEST)
    assert (finding.verdict, finding.resume_offset) == (Verdict.UNRESOLVED, None)
    assert finding.detail == (
        f"the anchor's time ({time_ms} ms) is later than its row was written, or than now, so it bounds nothing; "
        "the anchor's record is not in the destination; only the log's start, offset 0, is safe"
    )


@pytest.mark.parametrize("names", [Names.LAST, Names.MAX_TIME], ids=["a record's", "the largest"])
def test_an_impossible_time_alone_decides_nothing(names: Names) -> None:
    finding = ask(log_of(*letters("abcdef", NOW)), time_only(AHEAD, names), latest_ms=LATEST)
    assert (finding.verdict, finding.resume_offset) == (Verdict.UNRESOLVED, None)


def test_an_impossible_time_in_a_payload_decides_nothing() -> None:
    log = log_of(*(event(f"e{n}", NOW + n, NOW + n) for n in range(8)))
    anchor = anchor_of(event("ahead", NOW * 1000, NOW), BY_EVENT_TIME_AND_ID)
    assert ask(log, anchor, BY_EVENT_TIME_AND_ID, latest_ms=LATEST).verdict is Verdict.UNRESOLVED


def test_increasing_ids_decide_whatever_the_time() -> None:
    log = log_of(*(Rec(f"r{n}", NOW + n, id=b"%d" % n) for n in (1, 2, 3, 4, 6, 7)))
    finding = ask(log, anchor_of(AHEAD), BY_INCREASING_ID, latest_ms=LATEST)
    assert finding.resume_offset == 4


def test_an_impossible_time_still_names_its_record() -> None:
    log = log_of(*letters("abc", NOW), AHEAD, *letters("de", NOW))
    finding = ask(log, anchor_of(AHEAD), latest_ms=LATEST)
    assert (finding.verdict, finding.resume_offset) == (Verdict.EXACT, 4)


def test_after_retention_an_impossible_time_does_not_prove_that_the_first_copy_is_there() -> None:
    """All that is left in front is older than it, processed or not."""
    log = log_of(*letters("abcdef", NOW), AHEAD, *letters("gh", NOW), deleted_before=2)
    assert ask(log, anchor_of(AHEAD)).verdict is Verdict.EXACT, "as if the time were right"
    finding = ask(log, anchor_of(AHEAD), latest_ms=LATEST)
    assert (finding.verdict, finding.resume_offset) == (Verdict.EARLY, 2)


def test_a_clock_that_is_ahead_for_all_records_keeps_their_order() -> None:
    """Local times taken for UTC: the record in front is as far ahead."""
    ahead = letters("abcdefgh", NOW + 8 * HOUR)
    finding = ask(log_of(*ahead, deleted_before=2), anchor_of(ahead[5]), latest_ms=LATEST)
    assert (finding.verdict, finding.resume_offset) == (Verdict.EXACT, 6)


# ---------------------------------------------------------------- lost only on evidence

ANCHOR = Rec("x", 150)


def test_a_log_that_begins_at_0_has_lost_nothing() -> None:
    finding = ask(log_of(*letters("mnop")), anchor_of(ANCHOR))
    assert (finding.verdict, finding.resume_offset) == (Verdict.EARLY, 0)
    assert finding.detail.endswith("resuming at the log's start, offset 0: the mirror began behind the anchor")


def test_a_log_whose_first_records_are_gone_and_whose_oldest_is_newer_has_lost_some() -> None:
    assert ask(log_of(*letters("aamnop"), deleted_before=2), anchor_of(ANCHOR)).verdict is Verdict.LOST


def test_a_log_with_older_records_has_lost_nothing_whatever_the_disorder() -> None:
    """c and d are older than the anchor, by less than the disorder: the log reaches back in front of it."""
    limits = Limits(max_disorder_ms=100)
    finding = ask(log_of(*letters("aacdmnop"), deleted_before=2), anchor_of(ANCHOR), limits=limits)
    assert (finding.verdict, finding.resume_offset) == (Verdict.EARLY, 2)


def test_a_log_with_the_anchor_s_id_has_lost_nothing() -> None:
    """The mirror has changed its content: a schema's id in front of the value."""
    there = Rec("m", 220, id=b"x", value=b"other")
    finding = ask(log_of(*letters("aa"), there, *letters("no"), deleted_before=2), anchor_of(Rec("x", 220, id=b"x")))
    assert finding.verdict is Verdict.EARLY
    assert "has the anchor's id but other content or time" in finding.detail


# ---------------------------------------------------------------- a record that is newer than the row was not processed


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
    assert (found.verdict, found.resume_offset) == (Verdict.EXACT, 5)


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
    assert verdicts == [Verdict.UNRESOLVED, Verdict.UNRESOLVED, Verdict.EXACT]


def test_clocks_that_differ_by_more_are_a_matter_of_max_disorder() -> None:
    assert by(0, disorder_ms=FIFTH - CLOCKS_MS).verdict is Verdict.EXACT
    assert by(0, disorder_ms=FIFTH - CLOCKS_MS - 1).verdict is Verdict.UNRESOLVED


def test_a_row_time_from_before_kafka_is_none() -> None:
    """HBase clients may write a cell with a version of their own in place of a time."""
    lately = letters("abcdefgh", KAFKA_BEGAN_MS, HOUR)
    pairs = evidence_for(5, Pairs((Sync(4, 4, KAFKA_BEGAN_MS + LATER),)))
    assert by(7, pairs, 0, *lately).verdict is Verdict.EXACT
    assert by(KAFKA_BEGAN_MS, pairs, 0, *lately).verdict is Verdict.UNRESOLVED


def test_others_records_and_the_brokers_dates_say_nothing() -> None:
    assert by(0, replace(SYNC, local_writers=True)).verdict is Verdict.EXACT
    stamped = [replace(record, stamped_on_arrival=True) for record in letters("abcdefgh", 0, HOUR)]
    assert by(0, SYNC, 0, *stamped).verdict is Verdict.EXACT


def test_a_newer_record_contradicts_a_number_that_records_carry_too() -> None:
    """The topic was recreated and mirrored here anew: its records have the numbers of the old ones."""

    def number(record: object) -> int:
        return int(record.offset)

    identity = Identity(BY_ID.timestamp_of, BY_ID.id_of, source_value_of=number)
    for row_ms, verdict in ((FIFTH, Verdict.EXACT), (0, Verdict.UNRESOLVED)):
        found = ask(log_of(*letters("abcdefgh", 0, HOUR)), StoredOffset(5, None, row_ms), identity, mirror=SYNC)
        assert found.verdict is verdict
