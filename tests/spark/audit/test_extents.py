"""The extents of the clusters' logs over all stays, which cluster is which, and what no log shows. Logs in memory."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.errors import Changed, Unreachable
from reconciler.ports import TopicPartition
from reconciler.spark.audit.extents import Reach, ReachedLogs, find_uncompared, look_at
from reconciler.spark.audit.stays import Stays, find_stays
from reconciler.spark.batches.reading import ClusterAccess
from tests.memory_log import MemoryLog
from tests.spark.audit.plans import SAME, anchored, plan, row

AT, OTHER = TopicPartition("events", 0), TopicPartition("events", 1)
THERE = find_stays([plan(1, "A", "B", row(SAME, 0, 7, 5))])
THERE_AND_BACK = find_stays([plan(1, "A", "B", row(SAME, 0, 6, 4)), plan(2, "B", "A", row(SAME, 0, 7, 9))])


def log_of(cluster: str, records: int, partitions: int = 1) -> MemoryLog:
    """A log whose partitions have so many records each; another one has none."""
    log = MemoryLog(cluster)
    log.create("events", partitions + 1, "id")
    for partition in range(partitions):
        for number in range(records):
            log.partition("events", partition).append(number, b"k", b"%d" % number)
    return log


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> dict[str, MemoryLog]:
    """Twelve records on A, ten on B, by address; an address without a log does not answer."""
    made = {"A": log_of("A", 12), "B": log_of("B", 10)}

    def reader(access: ClusterAccess, *_: Any, **__: Any) -> MemoryLog:
        if access.bootstrap_servers not in made:
            raise Unreachable("Nobody answers.")
        return made[access.bootstrap_servers]

    monkeypatch.setattr(ClusterAccess, "reader", reader)
    return made


def look(
    found: Stays,
    *addresses: str,
    since_ms: int | None = None,
    has_output: bool = True,
) -> ReachedLogs:
    given = {f"cluster {number}": ClusterAccess.at(address) for number, address in enumerate(addresses or "AB")}
    return look_at(found, given, since_ms=since_ms, has_output=has_output)


def reach(found: ReachedLogs, cluster: str) -> Reach:
    return next(log.reaches[0] for log in found.logs if log.cluster_id == cluster)


def bounds(found: Reach) -> tuple[tuple[int, int], ...]:
    return tuple((each.start, each.end) for each in found.read)


def reasons(found: Stays, looked: ReachedLogs | None = None, *, has_output: bool = True) -> list[tuple[str, ...]]:
    """Each reason for which something was not compared, with the partitions."""
    listed = find_uncompared(found, looked or look(found, has_output=has_output), has_output=has_output)
    return [(each.reason, *each.partitions) for each in listed]


@pytest.mark.parametrize("order", ["AB", "BA"])
def test_clusters_are_known_by_their_ids_whatever_they_are_called(logs: dict[str, MemoryLog], order: str) -> None:
    found = look(THERE_AND_BACK, *order)
    a, b = (log.reaches[0] for log in found.logs)
    assert [log.cluster_id for log in found.logs] == ["A", "B"]
    assert (bounds(a), a.edges.start, a.edges.end, a.until) == (((0, 6), (9, 12)), 0, 12, 12)
    assert (bounds(b), b.edges.start, b.edges.end, b.until) == (((4, 7),), 0, 10, None)
    assert [each.stay for each in a.read] == [0, 2]
    assert (found.dead, found.absent, found.are_whole) == ((), (), True)
    assert reasons(THERE_AND_BACK, found) == []


def test_of_one_failover_the_log_that_the_job_left_is_read_to_its_end(logs: dict[str, MemoryLog]) -> None:
    a, b = (log.reaches[0] for log in look(THERE, "A", "B", since_ms=4).logs)
    assert (bounds(a), a.edges.log_start, a.edges.start, a.edges.end, a.until) == (((0, 7),), 0, 4, 12, None)
    assert (bounds(b), b.edges.start, b.until) == (((5, 10),), 4, 10)
    found = look(THERE, has_output=False)
    assert [reach(found, cluster).edges.start for cluster in "AB"] == [0, 5], "the job has never read what is before"


@pytest.mark.parametrize("cluster", ["A", "B"])
def test_a_partition_with_records_that_is_in_no_plan_is_not_compared(logs: dict[str, MemoryLog], cluster: str) -> None:
    assert reasons(THERE_AND_BACK) == [], "an empty one has nothing to compare"
    logs[cluster].partition("events", 1).append(5, b"k", b"v")
    assert reasons(THERE_AND_BACK) == [("not_in_plan", "events-1")]
    assert reasons(THERE_AND_BACK, look(THERE_AND_BACK, since_ms=6)) == [], "a person has left it out"
    logs[cluster].partition("events", 1).delete_before(1)
    late = look(THERE_AND_BACK, since_ms=6)
    assert reasons(THERE_AND_BACK, late) == [("not_in_plan", "events-1")], "those that were deleted may be later"


def test_a_partition_without_an_offset_is_read_up_to_the_stored_one(logs: dict[str, MemoryLog]) -> None:
    logs["B"].partition("events", 1).append(0, b"k", b"v")
    logs["A"].partition("events", 1).append(0, b"k", b"v")
    found = find_stays([plan(1, "A", "B", row(SAME, 0, 7, 5), row(SAME, 1, 1, None))])
    looked = look(found)
    assert reasons(found, looked) == [("no_offset", "events-1")]
    (at_a,) = (each for each in looked.logs[0].reaches if each.at == OTHER)
    assert (bounds(at_a), at_a.until) == (((0, 1),), 1)
    assert [each.at for each in looked.logs[1].reaches] == [AT]


def test_a_cluster_that_the_job_has_left_may_be_dead_or_gone_and_that_is_told(logs: dict[str, MemoryLog]) -> None:
    found = look(THERE_AND_BACK, "A", "nobody")
    assert ([log.cluster_id for log in found.logs], found.all_read) == (["A"], False)
    (dead,) = find_uncompared(THERE_AND_BACK, found, has_output=True)
    assert (dead.reason, dead.text[:41]) == ("cluster_unanswered", "[cluster 1] did not answer: Nobody answer")
    gone = look(THERE_AND_BACK, "A")
    assert (gone.absent, gone.all_read, reasons(THERE_AND_BACK, gone)) == (("B",), False, [])


@pytest.mark.parametrize("given", [("B", "nobody"), ("B",)], ids=["dead", "not given"])
def test_the_cluster_where_the_job_is_must_answer(logs: dict[str, MemoryLog], given: tuple[str, ...]) -> None:
    with pytest.raises(Unreachable):
        look(THERE_AND_BACK, *given)


def test_a_cluster_of_no_plan_and_one_that_is_given_twice_are_refused(logs: dict[str, MemoryLog]) -> None:
    logs["C"] = MemoryLog("C")
    with pytest.raises(Changed, match=r"\[cluster 1\] is C"):
        look(THERE_AND_BACK, "A", "C")
    with pytest.raises(Changed, match="the same cluster as another"):
        look(THERE_AND_BACK, "A", "A")


def test_a_topic_that_was_deleted_or_recreated_is_another_log(logs: dict[str, MemoryLog]) -> None:
    for ids in (("id",), ("another",), ("id", "another")):
        rows = [row(SAME, number, None, 0, topic_id=each) for number, each in enumerate(ids)]
        found = find_stays([plan(1, "A", "B", *rows)])
        if ids == ("id",):
            assert len(look(found).logs) == 2
            continue
        with pytest.raises(Changed, match=r"events-0 was deleted or recreated since the plans"):
            look(found)
    logs["B"].delete("events")
    with pytest.raises(Changed, match="events-0 was deleted or recreated"):
        look(THERE_AND_BACK)


@pytest.mark.parametrize(("stored", "value"), [(7, 1), (13, 12)], ids=["another record", "beyond the end"])
def test_a_log_without_the_last_processed_record_is_another_one(
    logs: dict[str, MemoryLog], stored: int, value: int
) -> None:
    wrong, right = (row(SAME, 0, stored, 5, anchor=anchored(stored - 1, b"k", b"%d" % n)) for n in (value, stored - 1))
    with pytest.raises(Changed, match="events-0 is not the log that the job has read"):
        look(find_stays([plan(1, "A", "B", wrong)]))
    if stored < 12:
        look(find_stays([plan(1, "A", "B", right)]))


# ---------------------------------------------------------------- what no log shows


def test_a_log_that_ends_before_a_resume_offset_is_a_gap_whatever_the_other_has(logs: dict[str, MemoryLog]) -> None:
    logs["B"] = log_of("B", 4)
    for given in ("AB", "B"):
        assert reasons(THERE, look(THERE, *given)) == [("log_short", "events-0")]
    logs["B"] = log_of("B", 5)
    assert reasons(THERE) == [], "it ends at the resume offset: the job has read all of it"


def test_records_deleted_where_a_stay_began_are_a_gap_unless_the_log_that_it_left_has_them(
    logs: dict[str, MemoryLog],
) -> None:
    """The first stay, on A, began with the log: what retention took of it before any plan is no gap."""
    a, b = logs["A"].partition("events", 0), logs["B"].partition("events", 0)
    gap = [("records_deleted", "events-0")]
    a.delete_before(6)
    assert (reasons(THERE_AND_BACK), look(THERE_AND_BACK).are_whole) == ([], False)
    b.delete_before(5)
    assert reasons(THERE_AND_BACK) == [], "A has what it had to hand over at 6"
    a.delete_before(7)
    assert reasons(THERE_AND_BACK) == gap
    a.delete_before(10)
    assert reasons(THERE_AND_BACK, look(THERE_AND_BACK, "A")) == gap, "B was not given, and the stay on A began at 9"


@pytest.mark.parametrize("stored", [7, None])
def test_without_an_output_deleted_records_that_the_job_had_not_read_are_a_gap(
    logs: dict[str, MemoryLog], stored: int | None
) -> None:
    """The other log may hold them in front of the resume offset, where the job never reads them."""
    found = find_stays([plan(1, "A", "B", row(SAME, 0, stored, 5))])
    for deleted, is_gap in ((7, False), (9, stored is not None)):
        logs["A"].partition("events", 0).delete_before(deleted)
        assert bool(reasons(found, has_output=False)) == is_gap
        assert reasons(found) == [], "the output's rows show them"
    assert reasons(found, look(found, since_ms=10, has_output=False), has_output=False) == [], (
        "a person has left them out"
    )
    logs["B"].partition("events", 0).delete_before(6)
    assert reasons(found, has_output=False) == [("records_deleted", "events-0")]
