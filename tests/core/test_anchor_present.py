"""The anchor's record is at the destination: the job resumes right after its first copy, and reads nothing twice.

Also anchors that the destination itself numbers: a second run, or the source cluster by mistake.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import Uuid

from reconciler.config.identity import identity_from_spec
from reconciler.core.anchors import NO_TOPIC_ID, Anchor, Identity, Names, StoredOffset
from reconciler.core.question import Limits
from reconciler.core.verdicts import Finding
from tests.core.stories import (
    BY_CONTENT,
    BY_EVENT_TIME,
    BY_EVENT_TIME_AND_ID,
    BY_ID,
    BY_INCREASING_ID,
    HERE,
    HERE_TOPIC,
    Marker,
    Rec,
    anchor_of,
    ask,
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
    assert found(finding) == ("exact", 3, 0, 0)
    assert finding.record_offset == 2


def test_the_evidence_says_what_matched() -> None:
    log = log_of(A, B, C)
    assert ask(log, anchor_of(B)).matched_by == "id"
    assert ask(log, anchor_of(B, BY_CONTENT), BY_CONTENT).matched_by == "fingerprint"
    assert ask(log, time_only(B)).matched_by == "timestamp"


def test_an_anchor_that_happens_to_keep_its_offset_is_a_match() -> None:
    assert found(ask(log_of(A, B, C), anchor_of(B, offset=1))) == ("exact", 2, 0, 0)


def test_an_anchor_without_time_before_dated_records_is_found() -> None:
    """Jobs have recorded Kafka's -1, "no time", as the time of an undated record; it is later than no other."""
    undated = Rec("n", None)
    log = log_of(*letters("abcdefghij"), undated, Rec("z", 900))
    anchor = replace(anchor_of(undated), timestamp_ms=-1)
    assert found(ask(log, anchor))[:2] == ("exact", 11)


def test_an_anchor_that_names_the_next_record_resumes_at_it() -> None:
    finding = ask(log_of(A, B, C), anchor_of(B, names=Names.NEXT))
    assert found(finding) == ("exact", 1, 0, 0)
    assert finding.record_offset == 0


def test_an_id_used_twice_with_different_content_is_not_trusted() -> None:
    first, second = Rec("a", 500, id=b"same"), Rec("b", 500, id=b"same")
    assert found(ask(log_of(first, second, Rec("z", 900)), anchor_of(second))) == ("exact", 2, 0, 0)


@pytest.mark.parametrize("lag", [-1, -5])
def test_an_anchor_that_is_not_before_its_stored_offset_is_not_believed(lag: int) -> None:
    """Somebody has set the offset back, and has left the anchor as it was."""
    finding = ask(log_of(A, B, C, D, E), anchor_of(C), anchor_lag=lag)
    assert found(finding) == ("unresolved", None, None, None)
    assert finding.detail == "the anchor's record is at or after the stored offset: the pair does not belong together"


def test_poisoned_payloads_and_missing_headers_are_not_the_anchor() -> None:
    poison = [
        Rec("p", 120, value=b"\xff{not json"),
        Rec("q", 120, headers=()),
        Rec("r", 120, value=b"", headers=(("id", None),)),
    ]
    identity = identity_from_spec(timestamp="json:$.ts", id="header:id")
    target = event("c", 120, 120)
    finding = ask(log_of(*poison, target, *poison), anchor_of(target, identity), identity)
    assert (finding.verdict.value, finding.resume_offset) == ("exact", 4)


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
def test_a_scan_that_ends_early_says_bounded_and_skips_nothing(budget: int) -> None:
    tie = [Rec(name, 500) for name in "abcdefgh"]
    finding = ask(log_of(Rec("0", 1), *tie), anchor_of(tie[6]), limits=Limits(0, budget, 100))
    assert found(finding) == ("early", 1, 8, None)


# ---------------------------------------------------------------- misleading evidence: landing early is right


