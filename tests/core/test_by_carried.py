"""A bare stored offset, and records that carry the source's offset: where the job resumes, and with which detail."""

from __future__ import annotations

from dataclasses import replace

from reconciler.core.anchors import Identity, Record, StoredOffset, record_timestamp
from reconciler.core.mirror_pairs import MirrorEvidence
from reconciler.core.verdicts import Finding
from reconciler.kafka.memory import MemoryLog
from tests.core.stories import BY_ID, Rec, anchor_of, ask, found, header_id, log_of


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
    assert found(finding) == ("moved", 2, 0, 0)
    assert finding.detail == "the next record carries the source's offset 6, and the job stopped at 6"
    assert (finding.record_offset, finding.record_fingerprint is not None) == (1, True)


def test_a_number_that_is_missing_at_the_source_changes_nothing() -> None:
    assert found(asked(log_of(*numbered(4, 5, 8, 9)), 7)) == ("moved", 2, 0, 0)


def test_what_was_sent_again_is_stepped_over_only_where_the_rest_comes_again() -> None:
    assert found(asked(log_of(*numbered(3, 4, 5, 6, 7, 4, 5, 6, 7, 8)), 6)) == ("moved", 7, 0, 0)
    assert found(asked(log_of(*numbered(3, 4, 5, 6, 7, 4, 5, 6)), 6)) == ("moved", 3, 2, 2)


def test_many_records_are_bisected() -> None:
    finding = asked(log_of(*numbered(*range(5000, 9000))), 7777)
    assert found(finding) == ("moved", 2777, 0, 0)


def test_a_number_after_the_last_mirrored_record_is_behind_unless_it_is_the_next_one() -> None:
    assert found(asked(log_of(*numbered(4, 5, 6)), 9)) == ("behind", 3, 0, 0)
    assert found(asked(log_of(*numbered(4, 5, 6)), 7)) == ("moved", 3, 0, 0)
    assert found(asked(log_of(), 7)) == ("behind", 0, 0, 0)


def test_local_records_behind_the_last_mirrored_one_are_not_skipped() -> None:
    finding = asked(log_of(*numbered(4, 5, 6, None, None)), 7)
    assert (finding.resume_offset, finding.replay_at_most) == (3, 2)


def test_deleted_unprocessed_records_are_lost() -> None:
    assert found(asked(log_of(*numbered(4, 5, 6, 7), deleted_before=2), 5))[:2] == ("lost", 2)
    assert found(asked(log_of(*numbered(4, 5, 6, 7), deleted_before=1), 5)) == ("moved", 1, 0, 0)


def test_records_without_a_number_prove_nothing() -> None:
    assert asked(log_of(*numbered(None, None)), 5).verdict.value == "unresolved"


def test_a_number_of_the_destination_is_not_looked_for_at_the_source() -> None:
    assert asked(log_of(*numbered(4, 5, 6, 7)), 6, of_source=False).verdict.value == "unresolved"


def test_a_number_that_may_be_the_destinations_own_bounds_the_place() -> None:
    finding = asked(log_of(*numbered(0, 1, 1, 2, 3)), 2, own=2)
    assert (finding.verdict.value, finding.resume_offset) == ("bounded", 2)


def test_an_anchor_of_another_number_contradicts_what_its_record_carries() -> None:
    records = numbered(4, 5, 6, 7)
    both = replace(BY_ID, source_value_of=number_of)
    right = anchor_of(records[1], both, offset=5)
    assert found(ask(log_of(*records), right, both)) == ("moved", 2, 0, 0)
    finding = ask(log_of(*records), replace(right, offset=9), both)
    assert finding.verdict.value == "unresolved"
    assert "carries the source's offset 5 instead of 9" in finding.detail


def test_numbers_that_begin_again_are_of_a_topic_that_was_recreated() -> None:
    again = [replace(record, value=b"other", ms=500 + n) for n, record in enumerate(numbered(1, 2, 3))]
    finding = asked(log_of(*numbered(3, 4, 5, 6, 7, 8), *again), 5)
    assert finding.verdict.value == "unresolved"
    assert "go back to 1 at 6, and that record was never here before" in finding.detail


def test_numbers_that_began_again_far_in_front_are_found_by_bisection() -> None:
    """The job stopped near the old topic's end, and the new one has grown beyond that number."""
    again = [replace(record, value=b"other", ms=5_000 + n) for n, record in enumerate(numbered(*range(1500)))]
    finding = asked(log_of(*numbered(*range(1000)), *again), 990)
    assert finding.verdict.value == "unresolved"
    assert "go back to 0 at 1,000, and that record was never here before" in finding.detail
    sent_again = log_of(*numbered(*range(1000)), *numbered(*range(500, 1500)))
    assert asked(sent_again, 990).resume_offset == 1490
