"""What an audit counts, and what it could not compare, which leaves its verdict unknown. On Spark; logs in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import pytest

from reconciler.core.errors import ConfigError, ExitCode, Unreachable
from reconciler.plan.document import PartitionPlan
from reconciler.spark.audit import AuditResult, Columns, Output, audit, tally
from reconciler.spark.audit.result import ComparedSide
from reconciler.spark.batches.reading import ClusterAccess
from tests.memory_log import MemoryLog
from tests.spark.audit.plans import THERE, anchored, plan, row
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
        self.by_address = {"a:1": MemoryLog("A", {"events": 2}), "b:1": MemoryLog("B", {"a.events": 2})}

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
            (
                each.key,
                each.value,
                of.topic,
                of.partition,
                each.offset,
                _time(each.timestamp_ms or 0),
                0,
                [*each.headers],
            )
            for of in ranges
            for each in found.by_address[servers].partition(of.topic, of.partition).records
            if of.from_offset <= each.offset < of.until_offset
        ]
        return spark.createDataFrame(records, RECORD)

    def reader(self: ClusterAccess, *_: Any, **__: Any) -> MemoryLog:
        if self.bootstrap_servers not in found.by_address:
            raise Unreachable("Nobody answers.")
        return found.by_address[self.bootstrap_servers]

    monkeypatch.setattr(ClusterAccess, "reader", reader)
    monkeypatch.setattr(tally, "read", read)
    return found


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000)


def put_out(partition: int, numbers: Iterable[int]) -> list[tuple[str, int, str | None]]:
    """The output's rows of these records: the first ten were read at the source."""
    names = [(number, "events" if number < STORED else "a.events") for number in numbers]
    return [(name, partition, f"{partition}/{number}") for number, name in names]


ALL = [*put_out(0, range(RECORDS)), *put_out(1, range(RECORDS))]


def planned(partition: int, names: tuple[str, str] = THERE, resume: int | None = STORED, **more: Any) -> PartitionPlan:
    anchor = anchored(STORED - 1, b"k", b"%d/%d" % (partition, STORED - 1))
    return row(names, partition, STORED, resume, **{"anchor": anchor, **more})


WHERE = Columns(id="event", topic="topic", partition="partition")


def audited(
    spark: Any,
    rows: list[tuple[str, int, str | None]] | None,
    id: str = ID,
    *,
    source: str | None = "a:1",
    rows_planned: Sequence[PartitionPlan] = (planned(0), planned(1)),
    columns: Columns = WHERE,
) -> AuditResult:
    output = None
    if rows is not None:
        output = Output(spark.createDataFrame(rows, "topic string, partition int, event string"), columns)
    return audit(
        spark,
        [plan(1, "A", "B", *rows_planned)],
        destination={"bootstrap.servers": "b:1"},
        source=None if source is None else {"bootstrap.servers": source},
        output=output,
        id=id,
    )


def reasons(found: AuditResult) -> set[str]:
    return {each.reason for each in found.uncompared}


def test_logs_of_which_every_record_was_compared_and_found_are_clean(spark: Any, logs: Logs) -> None:
    logs.fill()
    found = audited(spark, ALL)
    assert (found.verdict, found.exit_code, found.uncompared, found.examples) == ("clean", ExitCode.OK, (), ())
    assert [(each.compared, each.not_compared) for each in found.clusters] == [(40, 0)] * 2
    assert [(each.partition, each.compared, each.rows) for each in found.partitions] == [
        (partition, (20, 20), 20) for partition in range(2)
    ]


def test_a_mistyped_header_compares_nothing_and_is_not_clean_though_records_are_lost(spark: Any, logs: Logs) -> None:
    logs.fill()
    found = audited(spark, put_out(0, range(15)), "header:message_id")
    assert (found.verdict, found.exit_code) == ("unknown", ExitCode.NEEDS_PERSON)
    assert [(each.compared, each.not_compared) for each in found.clusters] == [(0, 40)] * 2
    assert reasons(found) == {"nothing_read", "no_id"}
    told = " ".join(each.text for each in found.uncompared)
    assert re.search(r"80 records of .* have no id", told)
    assert "No record of events-0, events-1 has one." in told
    assert "Correct the job's id" in told


def test_a_partition_whose_producer_sets_no_id_is_not_compared_and_the_others_are(spark: Any, logs: Logs) -> None:
    logs.fill(has_id=lambda partition: partition == 0)
    found = audited(spark, put_out(0, range(RECORDS)), source=None)
    assert (found.verdict, reasons(found)) == ("unknown", {"no_id"})
    assert [(each.compared, each.not_compared) for each in found.partitions] == [((20,), 0), ((0,), 20)]
    lacking = audited(spark, put_out(0, range(RECORDS - 1)), source=None)
    assert lacking.verdict == "unclean", "what was found outweighs what was not compared"


def test_rows_without_an_id_are_told_apart_from_records_and_are_no_output(spark: Any, logs: Logs) -> None:
    logs.fill()
    found = audited(spark, [*ALL, *[("events", 0, None)] * 3], columns=Columns(id="event"))
    assert (found.verdict, found.output) == ("clean", ComparedSide("the output", 40, 3))
    assert "3 rows of the output have no id: not compared." in found.notes
    found = audited(spark, [("events", 0, None)] * 3)
    assert (found.verdict, reasons(found)) == ("unclean", {"nothing_read"})


def test_rows_of_no_record_are_a_finding_only_where_the_logs_are_whole(spark: Any, logs: Logs) -> None:
    logs.fill()
    rows = [*ALL, ("events", 0, "of no record"), ("events", 7, "of no partition")]
    found = audited(spark, rows)
    assert (found.verdict, found.totals["unknown_rows"]) == ("unclean", 2)
    assert [(each.topic, each.figures["unknown_rows"]) for each in found.partitions] == [
        *[("events", 1), ("events", 0)],
        (None, 1),
    ]
    assert {each.kind for each in found.examples} == {"unknown_rows"}
    logs.source.partition("events", 0).delete_before(1)
    found = audited(spark, rows)
    assert (found.verdict, found.totals["unknown_rows"], found.examples) == ("clean", 2, ())
    assert any("2 rows of the output match no record" in said for said in found.notes)


@pytest.mark.parametrize("resume", [8, 12])
def test_without_an_output_the_logs_show_what_a_resume_offset_skips_and_repeats(
    spark: Any, logs: Logs, resume: int
) -> None:
    logs.fill()
    found = audited(spark, None, rows_planned=[planned(0, resume=resume, replay=1), planned(1)])
    names = ("lost", "lost_unread", "doubled", "doubled_as_announced")
    figures = (0, 0, 2, 1) if resume == 8 else (2, 2, 0, 0)
    assert tuple(found.partitions[0].figures[name] for name in names) == figures
    assert not any(found.partitions[1].figures.values())
    assert [each.places[0].offset for each in found.examples] == ([8, 9] if resume == 8 else [10, 11])


def test_a_source_that_does_not_answer_is_not_clean_and_one_that_is_gone_may_be(spark: Any, logs: Logs) -> None:
    logs.fill()
    found = audited(spark, ALL, source="nobody:1")
    assert (found.verdict, reasons(found)) == ("unknown", {"cluster_unanswered"})
    assert audited(spark, ALL, source=None).verdict == "clean"
    with pytest.raises(ConfigError, match="nothing can be compared"):
        audited(spark, None, source=None)
    with pytest.raises(Unreachable, match="Nobody answers"):
        audited(spark, None, source="nobody:1")
