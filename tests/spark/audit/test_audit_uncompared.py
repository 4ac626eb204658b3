"""What an audit could not compare leaves its verdict unknown. On Spark, with logs in memory instead of clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from reconciler.core.anchors import fingerprint
from reconciler.core.errors import ExitCode
from reconciler.core.verdicts import Verdict
from reconciler.formats.plan_rows import PartitionPlan, PlanAnchor
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import TopicPartition
from reconciler.spark.audit import AuditResult, Columns, Output, audit, sightings
from reconciler.spark.audit.failovers import audit_stays
from reconciler.spark.audit.failovers import tally as stays_tally
from reconciler.spark.target import ClusterAccess
from tests.spark.audit.test_audit_rules import plan, row
from tests.spark.sent import BASE_MS

pytestmark = pytest.mark.system

ID = "header:message-id"
RECORD = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
RECORDS, STORED = 20, 10
"""Each partition's records; the first ten were processed at the source, and both logs have the same offsets."""


class Logs:
    """Two partitions of ``events`` at the source and of ``a.events`` at the destination, by bootstrap address."""

    def __init__(self) -> None:
        self.by_address = {"a:1": MemoryLog("a-id", {"events": 2}), "b:1": MemoryLog("b", {"a.events": 2})}

    def fill(self, has_id: Callable[[int], bool] = lambda _: True, empty: Iterable[int] = ()) -> None:
        """``has_id`` of a partition: whether its producer sets ids. ``empty``: the destination's without a record."""
        for partition in range(2):
            for number in range(RECORDS):
                text = b"%d/%d" % (partition, number)
                headers = (("message-id", text),) if has_id(partition) else ()
                self.source.partition("events", partition).append(BASE_MS + number, b"k", text, headers)
                if partition not in empty:
                    self.destination.partition("a.events", partition).append(BASE_MS + number, b"k", text, headers)

    @property
    def source(self) -> MemoryLog:
        return self.by_address["a:1"]

    @property
    def destination(self) -> MemoryLog:
        return self.by_address["b:1"]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    found = Logs()

    def read(spark: Any, ranges: Iterable[Any], servers: str, options: Any = None) -> Any:
        records = [
            (each.key, each.value, of.topic, of.partition, each.offset, _time(each.timestamp_ms), 0, [*each.headers])
            for of in ranges
            for each in found.by_address[servers].partition(of.topic, of.partition).records
            if of.from_offset <= each.offset < of.until_offset
        ]
        return spark.createDataFrame(records, RECORD)

    monkeypatch.setattr(ClusterAccess, "reader", lambda self, *_, **__: found.by_address[self.bootstrap_servers])
    for module in (sightings, stays_tally):
        monkeypatch.setattr(module, "read", read)
    return found


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000)


def put_out(partition: int, numbers: Iterable[int]) -> list[tuple[str, int, str | None]]:
    """The output's rows of these records: the first ten were read at the source."""
    names = [(number, "events" if number < STORED else "a.events") for number in numbers]
    return [(name, partition, f"{partition}/{number}") for number, name in names]


ALL = [*put_out(0, range(RECORDS)), *put_out(1, range(RECORDS))]


def planned_row(partition: int) -> PartitionPlan:
    anchor = PlanAnchor(STORED - 1, None, fingerprint(b"k", b"%d/%d" % (partition, STORED - 1)), None)
    return replace(row(partition), anchor=anchor, stored_offset=STORED, resume_offset=STORED, topic_id="b/a.events")


def audited(
    spark: Any,
    rows: list[tuple[str, int, str | None]],
    id: str = ID,
    *,
    alive: bool = True,
    planned: Sequence[PartitionPlan] = (planned_row(0), planned_row(1)),
    until: Mapping[TopicPartition, int | None] | None = None,
) -> AuditResult:
    return audit(
        spark,
        [plan(*planned)],
        destination={"bootstrap.servers": "b:1"},
        source={"bootstrap.servers": "a:1"} if alive else None,
        output=Output(
            spark.createDataFrame(rows, "topic string, partition int, event string"),
            Columns(id="event", topic="topic", partition="partition"),
        ),
        id=id,
        until=until,
    )


def test_logs_of_which_every_record_was_compared_and_found_are_clean(spark: Any, logs: Logs) -> None:
    logs.fill()
    found = audited(spark, ALL)
    assert (found.verdict, found.exit_code) == ("clean", ExitCode.OK)
    assert found.totals["nameless"] == 0


