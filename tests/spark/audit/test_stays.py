"""Several failovers: stays from plans, figures from counts, the verdict, and which sink is read. No Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli import outputs
from reconciler.cli.main import main
from reconciler.cli.terminal.audit_report import report_of_stays
from reconciler.config.addresses import SINK_COLUMNS
from reconciler.config.file import load_config
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.core.verdicts import Verdict
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan, digest
from reconciler.identity import identity_from_spec
from reconciler.ports import TopicPartition
from reconciler.spark.audit import Columns
from reconciler.spark.audit.failovers.figures import FIGURES, Counts, judge
from reconciler.spark.audit.failovers.result import TOTALS, ComparedSide, Range, RecordFinding, RecordPlace, StaysResult
from reconciler.spark.audit.failovers.stays import Interval, is_several, stays
from reconciler.spark.audit.naming import By, Naming, Unique
from tests.spark.audit.plain_numbers import Numbers


def row(names: tuple[str, str], partition: int, stored: int | None, resume: int | None, **more: Any) -> PartitionPlan:
    return PartitionPlan(
        source_topic=names[0],
        topic=names[1],
        topic_id=more.get("topic_id"),
        partition=partition,
        stored_offset=stored,
        anchor=None,
        verdict=Verdict.MOVED,
        resume_offset=resume,
        replay_at_most=more.get("replay", 0),
        replay_exact=None,
        matched_by="id",
        record_offset=None,
        probes=1,
        rounds=1,
        detail="",
        position=more.get("position", "next"),
    )


def plan(day: int, source: str | None, to: str, *rows: PartitionPlan, name: str = "clicks") -> Plan:
    times = (f"2026-01-{day:02}T00:00:00Z", f"2026-02-{day:02}T00:00:00Z")
    return Plan("0.1.0", *times, "a", source, f"{to}:9092", to, (JobPlan(name, "clicks", "memory:", rows),))


THERE, BACK, SAME = ("events", "a.events"), ("a.events", "events"), ("events", "events")


@pytest.mark.parametrize("first_source", ["A", None], ids=["named", "inferred"])
def test_each_plan_ends_a_stay_and_begins_the_next(first_source: str | None) -> None:
    plans = [
        plan(3, "A", "B", row(THERE, 0, 55, 52, replay=2)),
        plan(1, first_source, "B", row(THERE, 0, 25, 22, replay=3)),
        plan(2, "B", "A", row(BACK, 0, 42, 45)),
    ]
    assert is_several(plans)
    found = stays(plans)
    assert found.order == ("A", "B", "A", "B")
    assert found.announced == 5
    a, b = found.clusters
    assert a.intervals == {TopicPartition("events", 0): (Interval(0, 0, 25), Interval(2, 45, 55))}
    assert b.intervals == {TopicPartition("a.events", 0): (Interval(1, 22, 42), Interval(3, 52, None))}
    assert (a.is_last, b.is_last) == (False, True)
    assert found.assumed == ()


def test_several_plans_of_one_way_are_one_failover_and_a_batchs_end_begins_no_stay() -> None:
    plans = [
        plan(1, "A", "B", row(SAME, 0, 10, 8, position="start"), row(SAME, 0, 14, 12, position="end")),
        plan(2, "A", "B", row(SAME, 1, 20, 18)),
        plan(3, "B", "A", row(SAME, 0, 30, 32), row(SAME, 1, 40, 42)),
    ]
    a, b = stays(plans).clusters
    assert a.intervals[TopicPartition("events", 0)] == (Interval(0, 0, 10), Interval(2, 32, None))
    assert b.intervals[TopicPartition("events", 1)] == (Interval(1, 18, 40),)


def test_a_partition_of_which_a_plan_is_silent_is_assumed_and_told() -> None:
    found = stays([plan(1, "A", "B", row(SAME, 0, 10, 8), row(SAME, 1, None, None)), plan(2, "B", "A")])
    assert found.clusters[1].intervals == {TopicPartition("events", 0): (Interval(1, 8, None),)}
    assert found.undecided == (TopicPartition("events", 1),)
    assert found.assumed == ("No plan says where the job left events-0: taken to be its end.",)


@pytest.mark.parametrize(
    ("plans", "why"),
    [
        ([], "needs the plans"),
        ([plan(1, "A", "B", row(SAME, 0, 1, 1)), plan(2, "A", "B", row(SAME, 0, 1, 1))], "same cluster as the one"),
        ([plan(1, "A", "B", row(SAME, 0, 1, 1)), plan(2, "C", "A", row(SAME, 0, 1, 1))], "Plan 1 led to cluster B"),
        ([plan(1, "A", "B", row(SAME, 0, 1, 1)), plan(2, "B", "A", name="sums")], "different jobs"),
        (
            [
                plan(1, "A", "B", row(SAME, 0, 1, 1, topic_id="x")),
                plan(2, "B", "A", row(SAME, 0, 1, 1)),
                plan(3, "A", "B", row(SAME, 0, 1, 1, topic_id="y")),
            ],
            "recreated between two of the plans",
        ),
    ],
)
def test_plans_that_are_no_chain_are_refused(plans: list[Plan], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        stays(plans)


# ---------------------------------------------------------------- figures


def judged(held: Sequence[int], read: int, ahead: int, rows: int, *, unique: bool) -> dict[str, int]:
    return judge(Counts(held, read, ahead, rows), unique=unique, use=Numbers())


@pytest.mark.parametrize(
    ("held", "read", "ahead", "rows", "expected"),
    [
        ((1, 1), 1, 0, 1, {}),
        ((1, 1), 1, 0, 0, {"lost": 1}),  # it was read, and the sink lacks it
        ((1, 1), 0, 0, 0, {"lost": 1, "lost_unread": 1}),  # a hand-over has skipped it
        ((1, 0), 0, 0, 0, {"lost": 1, "lost_unread": 1}),  # never delivered to where the job was
        ((0, 1), 0, 1, 0, {}),  # the job has not come to it
        ((1, 1), 1, 1, 0, {"lost": 1}),  # it lies ahead again, and a stay has read it already
        ((1, 1), 2, 0, 2, {"doubled": 1, "doubled_read_again": 1}),  # the replay that a plan announces
        ((1, 1), 1, 0, 2, {"doubled": 1}),  # the sink has written it twice
        ((1, 2), 2, 0, 1, {}),  # the mirror has sent it twice, and the job put it out once
        ((0, 0), 0, 0, 2, {"unknown_rows": 2}),
    ],
)
def test_unique_records_are_judged_by_name(
    held: tuple[int, int], read: int, ahead: int, rows: int, expected: dict[str, int]
) -> None:
    assert judged(held, read, ahead, rows, unique=True) == {**dict.fromkeys(FIGURES, 0), **expected}


@pytest.mark.parametrize("by", [By.CONTENT, By.FINGERPRINT, By.OFFSET])
def test_unique_ids_say_nothing_of_records_that_are_named_by_something_else(by: By) -> None:
    """Two records of one key and value, each with an id of its own: the sink must have both."""
    identity = identity_from_spec(id="header:message-id", id_order="increasing")
    for unique in (None, True):
        naming = Naming.of(identity, by, unique, by_partition=True)
        assert not naming.unique
        assert judged((2, 2), 2, 0, 1, unique=naming.unique)["lost"] == 1


def test_ids_that_are_unique_within_a_partition_are_so_where_partitions_are_compared_apart() -> None:
    """Numbers that begin again in each partition are no names of the job's records."""

    def named(unique: Unique, by_partition: bool) -> tuple[bool, bool]:
        identity = identity_from_spec(id="header:message-id", id_order="increasing")
        naming = Naming.of(identity, By.ID, unique, by_partition=by_partition)
        return naming.unique, naming.unique_apart

    assert [named(unique, True) for unique in (None, "partition", True, False)] == [
        *[(True, False)] * 3,
        (False, False),
    ]
    assert [named(unique, False) for unique in (None, "partition", True, False)] == [
        *[(False, True)] * 2,
        (True, False),
        (False, False),
    ]