def resumes_by(finding: Finding, offset: int) -> bool:
    return finding.resume_offset is not None and finding.resume_offset <= offset


def test_a_known_copy_is_never_passed_when_the_scan_ends_early() -> None:
    """The event is dated after its own Kafka timestamp, and no disorder was stated; a copy is seen at offset 1."""
    records = [event("a", 100, 90), event("b", 900, 91), *(event(f"n{i}", 901 + i, 100 + i) for i in range(20))]
    anchor = anchor_of(records[1], BY_EVENT_TIME)
    assert resumes_by(ask(log_of(*records), anchor, BY_EVENT_TIME, limits=Limits(0, 1, 10)), 2)


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


@pytest.mark.parametrize("compacted", [True, None])
def test_a_gap_far_before_the_found_copy_is_a_doubt(compacted: bool | None) -> None:
    """The first a was removed; what followed it is dated within the disorder before a, more than a peek long."""
    late = [Rec(f"n{i}", 460 + i) for i in range(20)]
    first = Rec("a", 500)
    log = log_of(Rec("old", 100), first, *late, first, compacted=[1])
    assert resumes_by(ask(log, anchor_of(first), limits=Limits(50), compacted=compacted), 2)


def own(record: Rec, offset: int, topic_id: str | None = HERE_TOPIC) -> StoredOffset:
    anchor = replace(anchor_of(record, BY_ID, offset), cluster_id=HERE, topic_id=topic_id)
    return StoredOffset(offset + 1, anchor)


def test_a_second_run_changes_nothing() -> None:
    finding = ask(log_of(A, B, C), own(B, 1))
    assert found(finding) == ("exact", 2, 0, 0)
    assert finding.record_offset == 1


def test_an_anchor_that_was_compacted_away_keeps_the_numbering() -> None:
    assert found(ask(log_of(A, B, C, compacted=[1]), own(B, 1))) == ("exact", 2, 0, 0)


def test_a_marker_at_the_anchors_offset_is_not_compaction() -> None:
    """The log was cut before the anchor and rewritten; a transaction marker took the anchor's offset."""
    x, y = Rec("x", 115), Rec("y", 118)
    finding = ask(log_of(A, Marker(900), x, y, D), own(B, 1))
    assert (finding.verdict.value, finding.resume_offset) != ("exact", 2)
    assert finding.resume_offset is not None
    assert finding.resume_offset <= 2


def test_a_recreated_topic_has_another_numbering() -> None:
    """The same offset holds the same record, but the topic id differs: found by search, not by number."""
    log = log_of(Rec("w", 90), A, B, C, topic_id="destination/events-again")
    assert found(ask(log, own(B, 1))) == ("exact", 3, 0, 0)


def test_in_a_recreated_topic_all_behind_an_anchor_that_lags_may_repeat() -> None:
    """The job may have read on in the new topic: its offset and its anchor's are of two logs."""
    log = log_of(Rec("w", 90), A, B, C, D, E, topic_id="destination/events-again")
    finding = ask(log, replace(own(B, 1), offset=3), anchor_lag=1)
    assert (finding.resume_offset, finding.replay_at_most, finding.replay_exact) == (3, 3, None)
    assert "up to 3 records repeat" in finding.detail


def test_without_a_topic_id_a_missing_record_does_not_count_as_compacted() -> None:
    finding = ask(log_of(A, B, C, compacted=[1]), own(B, 1, topic_id=None))
    assert finding.verdict.value != "exact"
    assert finding.resume_offset is not None
    assert finding.resume_offset <= 2


def test_a_bare_anchor_tells_only_the_numbering() -> None:
    stored = StoredOffset(0, Anchor(cluster_id=HERE, topic_id=HERE_TOPIC))
    assert found(ask(log_of(A, B), stored)) == ("exact", 0, 0, 0)


