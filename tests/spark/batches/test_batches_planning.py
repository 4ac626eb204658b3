"""The ranges that a batch reads, from stored rows and the log's edges. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.ports import ClusterInfo, Row, TopicInfo, TopicPartition
from reconciler.spark.batches.planning import Caps, LogEdges, OffsetRange, Policy, RangePlan, name_of, plan, share_out
from reconciler.spark.batches.reading import look_up_edges
from tests.memory_log import MemoryLog, MemoryPartition

HERE, THERE = "cluster-here", "cluster-there"


def a_log(*edges: tuple[int, int], topic: str = "events", topic_id: str | None = "id-1") -> LogEdges:
    """One topic, its partitions' first offsets and ends."""
    info = TopicInfo(topic, topic_id, tuple(range(len(edges))))
    at = [TopicPartition(topic, number) for number in range(len(edges))]
    return LogEdges(
        ClusterInfo(HERE, {topic: info}),
        {each: start for each, (start, _) in zip(at, edges, strict=True)},
        {each: end for each, (_, end) in zip(at, edges, strict=True)},
    )


def a_row(
    offset: int, partition: int = 0, *, cluster: str | None = HERE, topic_id: str | None = "id-1", topic: str = "events"
) -> tuple[TopicPartition, Row]:
    at = TopicPartition(topic, partition)
    anchor = None if cluster is None else Anchor(offset - 1, 1, None, "0" * 32, cluster, topic_id)
    return at, Row(at, StoredOffset(offset, anchor), "v1")


def planned(log: LogEdges, *rows: tuple[TopicPartition, Row], **how: object) -> RangePlan:
    return plan(dict(rows), log, ["events"], group="clicks", **how)  # type: ignore[arg-type]


def spans(found: RangePlan) -> list[tuple[int, int, int]]:
    return [(each.partition, each.from_offset, each.until_offset) for each in found.ranges]


def test_a_batch_goes_from_the_stored_offset_to_the_end():
    assert spans(planned(a_log((0, 30), (0, 20)), a_row(10), a_row(5, 1))) == [(0, 10, 30), (1, 5, 20)]


class Growing(MemoryLog):
    """A topic that gets its second partition while its edges are looked up."""

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        ends = super().log_ends(partitions)
        self.partitions.setdefault(TopicPartition("events", 1), MemoryPartition())
        return ends


def test_a_partition_that_is_added_during_the_look_has_edges_too():
    edges = look_up_edges(Growing(HERE, {"events": 1}), ["events"])
    assert edges.cluster.topics["events"].partitions == (0, 1)
    assert set(edges.starts) == set(edges.ends) == {TopicPartition("events", 0), TopicPartition("events", 1)}


def test_a_first_start_reads_everything_by_default():
    log = a_log((3, 30), (0, 20))
    assert spans(planned(log)) == [(0, 3, 30), (1, 0, 20)]
    latest = planned(log, policy=Policy(first="latest"))
    assert latest.ranges == ()
    assert latest.begin == {TopicPartition("events", 0): 30, TopicPartition("events", 1): 20}, "to be stored first"
    with pytest.raises(NeedsPerson, match="starts for the first time"):
        planned(log, policy=Policy(first="stop"))


def test_a_new_partition_is_read_from_its_start():
    log = a_log((0, 30), (2, 20))
    assert spans(planned(log, a_row(30))) == [(1, 2, 20)]
    assert spans(planned(log, a_row(30), policy=Policy(first="latest"))) == [(1, 2, 20)], "the group is not new"


def test_fewer_partitions_stop_the_job_unless_it_may_leave_them():
    rows = a_row(10), a_row(5, 1)
    with pytest.raises(NeedsPerson, match=r"events-1.*fewer partitions"):
        planned(a_log((0, 30)), *rows)
    found = planned(a_log((0, 30)), *rows, policy=Policy(fewer="leave"))
    assert (spans(found), found.left) == ([(0, 10, 30)], (TopicPartition("events", 1),))


def test_a_row_of_the_other_clusters_topic_of_this_name_stops_no_job_that_was_moved_here():
    found = planned(a_log((0, 30)), a_row(10), a_row(5, 1, cluster=THERE))
    assert (spans(found), found.left) == ([(0, 10, 30)], (TopicPartition("events", 1),))
    with pytest.raises(NeedsPerson, match=r"events-1.*fewer partitions"):
        planned(a_log((0, 30)), a_row(10, cluster=THERE), a_row(5, 1, cluster=THERE))


def test_retention_that_overtook_the_job_stops_it_with_the_number_of_lost_records():
    log = a_log((1_500, 3_000))
    with pytest.raises(NeedsPerson, match=r"1,490 records.*events-0:10-1500"):
        planned(log, a_row(10))
    found = planned(log, a_row(10), policy=Policy(overtaken="earliest"))
    assert spans(found) == [(0, 1_500, 3_000)]
    assert found.lost == (OffsetRange("events", 0, 10, 1_500),)


