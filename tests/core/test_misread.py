"""Identity settings that differ from those of the anchors are reported as such, not as an absent record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import Identity
from reconciler.identity import identity_from_spec
from tests.core.stories import BY_ID, Rec, anchor_of, ask, event, letters, log_of

A, B, C, D, E = letters("abcde")
MISSPELT = identity_from_spec(id="header:mesage-id")


@pytest.mark.parametrize(
    ("identity", "what"),
    [
        (MISSPELT, 'has the header "mesage-id": check [jobs.identity] id; '),
        (identity_from_spec(id="json:$.id"), "has a value at $.id: check [jobs.identity] id; "),
        (identity_from_spec(id="key"), "has a key: check [jobs.identity] id; "),
        (identity_from_spec(id="header:mesage-id", id_order="increasing"), 'the header "mesage-id": check'),
    ],
)
def test_the_detail_names_the_id_setting_if_no_record_read_has_an_id(identity: Identity, what: str) -> None:
    finding = ask(log_of(A, B, C, D, E), anchor_of(C), identity)
    assert finding.verdict.value in ("bounded", "lost")
    assert "anchors have ids, and none of the " in finding.detail
    assert what in finding.detail
    assert "not in the destination" not in finding.detail


def test_the_record_is_not_taken_to_be_absent_so_nothing_is_skipped_and_all_may_repeat() -> None:
    finding = ask(log_of(A, B, C, D, E), anchor_of(C), MISSPELT)
    assert finding.resume_offset is not None
    assert finding.resume_offset <= 3
    assert finding.replay_at_most is not None
    assert finding.replay_at_most >= 3 - finding.resume_offset


def test_the_detail_names_the_id_setting_if_the_anchors_record_has_another_id() -> None:
    keyed = [replace(record, key=b"k") for record in (A, B, C, D, E)]
    finding = ask(log_of(*keyed), anchor_of(keyed[2]), identity_from_spec(id="key"))
    assert "offset 2 has the anchor's content and time, and another id: check [jobs.identity] id" in finding.detail


def test_the_detail_names_the_timestamp_setting_if_no_record_read_has_a_time() -> None:
    records = [event(name, 1_000 + number, 1_000 + number) for number, name in enumerate("abcde")]
    right = identity_from_spec(timestamp="json:$.ts")
    finding = ask(log_of(*records), anchor_of(records[2], right), identity_from_spec(timestamp="json:$.tss"))
    assert "anchors have times, and none of the 5 records read has a value at $.tss: check" in finding.detail


def test_an_anchor_that_is_truly_absent_is_told_so() -> None:
    assert "the anchor's record is not in the destination" in ask(log_of(A, B, D, E), anchor_of(C), BY_ID).detail


def test_records_of_which_one_has_an_id_are_no_sign() -> None:
    bare = [replace(record, headers=()) for record in (D, E)]
    finding = ask(log_of(A, B, *bare, Rec("f", 160)), anchor_of(C), BY_ID)
    assert "the anchor's record is not in the destination" in finding.detail
