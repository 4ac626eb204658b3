"""The anchor's record is at the destination: the job resumes right after its first copy, and reads nothing twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import Identity, IdOrder, Names
from reconciler.core.question import Limits
from reconciler.identity import identity_from_spec
from tests.core.stories import (
    BY_CONTENT,
    BY_EVENT_TIME,
    BY_ID,
    BY_INCREASING_ID,
    Marker,
    Rec,
    anchor_of,
    ask,
    content_only,
    event,
    found,
    letters,
    log_of,
    time_only,
)

A, B, C, D, E = letters("abcde")
EVERY_NAME = [BY_ID, BY_INCREASING_ID, BY_CONTENT]


@pytest.mark.parametrize("identity", EVERY_NAME, ids=["id", "increasing id", "fingerprint"])
def test_a_moved_anchor_is_found_and_the_next_record_follows(identity: Identity) -> None:
    names = (
        letters("abcde")
        if identity is not BY_INCREASING_ID
        else [replace(r, id=b"%d" % i) for i, r in enumerate((A, B, C, D, E))]
    )
    finding = ask(log_of(*names), anchor_of(names[2], identity), identity)
    assert found(finding) == ("moved", 3, 0, 0)
    assert finding.record_offset == 2


def test_the_evidence_says_what_matched() -> None:
    log = log_of(A, B, C)
    assert ask(log, anchor_of(B)).matched_by == "id"
    assert ask(log, anchor_of(B, BY_CONTENT), BY_CONTENT).matched_by == "fingerprint"
    assert ask(log, time_only(B)).matched_by == "timestamp"


def test_an_anchor_that_happens_to_keep_its_offset_is_a_match() -> None:
    assert found(ask(log_of(A, B, C), anchor_of(B, offset=1))) == ("match", 2, 0, 0)


@pytest.mark.parametrize("identity", [BY_ID, BY_CONTENT], ids=["id", "fingerprint"])
def test_equal_timestamps_do_not_matter_to_a_named_anchor(identity: Identity) -> None:
    tie = [Rec(name, 500) for name in "pqrst"]
    for place, record in enumerate(tie):
        assert found(ask(log_of(A, *tie), anchor_of(record, identity), identity)) == ("moved", place + 2, 0, 0)


def test_with_time_alone_the_first_of_a_tie_is_next_and_the_tie_bounds_the_replay() -> None:
    tie = [Rec(name, 500) for name in "pqrs"]
    assert found(ask(log_of(A, *tie, Rec("z", 900)), time_only(tie[2]))) == ("tied", 1, 4, None)


def test_an_anchor_without_time_is_found_by_content_alone() -> None:
    assert found(ask(log_of(A, B, C), content_only(B), BY_CONTENT)) == ("moved", 2, 0, 0)


def test_an_anchor_without_time_before_dated_records_is_found() -> None:
    """Jobs have recorded Kafka's -1, "no time", as the time of an undated record; it is later than no other."""
    undated = Rec("n", None)
    log = log_of(*letters("abcdefghij"), undated, Rec("z", 900))
    anchor = replace(anchor_of(undated), timestamp_ms=-1)
    assert found(ask(log, anchor))[:2] == ("moved", 11)


def test_records_delivered_twice_are_repeated_and_not_skipped() -> None:
    """b c are sent again: after the first copy of c only d follows unread, so the second b and c are the replay."""
    finding = ask(log_of(A, B, C, B, C, D), anchor_of(C))
    assert finding.resume_offset == 3
    assert finding.replay_at_most == 2


def test_a_resend_cut_off_half_way_skips_nothing() -> None:
    """After the second b comes nothing: c and d are only between the copies."""
    finding = ask(log_of(A, B, C, D, A, B), anchor_of(B))
    assert finding.resume_offset == 2
    assert finding.replay_at_most is not None
    assert finding.replay_at_most >= 2


def test_increasing_ids_count_a_resend_exactly() -> None:
    names = [Rec(name, ord(name), id=b"%d" % ord(name)) for name in "abcdabe"]
    assert found(ask(log_of(*names), anchor_of(names[1], BY_INCREASING_ID), BY_INCREASING_ID)) == ("moved", 2, 2, 2)