def test_an_offset_beyond_the_end_is_never_read_from():
    with pytest.raises(NeedsPerson, match="beyond the end"):
        planned(a_log((0, 30)), a_row(31))


def test_another_clusters_offset_is_never_read_from_though_it_fits():
    with pytest.raises(NeedsPerson, match=f"another cluster.*{THERE}.*reads from {HERE}"):
        planned(a_log((0, 30)), a_row(10, cluster=THERE))


def test_a_recreated_topic_is_noticed_by_its_id():
    with pytest.raises(NeedsPerson, match="recreated"):
        planned(a_log((0, 30), topic_id="id-2"), a_row(10))
    assert spans(planned(a_log((0, 30), topic_id=None), a_row(10))) == [(0, 10, 30)], "an old broker has no ids"


def test_a_group_that_was_not_moved_does_not_start_from_the_beginning():
    with pytest.raises(NeedsPerson, match="not moved here"):
        plan(dict([a_row(10, cluster=THERE)]), a_log((0, 30), topic="a.events"), ["a.events"], group="clicks")


# ---------------------------------------------------------------- caps


def test_caps_bound_a_batch_and_a_partition():
    log = a_log((0, 100), (0, 8), (0, 100))
    assert spans(planned(log, caps=Caps(per_partition=10))) == [(0, 0, 10), (1, 0, 8), (2, 0, 10)]
    found = planned(log, caps=Caps(per_run=60))
    assert spans(found) == [(0, 0, 26), (1, 0, 8), (2, 0, 26)]
    with pytest.raises(ConfigError):
        Caps(per_run=0)


def test_what_retention_takes_of_a_stretch_without_records_is_not_lost():
    """As a transaction's marker behind the last record, in a topic that is idle for longer than its retention."""
    at, log = TopicPartition("events", 0), a_log((30, 40))
    for known, read in (((20, 30), [(0, 30, 40)]), ((20, 35), [(0, 35, 40)])):
        found = planned(log, a_row(20), empty={(at, "id-1"): known})
        assert (spans(found), found.lost) == (read, ())
    with pytest.raises(NeedsPerson, match=r"up to 5 records .* are gone \(events-0:25-30\)"):
        planned(log, a_row(20), empty={(at, "id-1"): (20, 25)})
    with pytest.raises(NeedsPerson, match="up to 11 records"):
        planned(log, a_row(19), empty={(at, "id-1"): (20, 30)})


def test_only_stretches_known_to_be_empty_are_skipped():
    log, at = a_log((0, 100)), (TopicPartition("events", 0), "id-1")
    caps = Caps(per_partition=10)
    assert spans(planned(log, a_row(20), caps=caps, empty={at: (20, 30)})) == [(0, 30, 40)]
    assert spans(planned(log, a_row(15), caps=caps, empty={at: (20, 30)})) == [(0, 15, 25)], "the row was put back"
    assert spans(planned(log, a_row(40), caps=caps, empty={at: (20, 30)})) == [(0, 40, 50)]
    assert spans(planned(a_log((0, 25)), a_row(20), empty={at: (20, 30)})) == [(0, 20, 25)], "the log was cut"


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 200), st.integers(0, 10_000))
def test_shares_are_fair(wants: list[int], total: int, turn: int):
    given_ = share_out(wants, total, turn=turn)
    assert sum(given_) == min(total, sum(wants)), "nothing is held back"
    assert all(0 <= got <= want for got, want in zip(given_, wants, strict=True))
    short = [got for got, want in zip(given_, wants, strict=True) if got < want]
    assert all(got <= least + 1 for least in short for got in given_), "nobody gets more than one that goes short"


@given(st.integers(1, 12), st.integers(1, 12))
def test_no_partition_waits_for_more_runs_than_there_are_partitions(partitions: int, per_run: int):
    """Every run is a process of its own: only the stored rows decide whose turn it is."""
    log = a_log(*[(0, 1_000)] * partitions)
    stored = [0] * partitions
    for _ in range(partitions):
        rows = [a_row(offset, number) for number, offset in enumerate(stored) if offset]
        for each in planned(log, *rows, caps=Caps(per_run=per_run)).ranges:
            stored[each.partition] = each.until_offset
    assert all(stored)


# ---------------------------------------------------------------- names


def test_a_name_belongs_to_ranges_of_one_topic_on_one_cluster():
    log = a_log((0, 30), (0, 20))
    ranges = [OffsetRange("events", 0, 0, 30), OffsetRange("events", 1, 0, 20)]
    name = name_of(ranges, log.cluster)
    assert name == name_of(reversed(ranges), log.cluster) == "c5fcaa014414916f57fcf1fc98d9c7ed"
    others = [
        name_of(ranges[:1], log.cluster),
        name_of([ranges[0], OffsetRange("events", 1, 0, 21)], log.cluster),
        name_of(ranges, ClusterInfo(THERE, log.cluster.topics)),
        name_of(ranges, a_log((0, 30), (0, 20), topic_id="id-2").cluster),
    ]
    assert len({name, *others}) == 5