def test_rows_of_a_cluster_that_is_gone_are_of_the_jobs_topics() -> None:
    """Its log is not read, and the rows name its topic all the same."""
    found = stays([plan(1, "A", "B", row(THERE, 0, 6, 4)), plan(2, "B", "A", row(BACK, 0, 7, 9))])
    assert found.topics == {"events", "a.events"}


@pytest.mark.parametrize("unique", [True, False])
def test_figures_add_up_for_every_small_combination(unique: bool) -> None:
    for a, b, read, ahead, rows in product(range(4), range(4), range(4), range(3), range(5)):
        if ahead > b:
            continue
        n = judged((a, b), read, ahead, rows, unique=unique)
        assert all(value >= 0 for value in n.values())
        assert not ((n["lost"] or n["possibly_lost"]) and (n["doubled"] or n["unknown_rows"]))
        most = min(1, max(a, b)) if unique else max(a, b)
        if not most:
            assert n == {**dict.fromkeys(FIGURES, 0), "unknown_rows": rows}
            continue
        assert rows - n["doubled"] <= most, "what is not doubled has a record"
        if not ahead:
            assert rows + n["lost"] + n["possibly_lost"] - n["doubled"] == most, "all that is due is there, or missing"
            assert n["lost"] == 0 or rows + n["lost"] <= max(1, min(a, b))
        assert n["lost_unread"] <= n["lost"]
        assert n["doubled_read_again"] <= n["doubled"]
        if unique:
            assert n["possibly_lost"] == n["possibly_doubled"] == 0