def test_an_anchor_that_names_the_next_record_resumes_at_it() -> None:
    finding = ask(log_of(A, B, C), anchor_of(B, names=Names.NEXT))
    assert found(finding) == ("moved", 1, 0, 0)
    assert finding.record_offset == 0


def test_the_next_record_itself_sent_twice_is_not_counted_as_processed() -> None:
    names = [Rec(name, ord(name), id=b"%d" % ord(name)) for name in "abcb"]
    finding = ask(log_of(*names), anchor_of(names[1], BY_INCREASING_ID, names=Names.NEXT), BY_INCREASING_ID)
    assert finding.resume_offset == 1
    assert finding.replay_exact in (0, None)


def test_a_small_scan_budget_does_not_skip_the_next_record() -> None:
    tie = [Rec(name, 500, id=b"%d" % ord(name)) for name in "abcd"]
    anchor = anchor_of(tie[2], BY_INCREASING_ID, names=Names.NEXT)
    finding = ask(log_of(*tie), anchor, BY_INCREASING_ID, limits=Limits(0, 2, 10))
    assert finding.resume_offset is not None
    assert finding.resume_offset <= 2


def test_gaps_and_markers_are_ordinary() -> None:
    log = log_of(Marker(100), A, Marker(10**12), B, Marker(10**12), C, D, compacted=[1])
    assert found(ask(log, anchor_of(C))) == ("moved", 6, 0, 0)


def test_a_markers_wall_clock_time_does_not_hide_the_anchor() -> None:
    """The marker before the records answers the time lookup for every anchor."""
    log = log_of(Marker(10**13), *letters("abcdefgh"))
    assert found(ask(log, anchor_of(letters("g")[0]))) == ("moved", 8, 0, 0)


def test_a_record_dated_years_ahead_does_not_hide_later_anchors() -> None:
    future = Rec("x", 4 * 10**12)
    assert found(ask(log_of(A, future, B, C, D), anchor_of(C))) == ("moved", 4, 0, 0)


def test_an_anchor_dated_years_ahead_is_found() -> None:
    future = Rec("x", 4 * 10**12)
    assert found(ask(log_of(A, future, B, C), anchor_of(future))) == ("moved", 2, 2, None)


@pytest.mark.parametrize("identity", [BY_ID, BY_CONTENT], ids=["id", "fingerprint"])
def test_a_broker_that_stamps_on_arrival_hides_nothing(identity: Identity) -> None:
    log = log_of(*(replace(r, ms=5000 + i, stamped_on_arrival=True) for i, r in enumerate((A, B, C, D))))
    finding = ask(log, anchor_of(B, identity), identity)
    assert (finding.verdict.value, finding.resume_offset) == ("moved", 2)


def test_a_destination_clock_behind_the_producers_skips_nothing() -> None:
    """The broker stamped b at 105, the producer said 110: a time lookup goes past b."""
    log = log_of(*(replace(r, ms=104 + i, stamped_on_arrival=True) for i, r in enumerate((A, B, C, D))))
    finding = ask(log, anchor_of(B))
    assert (finding.verdict.value, finding.resume_offset) == ("moved", 2)


def test_an_anchor_dated_ahead_of_the_destinations_clock_skips_nothing() -> None:
    future = Rec("x", 4 * 10**12)
    log = log_of(*(replace(r, ms=5000 + i, stamped_on_arrival=True) for i, r in enumerate((A, future, B, C))))
    finding = ask(log, anchor_of(future))
    assert (finding.verdict.value, finding.resume_offset) == ("moved", 2)


def test_an_anchor_is_found_by_event_time_from_the_payload() -> None:
    log = log_of(*(event(name, 100 + 10 * i, 103 + 10 * i) for i, name in enumerate("abcd")))
    assert found(ask(log, anchor_of(event("c", 120, 123), BY_EVENT_TIME), BY_EVENT_TIME)) == ("moved", 3, 0, 0)


def test_an_event_dated_after_its_own_kafka_timestamp_skips_nothing() -> None:
    """An appointment next week: b's event time is later than any Kafka timestamp there is."""
    a, b, c = event("a", 100, 100), event("b", 900, 110), event("c", 120, 120)
    finding = ask(log_of(a, b, c), anchor_of(b, BY_EVENT_TIME), BY_EVENT_TIME)
    assert (finding.verdict.value, finding.resume_offset) == ("moved", 2)


