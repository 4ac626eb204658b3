"""Which stored row speaks for a partition, how old its anchor is, and whether a correction is written at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.verdicts import Finding, Verdict
from reconciler.failover.check import check
from reconciler.failover.selection import Corrections, Selected, anchor_lag, by_key, is_unread, select
from reconciler.failover.writing.apply import prepare, write
from reconciler.failover.writing.rollback import prepare_rollback
from reconciler.formats.plan import PartitionPlan
from reconciler.ports import Row, TopicPartition
from tests.in_memory import GROUP, Memory, on_disk, stored

SOURCE, DESTINATION = TopicPartition("events", 0), TopicPartition("a.events", 0)
HERE, THERE = "cluster-b", "cluster-a"
CORRECTIONS = Corrections(HERE, new=False, in_copy=False, anchors_right=True)
NEEDING_ROWS = replace(CORRECTIONS, new=True)
IN_COPY = Corrections(HERE, new=False, in_copy=True, anchors_right=False)


def row(
    key: TopicPartition, next_offset: int, cluster: str | None = None, at: int | None = None, **anchor: object
) -> Row:
    """A stored row; with ``cluster`` its anchor is the record before the offset, in that cluster's numbering."""
    named = (
        Anchor(**{"offset": next_offset - 1, "timestamp_ms": 5, "cluster_id": cluster, **anchor}) if cluster else None
    )
    return Row(key, StoredOffset(next_offset, named, at), "1")


def chosen(*rows: Row, source: TopicPartition = SOURCE) -> Selected:
    return select(by_key(rows), source, DESTINATION, HERE)


# ---------------------------------------------------------------- choosing


def test_without_stored_rows_nothing_is_selected() -> None:
    selected = chosen()
    assert (selected.row, selected.replaced, selected.stored) == (None, None, None)


def test_the_first_failover_goes_by_the_sources_row_and_replaces_none() -> None:
    theirs = row(SOURCE, 50, THERE)
    assert chosen(theirs) == Selected(theirs, None)
    assert chosen(theirs).stored == theirs.stored


def test_a_row_of_the_destinations_name_alone_speaks_and_is_replaced() -> None:
    ours = row(DESTINATION, 7)
    assert chosen(ours) == Selected(ours, ours)


def test_one_name_on_both_sides_is_one_row() -> None:
    only = row(DESTINATION, 50, THERE)
    assert chosen(only, source=DESTINATION) == Selected(only, only)


def test_after_a_failover_the_jobs_own_row_wins() -> None:
    theirs, ours = row(SOURCE, 50, THERE, at=100), row(DESTINATION, 7, HERE, at=200)
    assert chosen(theirs, ours) == Selected(ours, ours)


def test_a_job_that_went_back_since_is_where_it_wrote_last() -> None:
    theirs, ours = row(SOURCE, 90, THERE, at=300), row(DESTINATION, 7, HERE, at=200)
    assert chosen(theirs, ours) == Selected(theirs, ours)


@pytest.mark.parametrize(("theirs_at", "ours_at"), [(None, None), (None, 5), (5, 5)])
def test_without_a_later_time_the_own_row_stays(theirs_at: int | None, ours_at: int | None) -> None:
    ours = row(DESTINATION, 7, HERE, at=ours_at)
    assert chosen(row(SOURCE, 50, THERE, at=theirs_at), ours).row == ours


def test_a_later_row_that_cannot_be_checked_does_not_displace_the_own_one() -> None:
    ours = row(DESTINATION, 7, HERE, at=200)
    assert chosen(row(SOURCE, 90, at=300), ours).row == ours


def test_the_row_that_counts_says_that_a_later_one_without_an_anchor_does_not() -> None:
    ours, late = row(DESTINATION, 7, HERE, at=200), row(SOURCE, 90, at=60_000)
    assert chosen(late, ours).row == replace(
        ours, note="offset 90 of events-0 was stored later, and does not count without an anchor"
    )
    assert chosen(row(SOURCE, -1, at=60_000), ours).row == ours, "nothing was read there"
    theirs, bare = row(SOURCE, 50, THERE, at=100), replace(row(DESTINATION, 7, at=60_000), note="")
    assert chosen(replace(theirs, note="x"), bare).row == replace(
        theirs, note="x; offset 7 of a.events-0 was stored later, and does not count without an anchor"
    )


