"""Misleading evidence: clocks that differ, twins, gaps. Landing early is right, late is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import Identity, Names, StoredOffset
from reconciler.core.question import Limits
from reconciler.core.verdicts import Finding
from tests.core.stories import (
    BY_CONTENT,
    BY_EVENT_TIME,
    BY_EVENT_TIME_AND_ID,
    BY_EVENT_TIME_AND_UNIQUE_ID,
    BY_ID,
    BY_INCREASING_ID,
    HERE,
    HERE_TOPIC,
    Marker,
    Rec,
    anchor_of,
    ask,
    content_only,
    event,
    found,
    log_of,
)

A, B = Rec("a", 500, id=b"1"), Rec("b", 500, id=b"2")


def resumes_by(finding: Finding, offset: int) -> bool:
    return finding.resume_offset is not None and finding.resume_offset <= offset


def allows(finding: Finding, replays: int) -> bool:
    """The bound holds, and an exact number is the true one."""
    at_most = finding.replay_at_most
    return at_most is not None and at_most >= replays and finding.replay_exact in (None, replays)


# ---------------------------------------------------------------- clocks


def arrived(record: Rec, ms: int) -> Rec:
    return replace(record, ms=ms, stamped_on_arrival=True)


def test_a_broker_clock_behind_by_less_than_the_disorder_does_not_hide_the_first_copy() -> None:
    """a, made at 500, arrived at 485 by the broker's clock, and again at 501; ten new records lie in between."""
    log = log_of(arrived(A, 485), *(arrived(Rec(f"n{i}", 500), 486 + i) for i in range(10)), arrived(A, 501))
    assert resumes_by(ask(log, anchor_of(A), limits=Limits(20)), 1)


def test_a_copy_before_the_bound_proves_the_bound_wrong() -> None:
    """An appointment far ahead, on a broker that stamps on arrival: no lookup by its time means anything."""
    a, b = event("a", 9000, 100), event("b", 110, 110)
    records = [a, b, *(event(f"n{i}", 120, 120) for i in range(9)), a]
    log = log_of(*(arrived(one, 100 + i) for i, one in enumerate(records)))
    assert resumes_by(ask(log, anchor_of(a, BY_EVENT_TIME), BY_EVENT_TIME), 1)


@pytest.mark.parametrize("identity", [BY_ID, BY_CONTENT], ids=["id", "fingerprint"])
def test_an_anchor_without_time_is_found_where_the_broker_stamps_on_arrival(identity: Identity) -> None:
    log = log_of(*(arrived(Rec(name, 0), 500 + i) for i, name in enumerate("abcd")))
    anchor = replace(anchor_of(Rec("b", 0), identity), timestamp_ms=None)
    finding = ask(log, anchor, identity)
    assert finding.resume_offset == 2
    assert allows(finding, 0)


def test_a_known_copy_is_never_passed_when_the_scan_ends_early() -> None:
    """The event is dated after its own Kafka timestamp, and no disorder was stated; a copy is seen at offset 1."""
    records = [event("a", 100, 90), event("b", 900, 91), *(event(f"n{i}", 901 + i, 100 + i) for i in range(20))]
    anchor = anchor_of(records[1], BY_EVENT_TIME)
    assert resumes_by(ask(log_of(*records), anchor, BY_EVENT_TIME, limits=Limits(0, 1, 10)), 2)


def test_event_time_counts_a_resent_record_whose_first_copy_expired() -> None:
    """x was made before the anchor but stamped after it; its first copy is gone, so no window remembers it."""
    x, o, a = event("x", 110, 180), event("o", 100, 100), event("a", 150, 151)
    assert allows(ask(log_of(x, o, a, x, deleted_before=1), anchor_of(a, BY_EVENT_TIME), BY_EVENT_TIME), 1)


# ---------------------------------------------------------------- twins