@pytest.mark.parametrize("alive", [True, pytest.param(False, marks=pytest.mark.thorough)], ids=["source", "no source"])
def test_a_mistyped_header_compares_nothing_and_is_not_clean_though_records_are_lost(
    spark: Any, logs: Logs, alive: bool
) -> None:
    logs.fill()
    found = audited(spark, put_out(0, range(15)), "header:message_id", alive=alive)
    assert (found.verdict, found.exit_code) == ("unknown", ExitCode.NEEDS_PERSON)
    figures = [found.totals[name] for name in ("nameless", "nameless_at_source", "nameless_at_destination")]
    assert figures == ([80, 40, 40] if alive else [40, 0, 40])
    assert found.empty_sides == (("the destination's log", "the source's log") if alive else ("the destination's log",))
    told = " ".join(found.unknown)
    assert f"{figures[0]} records of the logs have no id" in told
    assert "No record of a.events-0, a.events-1 has an id: nothing of it was compared." in told
    assert "Correct the job's id" in told


@pytest.mark.parametrize("alive", [pytest.param(True, marks=pytest.mark.thorough), False], ids=["source", "no source"])
def test_a_partition_whose_producer_sets_no_id_is_not_compared_and_the_others_are(
    spark: Any, logs: Logs, alive: bool
) -> None:
    logs.fill(has_id=lambda partition: partition == 0)
    found = audited(spark, put_out(0, range(RECORDS)), alive=alive)
    assert found.verdict == "unknown"
    assert [each.is_compared for each in found.partitions] == [True, False]
    assert "No record of a.events-1 has an id" in " ".join(found.unknown)
    lacking = audited(spark, put_out(0, range(RECORDS - 1)), alive=alive)
    assert lacking.verdict == "unclean", "what was found outweighs what was not compared"


def test_rows_without_an_id_are_told_apart_from_records_and_are_no_output(spark: Any, logs: Logs) -> None:
    logs.fill(has_id=lambda _: False)
    found = audited(spark, [("events", 0, None)] * 3)
    assert found.verdict == "unknown"
    assert found.empty_sides[-1] == "the output"
    told = " ".join(found.unknown)
    assert "80 records of the logs have no id" in told
    assert "3 rows of the output have no id" in told


def test_rows_without_an_id_are_counted_where_the_output_has_no_partitions(spark: Any, logs: Logs) -> None:
    logs.fill()
    frame = spark.createDataFrame([(event,) for _, _, event in ALL] + [(None,)] * 3, "event string")
    output = Output(frame, Columns(id="event"))
    found = audit(spark, [plan(planned_row(0))], destination={"bootstrap.servers": "b:1"}, output=output, id=ID)
    assert (found.totals["nameless"], found.nameless_elsewhere) == (3, 3)
    assert (found.totals["output_unknown"], found.output_elsewhere) == (20, 20)
    assert "3 rows of the output have no id" in " ".join(found.unknown)


def test_rows_without_a_place_in_the_outputs_order_are_not_judged_and_said(spark: Any, logs: Logs) -> None:
    logs.fill()

    def ordered(place: Callable[[int], int | None]) -> AuditResult:
        rows = [(*named, place(number)) for number, named in enumerate(ALL)]
        frame = spark.createDataFrame(rows, "topic string, partition int, event string, written int")
        columns = Columns(id="event", topic="topic", partition="partition", order="written")
        return audit(
            spark,
            [plan(planned_row(0), planned_row(1))],
            destination={"bootstrap.servers": "b:1"},
            source={"bootstrap.servers": "a:1"},
            output=Output(frame, columns),
            id=ID,
        )

    def judged(found: AuditResult) -> tuple[str, int, int]:
        return found.verdict, found.totals["reordered"], found.totals["order_unknown"]

    some = ordered(lambda number: None if number % 4 == 0 else number)
    assert judged(some) == ("clean", 0, 10)
    assert "The order of 10 records" in " ".join(some.unknown)
    assert judged(ordered(lambda number: None if number % 4 == 0 else -number)) == ("unclean", 28, 10)
    nothing = ordered(lambda _: None)
    assert (judged(nothing), nothing.empty_sides) == (("unknown", 0, 40), ("the output's order",))