def test_of_equal_records_only_as_many_are_surely_lost_as_both_logs_have() -> None:
    assert judged((2, 3), 3, 0, 0, unique=False) == {
        **dict.fromkeys(FIGURES, 0),
        **{"lost": 2, "possibly_lost": 1},
    }
    assert judged((2, 3), 3, 0, 3, unique=False)["possibly_doubled"] == 1
    assert judge(Counts([3], 3, 0, 0), unique=False, use=Numbers())["lost"] == 1, "one log alone: the mirror's copies?"


# ---------------------------------------------------------------- the result


def result(**changed: Any) -> StaysResult:
    totals = {**dict.fromkeys(TOTALS, 0), **changed.pop("totals", {})}
    ranges = (Range("events", 0, 0, 25),)
    return StaysResult(
        **{
            **{"tool_version": "0.1.0", "created_at": "2026-01-01T00:00:00Z", "plans": ("0" * 64,), "job": "clicks"},
            **{"told_apart_by": "id", "unique": True, "semantics": "at-least-once", "since_ms": None},
            **{"order": ("A", "B", "A"), "clusters": (ComparedSide("A", 60, 0, ranges), ComparedSide("B", 57, 0))},
            **{"sink": ComparedSide("files:/<out>", 60, 2), "totals": totals, "compared": ("lost: …",)},
            **{"unknown": ("The order.",), "logs_are_whole": True, "unanswered": False},
            "examples": (
                RecordFinding(
                    "lost", 1, "00ff", (RecordPlace("A", "events", 0, 30), RecordPlace("B", "a.events", 0, 27))
                ),
            ),
            **changed,
        }
    )


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "clean"),
        ({"totals": {"doubled": 2, "doubled_as_announced": 2}}, "clean"),
        ({"totals": {"lost": 1}}, "unclean"),
        ({"totals": {"possibly_lost": 1}}, "unclean"),
        ({"totals": {"doubled": 2, "doubled_beyond": 2}}, "unclean"),
        ({"totals": {"unknown_rows": 1}}, "unclean"),
        ({"totals": {"unknown_rows": 1}, "logs_are_whole": False}, "clean"),
        ({"unanswered": True}, "unknown"),
        ({"sink": ComparedSide("files:/out", 0, 9)}, "unknown"),
        ({"clusters": (ComparedSide("A", 60, 0), ComparedSide("B", 0, 0))}, "unknown"),
        ({"clusters": (ComparedSide("A", 30, 30), ComparedSide("B", 60, 0))}, "unknown"),
        ({"clusters": (ComparedSide("A", 60, 0), ComparedSide("B", 59, 1))}, "unknown"),
        ({"clusters": (ComparedSide("A", 30, 30), ComparedSide("B", 60, 0)), "totals": {"lost": 1}}, "unclean"),
        ({"left_out": True}, "unknown"),
        ({"left_out": True, "totals": {"doubled": 2, "doubled_beyond": 2}}, "unclean"),
    ],
)
def test_nothing_found_is_clean_only_where_all_of_every_side_was_compared(
    changed: dict[str, Any], verdict: str
) -> None:
    found = result(**changed)
    assert found.verdict == verdict
    assert found.exit_code is (ExitCode.OK if verdict == "clean" else ExitCode.NEEDS_PERSON)