def test_the_next_record_may_be_the_second_of_two_twins() -> None:
    """Processed: ping and a. Next: a ping of the same bytes and time."""
    ping, a = Rec("ping", 500), Rec("a", 500)
    finding = ask(log_of(ping, a, ping), anchor_of(ping, BY_CONTENT, names=Names.NEXT), BY_CONTENT)
    assert finding.resume_offset == 0
    assert allows(finding, 2)


def test_content_without_a_time_counts_up_to_the_last_equal_record() -> None:
    """The same key was deleted twice. Without a time it is unknown which of the two was processed last."""
    gone, again = (Rec("t", ms, key=b"k", tombstone=True) for ms in (100, 900))
    finding = ask(log_of(gone, Rec("b", 500), again), content_only(again), BY_CONTENT)
    assert finding.resume_offset == 1
    assert allows(finding, 2)


def test_without_a_time_a_later_equal_id_may_be_the_anchor() -> None:
    """A producer gave one id twice, at different times, to two deletions of a key."""
    gone, again = (Rec("t", ms, id=b"7", key=b"k", tombstone=True) for ms in (100, 900))
    anchor = replace(anchor_of(again, BY_ID), timestamp_ms=None)
    finding = ask(log_of(gone, Rec("b", 500), again), anchor, BY_ID)
    assert finding.resume_offset == 1
    assert allows(finding, 2)


def test_a_twin_may_be_among_the_unread_records() -> None:
    """Processed: all five. The budget ends before the last ping, which is the anchor."""
    ping = Rec("ping", 500)
    log = log_of(ping, *(Rec(f"n{i}", 500) for i in range(3)), ping)
    finding = ask(log, anchor_of(ping, BY_CONTENT), BY_CONTENT, limits=Limits(0, 2, 1))
    assert finding.resume_offset == 1
    assert allows(finding, 4)


OPAQUE = pytest.mark.parametrize("identity", [BY_EVENT_TIME, BY_EVENT_TIME_AND_ID], ids=["fingerprint", "id"])


@OPAQUE
def test_a_hint_at_a_twin_does_not_hide_the_first_copy(identity: Identity) -> None:
    """A producer tried again 1.5 s later; the source's offset of the record points here in front of the second one."""
    log = [event(f"e{i}", 10 * i, 10 * i + 1) for i in range(9000)]
    log[5000], log[5150] = event("x", 50_000, 50_001), event("x", 50_000, 51_501)
    anchor = anchor_of(log[5000], identity, offset=5100)
    finding = ask(log_of(*log), anchor, identity, limits=Limits(60_000), hints=(5100,))
    assert finding.resume_offset == 5001


@OPAQUE
def test_a_burst_that_its_producer_wrote_again_does_not_hide_the_first_copy(identity: Identity) -> None:
    """Bisection by the payload's time lands in the second burst."""
    log = [event(f"e{i}", 10 * i, 10 * i + 1) for i in range(9000)]
    log[5000:5000] = [event(f"e{i}", 10 * i, 50_000 + i) for i in range(1000)]
    assert ask(log_of(*log), anchor_of(log[500], identity), identity).resume_offset == 501


@OPAQUE
@pytest.mark.parametrize("stamp", [120, 95], ids=["later", "earlier"])
def test_a_twin_with_another_kafka_timestamp_keeps_the_bound(identity: Identity, stamp: int) -> None:
    """Processed: all up to the second x."""
    a, b, d = event("a", 90, 100), event("b", 105, 106), event("d", 121, 122)
    log = log_of(a, event("x", 100, 101), b, again := event("x", 100, stamp), d)
    finding = ask(log, anchor_of(again, identity), identity, limits=Limits(10))
    assert finding.resume_offset == 2
    assert allows(finding, 2)