@pytest.mark.parametrize("theirs", [row(SOURCE, 50, THERE, at=100), row(SOURCE, 50, "x", at=100, cluster_id=None)])
def test_the_later_row_of_a_third_cluster_speaks_whatever_cluster_the_sources_row_names(theirs: Row) -> None:
    """The work since would be repeated unseen."""
    ours = row(DESTINATION, 7, "rebuilt", at=200)
    assert chosen(theirs, ours) == Selected(ours, ours)
    earlier = row(DESTINATION, 7, "rebuilt", at=50)
    assert chosen(theirs, earlier) == Selected(theirs, earlier)


def test_an_anchor_beats_a_translated_offset() -> None:
    theirs, ours = row(SOURCE, 50, THERE, at=100), row(DESTINATION, 7, at=200)
    assert chosen(theirs, ours) == Selected(theirs, ours)


def test_the_anchor_may_be_on_the_destinations_row_only() -> None:
    theirs, ours = row(SOURCE, 50), row(DESTINATION, 7, THERE)
    assert chosen(theirs, ours) == Selected(ours, ours)


# ---------------------------------------------------------------- lag


def lag(stored: Row, *, translated: bool = False) -> int:
    return anchor_lag(stored, SOURCE, HERE, translated=translated)


def test_an_anchor_right_before_its_offset_does_not_lag() -> None:
    assert lag(row(SOURCE, 50, THERE)) == 0


def test_an_older_anchor_lags_by_the_offsets_between() -> None:
    assert lag(row(SOURCE, 50, THERE, offset=44)) == 5


def test_an_anchor_behind_the_offset_shows_as_negative() -> None:
    assert lag(row(SOURCE, 50, THERE, offset=50)) == -1


def test_the_jobs_own_row_has_one_numbering_too() -> None:
    assert lag(row(DESTINATION, 50, HERE, offset=40)) == 9


def test_a_translated_offset_and_the_sources_anchor_have_no_difference_that_means_anything() -> None:
    assert lag(row(DESTINATION, 50, THERE, offset=4_000)) == 0


def test_in_a_store_that_the_mirror_writes_only_the_jobs_own_rows_have_one_numbering() -> None:
    assert lag(row(SOURCE, 50, THERE, offset=4_000), translated=True) == 0
    assert lag(row(SOURCE, 50, HERE, offset=40), translated=True) == 9


def test_only_an_anchor_of_a_record_can_lag() -> None:
    assert lag(row(SOURCE, 50)) == 0
    assert lag(row(SOURCE, 50, THERE, offset=None)) == 0
    assert lag(row(SOURCE, 50, THERE, offset=10, names=Names.MAX_TIME)) == 0


def test_an_anchor_of_the_next_record_lags_where_the_offset_is_behind_that() -> None:
    """As in the lines of a tracked job that has gone on. A record behind the offset comes after a gap."""
    found = {offset: lag(row(SOURCE, 50, THERE, offset=offset, names=Names.NEXT)) for offset in (44, 50, 53)}
    assert found == {44: 6, 50: 0, 53: 0}
    assert lag(row(DESTINATION, 50, THERE, offset=44, names=Names.NEXT)) == 0


def test_a_flowlets_anchor_is_of_the_stored_offset_wherever_a_search_may_begin() -> None:
    hinted = Anchor(offset=7, id=b"3", names=Names.NEXT)
    assert lag(Row(SOURCE, StoredOffset(50, hinted, None), "1")) == 0


def test_a_store_that_knows_what_an_anchor_was_made_for_says_how_much_it_lags() -> None:
    """A gap parts the numbers of an exact pair, and what names the next record may lag as well."""
    assert lag(replace(row(SOURCE, 50, THERE, offset=44), anchor_lag=0)) == 0
    assert lag(replace(row(SOURCE, 50, THERE, offset=44, names=Names.NEXT), anchor_lag=6)) == 6
    assert lag(replace(row(SOURCE, 50), anchor_lag=6)) == 0


def test_offset_zero_of_a_log_without_records_is_unread_and_so_is_a_sentinel() -> None:
    assert is_unread(None)
    assert is_unread(StoredOffset(-1))
    assert is_unread(StoredOffset(0, Anchor(cluster_id=THERE)))
    assert not is_unread(StoredOffset(0))
    assert not is_unread(StoredOffset(1, Anchor(cluster_id=THERE)))
    assert not is_unread(StoredOffset(0, Anchor(offset=0, timestamp_ms=5, names=Names.NEXT)))


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


