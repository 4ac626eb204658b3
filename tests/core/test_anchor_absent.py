"""The anchor's record is not at the destination, or only its time is known: time decides, and skips nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reconciler.core.anchors import Anchor, Identity, Names, StoredOffset
from reconciler.core.policies import StartPlace
from reconciler.core.question import Limits, Question, StartAt
from reconciler.core.timebound import remap
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import TopicPartition
from tests.core.stories import (
    BY_CONTENT,
    BY_EVENT_TIME,
    BY_ID,
    BY_INCREASING_ID,
    HERE,
    HERE_TOPIC,
    PLACE,
    Marker,
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

A, B, C, D, E = letters("abcde")
NAMED = pytest.mark.parametrize("identity", [BY_ID, BY_CONTENT], ids=["id", "fingerprint"])


@NAMED
def test_a_mirror_that_stopped_early_is_behind_and_the_job_starts_at_the_end(identity: Identity) -> None:
    assert found(ask(log_of(A, B), anchor_of(D, identity), identity)) == ("behind", 2, 0, 0)


@NAMED
def test_local_writes_after_a_mirror_that_stopped_early_are_all_read(identity: Identity) -> None:
    log = log_of(A, B, Rec("local-1", 900), Rec("local-2", 910))
    assert found(ask(log, anchor_of(D, identity), identity)) == ("behind", 2, 0, 0)


def test_increasing_ids_prove_behind_without_any_time() -> None:
    names = [replace(record, id=b"%d" % ord(record.name)) for record in (A, B, D)]
    anchor = replace(anchor_of(names[2]), timestamp_ms=None)
    assert found(ask(log_of(*names[:2]), anchor, BY_INCREASING_ID)) == ("behind", 2, 0, 0)


def test_increasing_ids_find_the_place_of_an_anchor_that_was_compacted_away() -> None:
    names = [replace(record, id=b"%d" % ord(record.name)) for record in (A, B, C, D, E)]
    finding = ask(log_of(*names, compacted=[2]), anchor_of(names[2]), BY_INCREASING_ID)
    assert (finding.resume_offset, finding.replay_at_most, finding.replay_exact) == (3, 0, 0)


def test_increasing_ids_without_time_find_the_place_of_a_compacted_anchor() -> None:
    names = [replace(record, id=b"%d" % ord(record.name)) for record in (A, B, C, D, E)]
    anchor = replace(anchor_of(names[2]), timestamp_ms=None)
    finding = ask(log_of(*names, compacted=[2]), anchor, BY_INCREASING_ID)
    assert finding.resume_offset in (2, 3)
    assert finding.replay_at_most == 0


@NAMED
def test_an_anchor_compacted_away_is_replaced_by_its_time(identity: Identity) -> None:
    tie = [Rec(name, 500) for name in "pqr"]
    finding = ask(log_of(A, *tie, Rec("z", 900), compacted=[2]), anchor_of(tie[1], identity), identity)
    assert found(finding) == ("bounded", 1, 2, None)


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


def test_a_stated_disorder_moves_the_bound_to_a_safe_offset() -> None:
    """d is dated 30 before the anchor c but stands behind it: with the disorder stated, nothing is skipped."""
    log = log_of(Rec("a", 100), Rec("b", 150), Rec("d", 170), Rec("e", 220))
    finding = ask(log, anchor_of(Rec("c", 200)), limits=Limits(30))
    assert finding.resume_offset is not None
    assert finding.resume_offset <= 2


def test_an_unshared_time_alone_still_reads_its_record_again() -> None:
    """The record that is there could be another one of the same millisecond: land early, never late."""
    finding = ask(log_of(A, B, C), time_only(B))
    assert (finding.resume_offset, finding.replay_at_most) == (1, 1)


def test_time_alone_counts_processed_records_before_the_anchor() -> None:
    """x is dated after the anchor a but stands before it, so both repeat. No disorder was stated."""
    x, a, b = Rec("x", 600), Rec("a", 500), Rec("b", 700)
    finding = ask(log_of(x, a, b), time_only(a))
    assert finding.resume_offset == 0
    assert finding.replay_at_most is not None
    assert finding.replay_at_most >= 2


def test_a_scan_that_ended_early_counts_processed_records_before_the_anchor() -> None:
    x, y, a, b = Rec("x", 600), Rec("y", 650), Rec("a", 500), Rec("b", 700)
    finding = ask(log_of(x, y, a, b), anchor_of(a), limits=Limits(0, 1, 100))
    assert finding.resume_offset == 0
    assert finding.replay_at_most is not None
    assert finding.replay_at_most >= 3


def test_the_largest_event_time_resumes_at_the_first_record_that_may_be_new() -> None:
    """Processed: 100, 180, 150; the largest is 180. 160 comes next, within the stated disorder."""
    log = log_of(*(Rec(f"r{ms}", ms) for ms in (100, 180, 150, 160, 220)))
    finding = ask(log, time_only(Rec("max", 180), Names.MAX_TIME), limits=Limits(30))
    assert finding.resume_offset == 1
    assert finding.replay_at_most is not None
    assert finding.replay_at_most >= 2


def test_a_largest_event_time_that_no_record_reaches_is_behind() -> None:
    assert found(ask(log_of(A, B), time_only(Rec("max", 900), Names.MAX_TIME))) == ("behind", 2, 0, 0)


def test_the_next_record_is_not_there_yet() -> None:
    assert found(ask(log_of(A, B), anchor_of(C, names=Names.NEXT))) == ("behind", 2, 0, 0)


def test_an_old_anchor_that_is_absent_still_bounds_the_replay() -> None:
    """The anchor b was compacted away; c and d were processed after it was recorded, and are there."""
    finding = ask(log_of(A, C, D, E), anchor_of(B), anchor_lag=2)
    assert finding.resume_offset is not None
    assert finding.replay_at_most is not None
    assert finding.replay_at_most >= 2


def test_markers_with_wall_clock_time_skip_nothing_when_the_anchor_is_absent() -> None:
    finding = ask(log_of(A, Marker(10**12), B, Marker(10**12), D, Marker(10**12)), anchor_of(C))
    assert finding.resume_offset is not None
    assert finding.resume_offset <= 4
    assert finding.replay_at_most == 0


def test_event_time_decides_when_the_anchor_is_absent() -> None:
    log = log_of(event("a", 100, 105), event("b", 110, 118), event("d", 130, 131))
    assert found(ask(log, anchor_of(event("c", 120, 122), BY_EVENT_TIME), BY_EVENT_TIME)) == ("behind", 2, 0, 0)


def test_an_anchor_without_name_and_time_is_unresolved() -> None:
    finding = ask(log_of(A, B), Anchor(700, cluster_id="source"))
    assert found(finding) == ("unresolved", None, None, None)


def test_absent_content_without_a_time_is_never_guessed() -> None:
    """Only the log's start would be safe, if anything is."""
    finding = ask(log_of(A, B), content_only(D), BY_CONTENT)
    assert finding.resume_offset in (None, 0)
    assert finding.verdict.value in ("unresolved", "bounded", "lost")


# ---------------------------------------------------------------- no anchor, no offset, other partition counts


def test_an_offset_without_an_anchor_is_unresolved() -> None:
    assert found(ask(log_of(A, B), StoredOffset(17))) == ("unresolved", None, None, None)


def test_an_offset_without_an_anchor_uses_the_rows_own_time_if_the_policy_says_so() -> None:
    finding = ask(log_of(A, B, C, D), StoredOffset(17, written_at_ms=120), by_row_time=True)
    assert (finding.verdict.value, finding.resume_offset) == ("bounded", 2)


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
    assert found(finding) == ("remapped", 1, 3, None)


def test_different_partition_counts_and_an_expired_prefix_are_a_loss() -> None:
    log, question = log_of(A, B, C, D, deleted_before=2), Question(None, HERE, HERE_TOPIC)
    assert answer(log, lambda: remap(question, 110, 130)).finding.verdict.value == "lost"