def test_an_own_anchor_of_the_next_record_is_at_the_stored_offset() -> None:
    anchor = replace(own(B, 1).anchor or Anchor(), names=Names.NEXT)
    assert found(ask(log_of(A, B, C), StoredOffset(1, anchor))) == ("exact", 1, 0, 0)


def test_the_topic_id_of_a_broker_that_keeps_none_proves_nothing() -> None:
    """Brokers before 2.8 give every topic the zero id: a recreated, compacted topic is not taken for the old one."""
    log = log_of(Rec("w", 90), Rec("x", 91), A, B, C, compacted=[1], topic_id=NO_TOPIC_ID)
    finding = ask(log, own(B, 1, topic_id=NO_TOPIC_ID))
    assert found(finding)[:2] == ("exact", 4)


def test_an_anchor_from_before_the_brokers_had_topic_ids_keeps_its_numbering() -> None:
    assert found(ask(log_of(A, B, C), own(B, 1, topic_id=NO_TOPIC_ID))) == ("exact", 2, 0, 0)


def test_the_kafka_client_gives_the_topic_id_that_stands_for_none_as_this_text() -> None:
    assert str(Uuid(0, 0)) == NO_TOPIC_ID


def set_back(record: Rec, offset: int, to: int) -> StoredOffset:
    """A row whose offset a person set back, and whose anchor stayed."""
    return replace(own(record, offset), offset=to)


def test_an_offset_that_was_set_back_is_right_and_its_replay_is_counted_to_the_anchor() -> None:
    finding = ask(log_of(A, B, C, D, E), set_back(D, 3, to=1), anchor_lag=-3)
    assert found(finding) == ("exact", 1, 3, None)
    assert "was set back" in finding.detail


@pytest.mark.parametrize(
    ("stored", "words", "counted"),
    [(set_back(D, 3, to=1), {"anchor_lag": -3}, 3), (own(A, 0), {"beyond": 2}, 0)],
    ids=["set back", "beyond the stored offset"],
)
def test_what_the_mirror_has_sent_again_counts_where_records_behind_the_offset_may_be_processed(
    stored: StoredOffset, words: dict[str, int], counted: int
) -> None:
    """The caller counts those that may be beyond the stored offset."""
    twice = log_of(A, B, C, D, B, C, D, E)
    copies = 3 if counted else 2
    assert found(ask(twice, stored, **words)) == ("exact", 1, counted + copies, None)
    assert found(ask(log_of(A, B, C, D, E), stored, **words))[2] == counted
    unread = ask(twice, stored, limits=Limits(0, 100, 4), **words)
    assert found(unread)[2] == counted + 4, "of those sent again one was read; the unread count in full"


def test_what_was_sent_again_counts_in_another_numbering_where_records_beyond_may_be_processed() -> None:
    log = log_of(A, B, C, D, B, C, D, E)
    assert found(ask(log, anchor_of(A, offset=7)))[2] == 0
    assert found(ask(log, anchor_of(A, offset=7), beyond=2))[2] == 3


def test_an_offset_that_was_set_back_on_a_log_that_was_cut_has_no_anchor_to_go_by() -> None:
    """The anchor's record lies beyond what the job is to read: resuming there would skip."""
    finding = ask(log_of(A, B, Rec("x", 115), Rec("y", 118), D, E), set_back(D, 3, to=1), anchor_lag=-3)
    assert found(finding) == ("unresolved", None, None, None)
    assert "does not belong together" in finding.detail
    finding = ask(log_of(A, B), set_back(D, 3, to=1), anchor_lag=-3)
    assert finding.verdict.value == "unresolved"
    assert "the log ends at 2, before the anchor" in finding.detail


def test_an_offset_that_was_set_back_and_that_retention_has_passed_counts_what_is_left_up_to_the_anchor() -> None:
    finding = ask(log_of(A, B, C, D, E, deleted_before=2), set_back(D, 3, to=1), anchor_lag=-3)
    assert found(finding) == ("lost", 2, 2, None)
