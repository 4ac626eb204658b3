"""The extents of an audit's logs, and the check that they are the job's logs. On logs in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import fingerprint
from reconciler.core.errors import Changed
from reconciler.core.verdicts import Verdict
from reconciler.formats.plan import Plan
from reconciler.formats.plan_rows import PlanAnchor
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import TopicPartition
from reconciler.spark.audit.looking import LogExtent, gaps, left_out, look_at_destination, look_at_source
from reconciler.spark.audit.resumed_rows import planned
from reconciler.spark.audit.tally import Rules
from reconciler.spark.audit.words import _of_logs, _of_unshown
from reconciler.spark.target import ClusterAccess
from tests.spark.audit.test_audit_rules import plan, row

CLUSTER = ClusterAccess.at("nowhere:1")
AT = TopicPartition("events", 0)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    """Ten records at the source and one in another partition of three, which every connection reads."""
    log = MemoryLog("a-id")
    log.create("events", 3)
    log.partition("events", 1).append(0, b"k", b"other")
    for number in range(10):
        log.partition("events", 0).append(number, b"k", b"%d" % number)
    monkeypatch.setattr(ClusterAccess, "reader", lambda *_, **__: log)
    return log


def stopped_at(stored: int, *, named: int | None = None) -> Plan:
    """A plan of a job that stopped at ``stored``, whose anchor is the record before it, with the value ``named``."""
    value = b"%d" % (stored - 1 if named is None else named)
    anchor = PlanAnchor(stored - 1, None, fingerprint(b"k", value), None)
    return plan(replace(row(0), stored_offset=stored, anchor=anchor))


def test_the_sources_log_is_cut_at_the_stored_offset_and_other_partitions_with_records_are_silent(
    source: MemoryLog,
) -> None:
    found = look_at_source(planned([stopped_at(7)]), CLUSTER, since_ms=None)
    (stretch,) = found.stretches
    assert (stretch.at, stretch.start, stretch.cut, stretch.end, stretch.until) == (AT, 0, 7, 10, 10)
    assert found.silent == (TopicPartition("events", 1),)


def test_a_later_beginning_keeps_the_logs_own_start(source: MemoryLog) -> None:
    (stretch,) = look_at_source(planned([stopped_at(7)]), CLUSTER, since_ms=4).stretches
    assert (stretch.log_start, stretch.start, stretch.end) == (0, 4, 10)


@pytest.mark.parametrize("wrong", [stopped_at(7, named=1), stopped_at(11)], ids=["another record", "beyond the end"])
def test_a_log_without_the_last_processed_record_is_another_one(source: MemoryLog, wrong: Plan) -> None:
    with pytest.raises(Changed, match="events-0 is not the log that the job has read"):
        look_at_source(planned([wrong]), CLUSTER, since_ms=None)


def test_a_recreated_destination_is_refused(source: MemoryLog) -> None:
    about = replace(planned([stopped_at(7)]), destination_cluster_id="a-id")
    source.create("a.events", 1, "id")
    (stretch,) = look_at_destination(about, CLUSTER, until=None, since_ms=None).stretches
    assert (stretch.at.topic, stretch.cut) == ("a.events", 5)
    source.create("a.events", 1, "another")
    with pytest.raises(Changed, match=r"a\.events-0 is no longer the log .* deleted or recreated"):
        look_at_destination(about, CLUSTER, until=None, since_ms=None)


# ---------------------------------------------------------------- what no log shows


def test_a_partition_of_the_destination_that_came_after_the_plan_is_not_compared(source: MemoryLog) -> None:
    source.create("a.events", 3, "id")
    for partition, records in enumerate((10, 0, 4)):
        for number in range(records):
            source.partition("a.events", partition).append(number, b"k", b"%d" % number)
    about = replace(planned([stopped_at(7)]), destination_cluster_id="a-id")
    found = there(source)
    assert found.silent == (TopicPartition("a.events", 2),)
    assert "The destination's a.events-2 is not in the plan: not compared." in _of_logs(about, found, None)
    assert left_out(about, found, None, has_output=True)
    assert not left_out(about, replace(found, silent=()), None, has_output=True)
    undecided = replace(about, undecided=found.silent)
    assert look_at_destination(undecided, CLUSTER, until=None, since_ms=None).silent == (), "it has its own sentence"


def test_a_partition_in_no_plan_whose_records_a_person_has_left_out_by_time_is_not_missed(source: MemoryLog) -> None:
    source.create("a.events", 2, "id")
    for partition in range(2):
        for number in range(10):
            source.partition("a.events", partition).append(number, b"k", b"%d" % number)
    assert [bool(there(source, since_ms=since).silent) for since in (None, 9, 10)] == [True, True, False]
    source.partition("a.events", 1).delete_before(10)
    assert there(source).silent
    assert there(source, since_ms=10).silent, "those that were deleted may be later"


def test_records_behind_an_unknown_position_were_not_compared(source: MemoryLog) -> None:
    """The job's store may be the checkpoint that it has left: no offset of the destination is in it."""
    fill(source)
    about, at = replace(planned([stopped_at(7)]), destination_cluster_id="a-id"), TopicPartition("a.events", 0)

    def looked(position: int | None, *, since_ms: int | None = None) -> tuple[int, bool, bool]:
        found = look_at_destination(about, CLUSTER, until={at: position}, since_ms=since_ms)
        told = any("How far the job has read a.events-0 is not known" in said for said in _of_logs(about, found, None))
        return found.stretches[0].until, left_out(about, found, None, has_output=True), told

    assert looked(None) == (5, True, True)
    assert looked(8) == (8, False, False)
    assert looked(None, since_ms=10) == (5, False, False), "all of them were left out by their time"
    fill(source, records=5)
    assert looked(None) == (5, False, False), "there is none"


