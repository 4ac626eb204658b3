"""The anchor is numbered by the destination itself: a second run, or the source cluster by mistake."""

from __future__ import annotations

from dataclasses import replace

from confluent_kafka import Uuid

from reconciler.core.anchors import NO_TOPIC_ID, Anchor, Names, StoredOffset
from tests.core.stories import BY_ID, HERE, HERE_TOPIC, Marker, Rec, anchor_of, ask, found, letters, log_of

A, B, C, D, E = letters("abcde")


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


def test_an_offset_that_was_set_back_on_a_log_that_was_cut_has_no_anchor_to_go_by() -> None:
    """The anchor's record lies beyond what the job is to read: resuming there would skip."""
    finding = ask(log_of(A, B, Rec("x", 115), Rec("y", 118), D, E), set_back(D, 3, to=1), anchor_lag=-3)
    assert found(finding) == ("unresolved", None, None, None)
    assert "does not belong together" in finding.detail


def test_an_offset_that_was_set_back_and_that_retention_has_passed_counts_what_is_left_up_to_the_anchor() -> None:
    finding = ask(log_of(A, B, C, D, E, deleted_before=2), set_back(D, 3, to=1), anchor_lag=-3)
    assert found(finding) == ("lost", 2, 2, None)