def test_a_destination_that_ends_before_the_resume_offset_is_not_clean(spark: Any, logs: Logs) -> None:
    logs.fill(empty=(1,))
    found = audited(spark, [*put_out(0, range(RECORDS)), *put_out(1, range(STORED))], alive=False)
    assert (found.verdict, found.left_out) == ("unknown", True)
    assert any("a.events-1 ends before the resume offset" in said for said in found.unknown)


def test_records_that_retention_took_before_the_job_read_them_are_not_clean_without_the_source(
    spark: Any, logs: Logs
) -> None:
    """With the source they are found in its log: as lost, or in the output."""
    logs.fill()
    logs.destination.partition("a.events", 1).delete_before(RECORDS)
    rows = [*put_out(0, range(RECORDS)), *put_out(1, range(STORED))]
    found = audited(spark, rows, alive=False)
    assert (found.verdict, found.left_out) == ("unknown", True)
    assert any("after the resume offset of a.events-1: not compared" in said for said in found.unknown)
    assert audited(spark, rows).totals["lost"] == RECORDS - STORED
    assert audited(spark, ALL).verdict == "clean"


@pytest.mark.parametrize(
    ("planned", "said"),
    [
        ([planned_row(0), row(1, None, Verdict.UNRESOLVED)], "gives no offset for a.events-1: not compared"),
        pytest.param(
            [planned_row(0)], "The source's events-1 is not in the plan: not compared", marks=pytest.mark.thorough
        ),
        pytest.param(
            [planned_row(0)],
            "The destination's a.events-1 is not in the plan: not compared",
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["no offset", "not in the plan", "not in the plan, at the destination"],
)
def test_a_partition_that_the_plan_does_not_cover_is_not_clean(
    spark: Any, logs: Logs, planned: list[PartitionPlan], said: str
) -> None:
    logs.fill()
    found = audited(spark, put_out(0, range(RECORDS)), planned=planned)
    assert (found.verdict, found.left_out) == ("unknown", True)
    assert any(said in each for each in found.unknown)


def test_records_that_the_job_may_have_read_and_lost_are_not_clean(spark: Any, logs: Logs) -> None:
    """Its store is the checkpoint that it has left: it does not show how far the job has read in the copy."""
    logs.fill()
    rows = [*put_out(0, range(RECORDS)), *put_out(1, range(STORED))]
    places = [TopicPartition("a.events", number) for number in range(2)]
    found = audited(spark, rows, until={places[0]: RECORDS, places[1]: None})
    assert (found.verdict, found.exit_code, found.totals["lost"]) == ("unknown", ExitCode.NEEDS_PERSON, 0)
    told = [said for said in found.unknown if "a.events-1" in said]
    assert len(told) == 1, told
    assert told[0].startswith("How far the job has read a.events-1 is not known")
    assert audited(spark, rows, until=dict.fromkeys(places, RECORDS)).totals["lost"] == RECORDS - STORED


def test_there_and_back_records_without_an_id_and_deleted_ones_are_not_clean(spark: Any, logs: Logs) -> None:
    logs.fill(has_id=lambda partition: partition == 0)
    there = [planned_row(0), planned_row(1)]
    names: dict[str, Any] = {"source_topic": "a.events", "topic": "events", "topic_id": "a-id/events"}
    back = [replace(each, anchor=None, stored_offset=15, resume_offset=15, **names) for each in there]
    plans = [
        plan(*there),
        replace(plan(*back, cluster="a-id"), source_cluster_id="b", created_at="2026-01-03T00:00:00Z"),
    ]
    clusters = {name: ClusterAccess.at(name) for name in logs.by_address}
    frame = spark.createDataFrame([(event,) for _, _, event in put_out(0, range(RECORDS))], "event string")
    output = Output(frame, Columns(id="event"))
    found = audit_stays(spark, plans, clusters=clusters, output=output, id=ID)
    assert [(side.records, side.nameless) for side in found.clusters] == [(RECORDS, RECORDS)] * 2
    assert (found.verdict, found.exit_code, found.left_out) == ("unknown", ExitCode.NEEDS_PERSON, False)
    assert "40 records of the logs have no id" in " ".join(found.unknown)
    for log, topic in ((logs.source, "events"), (logs.destination, "a.events")):
        log.partition(topic, 0).delete_before(12)
    found = audit_stays(spark, plans, clusters=clusters, output=output, id=ID)
    assert found.left_out
    assert any("Of a.events-0 no log has all records" in said for said in found.unknown)
