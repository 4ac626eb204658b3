"""The extents of both clusters' logs over several stays, and which cluster is which. On logs in memory."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.errors import Changed, Unreachable
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import TopicPartition
from reconciler.spark.audit.failovers.extents import announce, gaps, left_out, look_at
from reconciler.spark.audit.failovers.stays import stays
from reconciler.spark.target import ClusterAccess
from tests.spark.audit.test_stays import SAME, plan, row

AT = TopicPartition("events", 0)
THERE_AND_BACK = stays([plan(1, "A", "B", row(SAME, 0, 6, 4)), plan(2, "B", "A", row(SAME, 0, 7, 9))])


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> dict[str, MemoryLog]:
    """Twelve records on A, ten on B, by address; an address without a log does not answer."""
    made = {}
    for cluster, records in (("A", 12), ("B", 10)):
        made[cluster] = log = MemoryLog(cluster)
        log.create("events", 2)
        for number in range(records):
            log.partition("events", 0).append(number, b"k", b"%d" % number)

    def reader(access: ClusterAccess, *_: Any, **__: Any) -> MemoryLog:
        if access.bootstrap_servers not in made:
            raise Unreachable("Nobody answers.")
        return made[access.bootstrap_servers]

    monkeypatch.setattr(ClusterAccess, "reader", reader)
    return made


def look(*addresses: str, until: int | None = None) -> Any:
    given = {f"cluster {number}": ClusterAccess.at(address) for number, address in enumerate(addresses)}
    return look_at(THERE_AND_BACK, given, until=None if until is None else {AT: until}, since_ms=None)


@pytest.mark.parametrize("order", ["AB", "BA"])
def test_clusters_are_known_by_their_ids_whatever_they_are_called(logs: dict[str, MemoryLog], order: str) -> None:
    found = look(*order)
    a, b = (log.reaches[0] for log in found.logs)
    assert [log.cluster_id for log in found.logs] == ["A", "B"]
    assert (a.read, a.start, a.end, a.until) == (((0, 6), (9, 12)), 0, 12, 12)
    assert (b.read, b.end, b.until) == (((4, 7),), 10, None)
    assert found.dead == found.absent == ()
    assert list(announce(found.logs)) == []


@pytest.mark.parametrize("cluster", ["A", "B"])
def test_a_partition_with_records_that_is_in_no_plan_is_not_compared(logs: dict[str, MemoryLog], cluster: str) -> None:
    assert not left_out(THERE_AND_BACK, look("A", "B").logs), "an empty one has nothing to compare"
    logs[cluster].partition("events", 1).append(0, b"k", b"v")
    found = look("A", "B").logs
    assert list(announce(found)) == [f"events-1 of cluster {cluster} is in no plan: not compared."]
    assert left_out(THERE_AND_BACK, found)


def test_a_position_ends_the_last_stay_alone(logs: dict[str, MemoryLog]) -> None:
    a, b = (log.reaches[0] for log in look("A", "B", until=10).logs)
    assert (a.read, a.end, a.until, b.until) == (((0, 6), (9, 10)), 12, 10, None)


@pytest.mark.parametrize("until", [0, 6, 9])
def test_a_position_before_the_last_resume_offset_hides_no_record_in_front_of_it(
    logs: dict[str, MemoryLog], until: int
) -> None:
    """From 6 to 9 no stay has read: such records were skipped, unless the other cluster had them."""
    a = look("A", "B", until=until).logs[0].reaches[0]
    assert (a.read, a.until) == (((0, 6), (9, 9)), 9)


def test_records_behind_an_unknown_position_of_the_last_stay_were_not_compared(logs: dict[str, MemoryLog]) -> None:
    given = {name: ClusterAccess.at(name) for name in "AB"}
    found = look_at(THERE_AND_BACK, given, until={AT: None}, since_ms=None).logs
    assert (found[0].reaches[0].read, found[0].reaches[0].until) == (((0, 6), (9, 9)), 9)
    assert left_out(THERE_AND_BACK, found)
    assert any("How far the job has read events-0 is not known" in said for said in announce(found))
    late = look_at(THERE_AND_BACK, given, until={AT: None}, since_ms=12).logs
    assert not left_out(THERE_AND_BACK, late), "all of them were left out by their time"


def test_a_cluster_that_the_job_has_left_may_be_dead_or_away_and_that_is_told(logs: dict[str, MemoryLog]) -> None:
    found = look("A", "gone")
    assert [log.cluster_id for log in found.logs] == ["A"]
    assert found.dead == ("[cluster 1] did not answer, and was taken for dead: Nobody answers.",)
    assert look("A").absent == ("B",)


@pytest.mark.parametrize("given", [("B", "gone"), ("B",)], ids=["dead", "not given"])
def test_the_cluster_where_the_job_is_must_answer(logs: dict[str, MemoryLog], given: tuple[str, ...]) -> None:
    with pytest.raises(Unreachable):
        look(*given)


def test_a_cluster_of_no_plan_and_one_that_is_given_twice_are_refused(logs: dict[str, MemoryLog]) -> None:
    logs["C"] = MemoryLog("C")
    with pytest.raises(Changed, match=r"\[cluster 1\] is C"):
        look("A", "C")
    with pytest.raises(Changed, match="the same cluster as another"):
        look("A", "A")


def test_a_topic_that_is_gone_and_a_log_that_has_lost_its_start_are_told(logs: dict[str, MemoryLog]) -> None:
    logs["B"].partition("events", 0).delete_before(5)
    assert any("Cluster B has deleted the first records of events-0" in said for said in announce(look("A", "B").logs))
    logs["B"].delete("events")
    with pytest.raises(Changed, match="events-0 is no longer the log"):
        look("A", "B")


def test_a_log_that_is_shorter_than_the_plans_say_is_another_one(logs: dict[str, MemoryLog]) -> None:
    short = logs["B"] = MemoryLog("B")
    short.create("events", 2)
    with pytest.raises(Changed, match="is not the log that the job has read"):
        look("A", "B")


def test_a_log_that_ends_before_the_last_resume_offset_is_a_gap(logs: dict[str, MemoryLog]) -> None:
    short = logs["A"] = MemoryLog("A")
    short.create("events", 2)
    for number in range(8):
        short.partition("events", 0).append(number, b"k", b"%d" % number)
    found = look("A", "B")
    assert gaps(THERE_AND_BACK, found.logs) == [AT]
    assert any("On cluster A the log of events-0 ends before" in said for said in announce(found.logs))


def test_records_deleted_where_a_stay_began_are_a_gap_unless_the_log_that_it_left_has_them(
    logs: dict[str, MemoryLog],
) -> None:
    """The first stay, on A, began with the log: what retention took of it before any plan is no gap."""
    a, b = logs["A"].partition("events", 0), logs["B"].partition("events", 0)
    a.delete_before(6)
    assert gaps(THERE_AND_BACK, look("A", "B").logs) == []
    b.delete_before(5)
    assert gaps(THERE_AND_BACK, look("A", "B").logs) == [], "A has what it had to hand over at 6"
    a.delete_before(7)
    assert gaps(THERE_AND_BACK, look("A", "B").logs) == [AT]
    a.delete_before(10)
    assert gaps(THERE_AND_BACK, look("A").logs) == [AT], "B was not given, and the stay on A began at 9"
