"""Whether a correction is written at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.verdicts import Finding, Verdict
from reconciler.failover.check import check
from reconciler.failover.checking.gather import Selected
from reconciler.failover.checking.rows import Corrections
from reconciler.failover.writing.apply import prepare
from reconciler.plan.document import PartitionPlan
from reconciler.ports import Row, TopicPartition, Traits
from reconciler.state.stored import Stored
from tests.in_memory import GROUP, Memory, stored, write_all

SOURCE, DESTINATION = TopicPartition("events", 0), TopicPartition("a.events", 0)
HERE, THERE = "cluster-b", "cluster-a"
CORRECTIONS = Corrections(HERE, new=False, traits=Traits())
NEEDING_ROWS = replace(CORRECTIONS, new=True)
IN_COPY = Corrections(HERE, new=False, traits=Traits(corrected_in_copy=True))


def row(key: TopicPartition, next_offset: int, cluster: str | None = None) -> Row:
    """A stored row; with ``cluster`` its anchor is the record before the offset, in that cluster's numbering."""
    named = Anchor(next_offset - 1, 5, cluster_id=cluster) if cluster else None
    return Row(key, StoredOffset(next_offset, named), "1")


OURS, UNREAD = row(DESTINATION, 7, HERE), Row(SOURCE, StoredOffset(0, Anchor(cluster_id=THERE)), "1")


def test_offset_zero_of_a_log_without_records_is_unread_and_so_is_a_sentinel() -> None:
    assert StoredOffset(-1).is_unread
    assert StoredOffset(0, Anchor(cluster_id=THERE)).is_unread
    assert not StoredOffset(0).is_unread
    assert not StoredOffset(1, Anchor(cluster_id=THERE)).is_unread
    assert not StoredOffset(0, Anchor(offset=0, timestamp_ms=5, names=Names.NEXT)).is_unread


# ---------------------------------------------------------------- writing


def planned(verdict: Verdict, resume: int | None, stored: Row | None, *, by_hand: bool = False) -> PartitionPlan:
    finding = Finding(verdict, resume, None if resume is None else 0)
    return PartitionPlan.of(
        finding,
        source_topic="events",
        key=TopicPartition("a.events", 0),
        topic_id=None,
        stored=stored.stored if stored else None,
        probes=1,
        rounds=1,
        set_by_hand=by_hand,
    )


FOREIGN, BESIDE = row(DESTINATION, 50, THERE), row(SOURCE, 7, THERE)


@pytest.mark.parametrize(
    ("row_of_plan", "selected", "expected"),
    [
        (planned(Verdict.EXACT, 7, OURS), Selected(OURS, OURS), [False, False]),
        (planned(Verdict.EXACT, 7, BESIDE), Selected(BESIDE, None), [True, True]),
        (planned(Verdict.EXACT, 7, FOREIGN), Selected(FOREIGN, FOREIGN), [True, True]),
        (planned(Verdict.EXACT, 3, OURS, by_hand=True), Selected(OURS, OURS), [True, True]),
        (planned(Verdict.NEW, 0, None), Selected(None, None), [False, True]),
        (planned(Verdict.NEW, 3, UNREAD), Selected(UNREAD, None), [True, True]),
        (planned(Verdict.NEW, 5, None, by_hand=True), Selected(None, None), [True, True]),
        (planned(Verdict.UNRESOLVED, None, BESIDE, by_hand=True), Selected(BESIDE, None), [False, False]),
    ],
    ids=[
        *("right in its place", "a match under the source's name", "moved", "a match that a person moved"),
        *("a new partition", "a job at offset 0 of an empty log", "new, set by a person", "unresolved"),
    ],
)
def test_what_is_written(row_of_plan: PartitionPlan, selected: Selected, expected: list[bool]) -> None:
    """Where a new partition needs no row, and where the policy or the store needs one."""
    assert [each.include(row_of_plan, selected) for each in (CORRECTIONS, NEEDING_ROWS)] == expected


def test_a_number_that_only_the_job_writes_begins_a_stay_where_its_place_holds_a_later_one_that_is_not_believed() -> (
    None
):
    """Else the records up to the later one, which may be processed, were forgotten once the job has written anew."""
    by_job = replace(CORRECTIONS, traits=Traits(corrected_by_job=True))
    later, known = row(DESTINATION, 9), Stored(7, Anchor(6), again=2, ahead=2)
    found = [Selected(OURS, later, recorded=known, is_beyond=each) for each in (False, True)]
    assert [by_job.include(planned(Verdict.EXACT, 7, OURS), each) for each in found] == [False, True]


def test_a_checkpoint_is_copied_although_its_offsets_are_right_unless_it_is_a_copy_for_this_cluster() -> None:
    """A batch that it repeats may end at another offset here."""
    rows = [row(DESTINATION, 7, THERE), row(DESTINATION, 7, HERE), row(DESTINATION, 7)]

    def written(made: Corrections) -> list[bool]:
        return [made.include(planned(Verdict.EXACT, 7, each), Selected(each, each)) for each in rows]

    assert written(CORRECTIONS) == [False, False, False]
    assert written(IN_COPY) == [True, False, True]


@pytest.mark.parametrize(
    ("store", "new", "expected"),
    [
        ("sqlite:///offsets.db", "earliest", False),
        ("sqlite:///offsets.db", "latest", True),
        ("kafka-group:", "earliest", True),
        ("kafka-group:", "latest", True),
    ],
)
def test_a_job_that_would_start_a_new_partition_elsewhere_needs_a_row(
    memory: Memory, store: str, new: str, expected: bool
) -> None:
    job = (
        f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\n'
        f'topics = ["events"]\noffsets = "{store}"\nnew = "{new}"\n'
    )
    config = memory.config(jobs=job)
    assert Corrections.of(config, config.jobs[0], HERE).new is expected


def test_a_consumer_group_gets_a_commit_for_a_new_partition_once(wide: Memory) -> None:
    """Without one it would start there at the latest record, by Kafka's default for ``auto.offset.reset``."""
    job = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "kafka-group:"\n'
    config = wide.config(jobs=job)
    for partition in range(3):
        wide.deliver(range(9), partition)
    wide.log.partition("a.events", 2).delete_before(4)
    wide.save({0: StoredOffset(3, stored(5).anchor)}, topic="a.events")
    checked = check(config, config.jobs, wide.outside)
    write_all(prepare(checked.plan, config, wide.outside), checked.plan, config, wide.outside)
    assert [(row.key.partition, row.stored.offset) for row in wide.rows()] == [(0, 6), (1, 0), (2, 4)]
    wide.moved = True
    again = check(wide.config(jobs=job), wide.config(jobs=job).jobs, wide.outside)
    assert [row.finding for row in again.plan.jobs[0].partitions] == [Verdict.EXACT] * 3
    assert not again.to_write
