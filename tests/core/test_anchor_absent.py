"""The anchor's record is not at the destination, or only its time is known: time decides, and skips nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reconciler.config.identity import identity_from_spec
from reconciler.core.anchors import Anchor, Identity, Names, StoredOffset
from reconciler.core.question import Question, StartAt, StartPlace
from reconciler.core.timebound import remap
from reconciler.ports import TopicPartition
from tests.core.stories import (
    BY_CONTENT,
    BY_ID,
    HERE,
    HERE_TOPIC,
    PLACE,
    Rec,
    anchor_of,
    answer,
    ask,
    content_only,
    event,
    found,
    letters,
    log_of,
    time_only,
)
from tests.memory_log import MemoryLog

A, B, C, D, E = letters("abcde")
NAMED = pytest.mark.parametrize("identity", [BY_ID, BY_CONTENT], ids=["id", "fingerprint"])


@NAMED
def test_a_mirror_that_stopped_early_is_behind_and_the_job_starts_at_the_end(identity: Identity) -> None:
    assert found(ask(log_of(A, B), anchor_of(D, identity), identity)) == ("behind", 2, 0, 0)


@NAMED
def test_retention_past_the_anchor_is_a_loss_that_stops(identity: Identity) -> None:
    finding = ask(log_of(A, B, C, D, E, deleted_before=3), anchor_of(B, identity), identity)
    assert (finding.verdict.value, finding.resume_offset) == ("lost", 3)
    assert finding.record_offset is None


def test_everything_deleted_is_a_loss_where_the_anchors_time_is_known() -> None:
    finding = ask(log_of(A, B, deleted_before=2), anchor_of(B))
    assert (finding.verdict.value, finding.resume_offset) == ("lost", 2)


def test_an_empty_partition_is_behind() -> None:
    assert found(ask(log_of(), anchor_of(B))) == ("behind", 0, 0, 0)
    assert found(ask(log_of(), content_only(B), BY_CONTENT)) == ("behind", 0, 0, 0)
    assert found(ask(log_of(), time_only(B))) == ("behind", 0, 0, 0)


def test_the_next_record_is_not_there_yet() -> None:
    assert found(ask(log_of(A, B), anchor_of(C, names=Names.NEXT))) == ("behind", 2, 0, 0)


def test_an_anchor_without_name_and_time_is_unresolved() -> None:
    finding = ask(log_of(A, B), Anchor(700, cluster_id="source"))
    assert found(finding) == ("unresolved", None, None, None)


# ---------------------------------------------------------------- no anchor, no offset, other partition counts


def test_an_offset_without_an_anchor_is_unresolved() -> None:
    assert found(ask(log_of(A, B), StoredOffset(17))) == ("unresolved", None, None, None)


def test_an_offset_without_an_anchor_uses_the_rows_own_time_if_the_policy_says_so() -> None:
    finding = ask(log_of(A, B, C, D), StoredOffset(17, written_at_ms=120), by_row_time=True)
    assert (finding.verdict.value, finding.resume_offset) == ("early", 2)


def test_an_unknown_row_time_is_unresolved() -> None:
    assert found(ask(log_of(A, B), StoredOffset(17), by_row_time=True))[0] == "unresolved"


@pytest.mark.parametrize(
    "stored", [None, StoredOffset(-1), StoredOffset(-2), StoredOffset(-1, Anchor(cluster_id="source"))]
)
def test_a_new_partition_or_a_sentinel_starts_at_the_earliest_record(stored: StoredOffset | None) -> None:
    assert found(ask(log_of(A, B, C, deleted_before=1), stored)) == ("new", 1, 0, 0)


def test_a_new_partition_starts_where_the_policy_says() -> None:
    log = log_of(A, B, C, deleted_before=1)
    assert found(ask(log, None, new=StartAt(StartPlace.LATEST))) == ("new", 3, 0, 0)
    assert found(ask(log, None, new=StartAt(StartPlace.TIME, 115))) == ("new", 2, 0, 0)
    assert found(ask(log, None, new=StartAt(StartPlace.TIME, 5))) == ("new", 1, 0, 0)
    assert found(ask(log, None, new=StartAt(StartPlace.TIME, -1))) == ("new", 1, 0, 0)  # to a broker -1 is the end
    assert found(ask(log, None, new=StartAt(StartPlace.TIME, 9999))) == ("new", 3, 0, 0)


def test_a_log_that_grows_before_the_policy_s_time_is_looked_up_is_no_bug() -> None:
    """The record of that time was not there when the log's end was asked: nothing repeats."""
    log = log_of(A, B)

    class Growing(MemoryLog):
        def offsets_for_times(self, asked: Sequence[tuple[TopicPartition, int]]) -> Sequence[int | None]:
            for ms in (120, 130):
                self.partitions[PLACE].append(ms, None, b"new")
            return super().offsets_for_times(asked)

    log.__class__ = Growing
    finding = ask(log, None, new=StartAt(StartPlace.TIME, 130), no_rows=True)
    assert found(finding) == ("new", 3, 0, 0)
    assert finding.detail.endswith("3 records before it skipped, by policy")


def test_different_partition_counts_resume_by_the_earliest_anchor() -> None:
    """Anchors at 110 and 130: c and d may be of either partition, so all from b's time on is read."""
    log, question = log_of(A, B, C, D, E), Question(None, HERE, HERE_TOPIC)
    finding = answer(log, lambda: remap(question, 110, 130)).finding
    assert found(finding) == ("early", 1, 3, None)


def test_different_partition_counts_and_an_expired_prefix_are_a_loss() -> None:
    log, question = log_of(A, B, C, D, deleted_before=2), Question(None, HERE, HERE_TOPIC)
    assert answer(log, lambda: remap(question, 110, 130)).finding.verdict.value == "lost"


# ---------------------------------------------------------------- an anchor that other identity settings made


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
    assert finding.verdict.value in ("early", "lost")
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