def test_what_is_right_in_its_place_is_not_written() -> None:
    ours = row(DESTINATION, 7, HERE)
    assert not NEEDING_ROWS.include(planned(Verdict.MATCH, 7, ours), Selected(ours, ours))


def test_a_match_under_the_sources_name_is_written_where_the_job_will_look() -> None:
    theirs = row(SOURCE, 7, THERE)
    assert CORRECTIONS.include(planned(Verdict.MATCH, 7, theirs), Selected(theirs, None))


def test_a_moved_offset_is_written() -> None:
    ours = row(DESTINATION, 50, THERE)
    assert CORRECTIONS.include(planned(Verdict.MOVED, 7, ours), Selected(ours, ours))


def test_a_match_that_a_person_moved_is_written() -> None:
    ours = row(DESTINATION, 7, HERE)
    assert CORRECTIONS.include(planned(Verdict.MATCH, 3, ours, by_hand=True), Selected(ours, ours))


@pytest.mark.parametrize("new", [True, False])
def test_a_new_partition_is_written_as_the_policy_needs(new: bool) -> None:
    corrections = Corrections(HERE, new, in_copy=False, anchors_right=True)
    assert corrections.include(planned(Verdict.NEW, 0, None), Selected(None, None)) is new


def test_under_one_name_a_match_is_written_if_its_next_number_would_be_taken_for_the_other_clusters() -> None:
    """A bare number with a kept anchor: that is how it is told whose it is. An anchor of its own comes with each."""
    own, kept = row(DESTINATION, 7, THERE), replace(row(DESTINATION, 7, THERE), anchor_lag=0)
    here, bare = replace(row(DESTINATION, 7, HERE), anchor_lag=0), row(DESTINATION, 7)

    def written(made: Corrections) -> list[bool]:
        return [made.include(planned(Verdict.MATCH, 7, each), Selected(each, each)) for each in (own, kept, here, bare)]

    assert written(CORRECTIONS) == [False, True, False, False]
    assert written(IN_COPY) == [True, True, False, True]


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
    job = f'[[jobs]]\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\nstore = "{store}"\nnew = "{new}"\n'
    config = memory.config(jobs=job)
    assert Corrections.of(config, config.jobs[0], HERE).new is expected


def test_a_consumer_group_gets_a_commit_for_a_new_partition_once(wide: Memory) -> None:
    """Without one it would start there at the latest record, by Kafka's default for ``auto.offset.reset``."""
    job = f'[[jobs]]\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\nstore = "kafka-group:"\n'
    config = wide.config(jobs=job)
    for partition in range(3):
        wide.deliver(range(9), partition)
    wide.log.partition("a.events", 2).delete_before(4)
    wide.save({0: StoredOffset(3, stored(5).anchor)}, topic="a.events")
    checked = check(config, config.jobs, wide.outside)
    path = on_disk(checked.plan, wide.folder / "p.json")
    write(prepare(checked.plan, config, wide.outside), checked.plan, path, wide.outside)
    assert [(row.key.partition, row.stored.offset) for row in wide.rows()] == [(0, 6), (1, 0), (2, 4)]
    again = check(config, config.jobs, wide.outside)
    assert [row.verdict for row in again.plan.jobs[0].partitions] == [Verdict.MATCH] * 3
    assert not again.to_write
    (back,) = prepare_rollback(checked.plan, path, config, wide.outside)
    assert [(each.key.partition, each.before and each.before.offset) for each in back.returns] == [
        (0, 3),
        (1, None),
        (2, None),
    ]


def test_a_job_that_stood_at_offset_zero_gets_a_row_whatever_the_policy_for_new_partitions() -> None:
    unread = Row(SOURCE, StoredOffset(0, Anchor(cluster_id=THERE)), "1")
    assert CORRECTIONS.include(planned(Verdict.NEW, 3, unread), Selected(unread, None))


def test_a_new_partition_that_a_person_set_is_always_written() -> None:
    assert CORRECTIONS.include(planned(Verdict.NEW, 5, None, by_hand=True), Selected(None, None))


@pytest.mark.parametrize("verdict", [Verdict.UNRESOLVED, Verdict.MISSING])
def test_what_was_not_found_is_never_written(verdict: Verdict) -> None:
    theirs = row(SOURCE, 7, THERE)
    assert not NEEDING_ROWS.include(planned(verdict, None, theirs, by_hand=True), Selected(theirs, None))