def there(log: MemoryLog, *, since_ms: int | None = None) -> LogExtent:
    """The destination's side of a plan that resumes at 5, in ``log``."""
    about = replace(planned([stopped_at(7)]), destination_cluster_id="a-id")
    return look_at_destination(about, CLUSTER, until=None, since_ms=since_ms)


def fill(log: MemoryLog, records: int = 10) -> None:
    log.create("a.events", 1, "id")
    for number in range(records):
        log.partition("a.events", 0).append(number, b"k", b"%d" % number)


def test_a_log_that_ends_before_the_resume_offset_is_a_gap_whatever_the_source_has(source: MemoryLog) -> None:
    here = look_at_source(planned([stopped_at(7)]), CLUSTER, since_ms=None)
    fill(source, records=4)
    assert gaps(there(source), here) == gaps(there(source), None) == {TopicPartition("a.events", 0)}
    fill(source, records=5)
    assert gaps(there(source), None) == set(), "it ends at the resume offset: the job has read all of it"


def test_records_deleted_from_the_resume_offset_on_are_a_gap_unless_the_source_has_them(source: MemoryLog) -> None:
    fill(source)
    log, about = source.partition("a.events", 0), planned([stopped_at(7)])
    log.delete_before(5)
    assert gaps(there(source), None) == set(), "only records before the resume offset are gone"
    log.delete_before(6)
    lives = look_at_source(about, CLUSTER, since_ms=None)
    assert (gaps(there(source), None), gaps(there(source), lives)) == ({TopicPartition("a.events", 0)}, set())
    source.partition("events", 0).delete_before(8)
    assert gaps(there(source), look_at_source(about, CLUSTER, since_ms=None)), "the source has deleted them, too"


def test_where_partitions_do_not_correspond_every_partition_of_the_source_must_have_its_records(
    source: MemoryLog,
) -> None:
    source.create("a.events", 2, "id")
    for partition in range(2):
        for number in range(10):
            source.partition("a.events", partition).append(number, b"k", b"%d" % number)
    spread = [replace(row(number), verdict=Verdict.REMAPPED, stored_offset=number) for number in range(2)]
    about = replace(planned([plan(*spread)]), destination_cluster_id="a-id")
    source.partition("a.events", 0).delete_before(7)

    def missing() -> set[TopicPartition]:
        here = look_at_source(replace(about, destination_cluster_id="b"), CLUSTER, since_ms=None)
        return gaps(look_at_destination(about, CLUSTER, until=None, since_ms=None), here)

    assert missing() == set()
    source.partition("events", 1).append(0, b"k", b"more")
    source.partition("events", 1).delete_before(2)
    assert missing() == {TopicPartition("a.events", 0)}


def test_without_an_output_records_that_the_source_has_deleted_unread_are_not_compared(source: MemoryLog) -> None:
    """The destination may hold them in front of the resume offset, where the job never reads them."""
    fill(source)
    source.delete("events")
    source.create("events", 1)
    for number in range(12):
        source.partition("events", 0).append(number, b"k", b"%d" % number)
    about = planned([stopped_at(7)])
    for deleted, is_hidden in ((7, False), (9, True)):
        source.partition("events", 0).delete_before(deleted)
        here = look_at_source(about, CLUSTER, since_ms=None)
        assert left_out(about, there(source), here, has_output=False) == is_hidden
        assert not left_out(about, there(source), here, has_output=True), "its rows show them"
        said = [*_of_unshown(Rules(True, False, False, False), here)]
        assert any("after the stored offset of events-0" in each for each in said) == is_hidden
    unread = look_at_source(planned([plan(row(0))]), CLUSTER, since_ms=None)
    assert not left_out(about, there(source), unread, has_output=False), "the job had no offset there"
    later = look_at_source(about, CLUSTER, since_ms=10)
    assert not left_out(about, there(source, since_ms=10), later, has_output=False), "a person has left them out"


def test_deleted_records_that_a_person_has_left_out_by_time_are_no_gap(source: MemoryLog) -> None:
    fill(source)
    source.partition("a.events", 0).delete_before(6)
    assert gaps(there(source, since_ms=6), None), "the deleted ones may be later than that time"
    assert gaps(there(source, since_ms=8), None) == set()


@pytest.mark.parametrize(
    ("options", "committed_only"), [({}, False), ({"kafka.isolation.level": "read_committed"}, True)]
)
def test_logs_end_where_spark_can_read_them(
    source: MemoryLog, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], committed_only: bool
) -> None:
    """Behind an open transaction, Spark would wait for records that no consumer gets."""
    fill(source)
    asked: list[bool] = []

    def reader(self: ClusterAccess, *_: object, committed_only: bool, **__: object) -> MemoryLog:
        asked.append(committed_only)
        return source

    monkeypatch.setattr(ClusterAccess, "reader", reader)
    cluster, about = ClusterAccess.at("nowhere:1", options=options), planned([stopped_at(7)])
    look_at_source(about, cluster, since_ms=None)
    look_at_destination(replace(about, destination_cluster_id="a-id"), cluster, until=None, since_ms=None)
    assert asked == [committed_only] * 2