def test_the_copy_of_a_record_whose_id_is_its_own_is_no_twin() -> None:
    """The mirror sent a and x again, and each stands in front of what is new."""
    identity = BY_EVENT_TIME_AND_UNIQUE_ID
    a, x, b = event("a", 90, 100), event("x", 100, 101), event("b", 121, 122)
    finding = ask(log_of(a, x, a, x, b), anchor_of(x, identity), identity, limits=Limits(10))
    assert found(finding) == ("moved", 4, 0, 0)


@pytest.mark.parametrize("key_is_id", [False, True], ids=["fingerprint", "key"])
def test_a_deletion_without_a_payloads_time_counts_up_to_the_last_equal_one(key_is_id: bool) -> None:
    """The same key was deleted twice. A deletion has no payload, and so no time that tells which came last."""
    identity = replace(BY_EVENT_TIME, id_of=lambda record: record.key) if key_is_id else BY_EVENT_TIME
    gone, again = (Rec("t", ms, key=b"k", tombstone=True) for ms in (100, 900))
    finding = ask(log_of(gone, event("b", 500, 500), again), anchor_of(again, identity), identity)
    assert (finding.verdict.value, finding.resume_offset) == ("bounded", 1)
    assert allows(finding, 2)


def test_a_deletion_of_a_key_that_was_deleted_once_is_found() -> None:
    gone = Rec("t", 100, key=b"k", tombstone=True)
    log = log_of(gone, event("b", 500, 500))
    assert found(ask(log, anchor_of(gone, BY_EVENT_TIME), BY_EVENT_TIME)) == ("moved", 1, 0, 0)


# ---------------------------------------------------------------- lag


@pytest.mark.parametrize("identity", [BY_ID, BY_INCREASING_ID, BY_CONTENT], ids=["id", "increasing id", "fingerprint"])
@pytest.mark.parametrize("on_arrival", [False, True])
def test_an_old_anchors_bound_counts_a_tie_that_was_sent_twice(identity: Identity, on_arrival: bool) -> None:
    """b was processed after the anchor a was noted; both have one time, and b came twice."""
    records = [arrived(one, 501 + i) if on_arrival else one for i, one in enumerate((A, B, B))]
    finding = ask(log_of(*records), anchor_of(A, identity), identity, anchor_lag=1)
    assert finding.resume_offset == 1
    assert allows(finding, 2)


# ---------------------------------------------------------------- gaps


def test_a_marker_at_the_logs_start_does_not_hide_that_older_records_survive() -> None:
    """The marker's wall-clock time answers the lookup, but the older record after it is there."""
    log = log_of(Rec("gone", 50), Marker(9000), Rec("old", 100), A, B, deleted_before=1)
    assert found(ask(log, anchor_of(B))) == ("moved", 5, 0, 0)


@pytest.mark.parametrize("compacted", [True, None])
def test_a_gap_far_before_the_found_copy_is_a_doubt(compacted: bool | None) -> None:
    """The first a was removed; what followed it is dated within the disorder before a, more than a peek long."""
    late = [Rec(f"n{i}", 460 + i) for i in range(20)]
    log = log_of(Rec("old", 100), A, *late, A, compacted=[1])
    assert resumes_by(ask(log, anchor_of(A), limits=Limits(50), compacted=compacted), 2)


@pytest.mark.parametrize("compacted", [True, None, False])
def test_a_whole_tie_without_a_gap_is_no_doubt(compacted: bool | None) -> None:
    log = log_of(Rec("old", 100), A, B, Rec("z", 900))
    assert found(ask(log, anchor_of(B), compacted=compacted)) == ("moved", 3, 0, 0)


# ---------------------------------------------------------------- the job's own log


def test_in_a_rewritten_log_new_records_may_precede_the_anchor() -> None:
    """o a were processed; the log was cut, and x came before the producer sent a again."""
    log = log_of(Rec("o", 400), Rec("x", 495), A)
    anchor = replace(anchor_of(A, offset=1), cluster_id=HERE, topic_id=HERE_TOPIC)
    assert resumes_by(ask(log, StoredOffset(2, anchor), limits=Limits(10)), 1)