def test_disorder_does_not_matter_to_an_anchor_that_is_there() -> None:
    shuffled = [Rec(name, ms) for name, ms in zip("abcdefg", (50, 10, 70, 20, 60, 30, 40), strict=True)]
    for place, record in enumerate(shuffled):
        finding = ask(log_of(*shuffled), anchor_of(record))
        assert finding.verdict.value == "moved"
        assert finding.resume_offset == place + 1


def test_an_id_used_twice_with_different_content_is_not_trusted() -> None:
    first, second = Rec("a", 500, id=b"same"), Rec("b", 500, id=b"same")
    assert found(ask(log_of(first, second, Rec("z", 900)), anchor_of(second))) == ("moved", 2, 0, 0)


def test_an_old_anchor_bounds_the_replay() -> None:
    finding = ask(log_of(A, B, C, D, E), anchor_of(B), anchor_lag=2)
    assert found(finding) == ("bounded", 2, 2, None)


@pytest.mark.parametrize("lag", [-1, -5])
def test_an_anchor_that_is_not_before_its_stored_offset_is_not_believed(lag: int) -> None:
    """Somebody has set the offset back, and has left the anchor as it was."""
    finding = ask(log_of(A, B, C, D, E), anchor_of(C), anchor_lag=lag)
    assert found(finding) == ("unresolved", None, None, None)
    assert finding.detail == "the anchor's record is at or after the stored offset: the pair does not belong together"


def test_an_old_anchors_bound_holds_when_the_records_in_between_were_sent_twice() -> None:
    """c was processed after the anchor b was noted, and the mirror sent it twice: two records repeat, not one."""
    finding = ask(log_of(A, B, C, D, C, D), anchor_of(B), anchor_lag=1)
    assert finding.resume_offset == 2
    assert finding.replay_at_most is not None
    assert finding.replay_at_most >= 2


def test_tombstones_are_anchors_too() -> None:
    gone = Rec("t", 110, key=b"t", tombstone=True)
    assert found(ask(log_of(A, gone, C), anchor_of(gone, BY_CONTENT), BY_CONTENT)) == ("moved", 2, 0, 0)


def test_poisoned_payloads_and_missing_headers_are_not_the_anchor() -> None:
    poison = [
        Rec("p", 120, value=b"\xff{not json"),
        Rec("q", 120, headers=()),
        Rec("r", 120, value=b"", headers=(("id", None),)),
    ]
    identity = identity_from_spec(timestamp="json:$.ts", id="header:id")
    target = event("c", 120, 120)
    finding = ask(log_of(*poison, target, *poison), anchor_of(target, identity), identity)
    assert (finding.verdict.value, finding.resume_offset) == ("moved", 4)


def moody(record: object) -> bytes:
    raise RuntimeError("I do not like this record")


def test_an_id_function_that_raises_stops_nothing() -> None:
    identity = identity_from_spec(id=f"python:{__name__}:moody")
    assert found(ask(log_of(A, B, C), anchor_of(B, identity), identity)) == ("moved", 2, 0, 0)


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
def test_a_scan_that_ends_early_says_bounded_and_skips_nothing(budget: int) -> None:
    tie = [Rec(name, 500) for name in "abcdefgh"]
    finding = ask(log_of(Rec("0", 1), *tie), anchor_of(tie[6]), limits=Limits(0, budget, 100))
    assert found(finding) == ("bounded", 1, 8, None)


def test_two_identical_records_of_a_producer_keep_the_bound() -> None:
    """The same bytes in the same millisecond: which one was processed is unknown, so the bound must fit both."""
    ping = Rec("ping", 500)
    other = Rec("o", 500)
    finding = ask(log_of(A, ping, other, ping, Rec("z", 900)), anchor_of(ping, BY_CONTENT), BY_CONTENT)
    assert finding.resume_offset == 2
    assert finding.replay_at_most is not None
    assert finding.replay_at_most >= 2


def test_increasing_ids_are_compared_as_numbers() -> None:
    names = [Rec(name, 500, id=number) for name, number in zip("abcd", (b"8", b"9", b"10", b"11"), strict=True)]
    identity = replace(BY_ID, id_order=IdOrder.INCREASING)
    assert found(ask(log_of(*names), anchor_of(names[1], identity), identity)) == ("moved", 2, 0, 0)