def test_a_cluster_with_records_that_were_not_compared_is_not_shown_as_well() -> None:
    sides = (ComparedSide("A", 30, 30), ComparedSide("B", 60, 0))
    assert [cells[0].tone for cells in report_of_stays(result(clusters=sides)).rows] == ["bad", "good", "good"]


def test_the_result_is_shown_as_text_and_sealed_json() -> None:
    found = result(totals={"lost": 1, "lost_unread": 1})
    report, content = report_of_stays(found), json.loads(found.to_text())
    assert outputs.AUDIT.head.match(found.to_text().encode()), "a later result may replace it"
    text = report.text(columns=120, colour=False)
    assert content["sha256"] == digest(content)
    assert content["clusters"][0]["read"] == [{"topic": "events", "partition": 0, "start": 0, "end": 25}]
    for shown in ("1 lost (1 of them read by no stay)", "events-0 at 30 of cluster A", "id 00ff"):
        assert shown in text
    assert "files:/<out>" in text


# ---------------------------------------------------------------- which rows


def write(folder: Path, job: str, plans: Sequence[Plan]) -> list[str]:
    (folder / "c.toml").write_text(
        '[source]\nalias = "a"\n[destination]\nbootstrap_servers = "localhost:1"\n'
        f'[[jobs]]\nname = "clicks"\ngroup = "clicks"\ntopics = ["events"]\nstore = "memory:"\n{job}'
    )
    for number, each in enumerate(plans):
        (folder / f"{number}.json").write_text(each.to_text())
    return ["audit", "-c", str(folder / "c.toml"), *(str(folder / f"{number}.json") for number in range(len(plans)))]


@pytest.mark.parametrize(
    ("job", "more", "why"),
    [
        ("", [], "None is given"),
        ('sink = "files:/out"\n', [], "no column of it is named"),
        ('sink = ["files:/a", "delta:/b"]\nsink_columns = { id = "e" }\n', [], "Which sink? The job has files:/a"),
        ('sink = "files:/out"\nsink_columns = { idd = "e" }\n', [], "has no idd"),
        ('sink_columns = { id = "e" }\n', [], "there is none"),
        ('sink = "python:m:f"\n[policy]\npython = ["m"]\n', ["--column", "id=e"], "none is given"),
    ],
)
def test_over_several_failovers_the_rows_must_be_named(
    job: str, more: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = [plan(1, "A", "B", row(SAME, 0, 1, 1)), plan(2, "B", "A", row(SAME, 0, 1, 1))]
    assert main([*write(tmp_path, job, plans), *more]) == 2
    assert why in capsys.readouterr().err


def test_the_configuration_knows_every_field_of_the_columns(tmp_path: Path) -> None:
    assert {*SINK_COLUMNS} == {each.name for each in fields(Columns)}
    write(tmp_path, 'sink = "files:/out"\nsink_columns = { id = "event_id" }\n', [])
    (job,) = load_config(tmp_path / "c.toml").jobs
    assert job.sink_columns == {"id": "event_id"}
    assert replace(job, sink_columns={}).sinks == ("files:/out",)
