"""Stays from plans, figures from counts, the verdict and the forms of a result. No Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from reconciler.cli.commands.audit import AUDIT, report
from reconciler.config.identity import identity_from_spec
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.core.verdicts import Verdict
from reconciler.plan.document import Plan, digest
from reconciler.ports import TopicPartition
from reconciler.spark.audit.result import (
    FIGURES,
    SPLIT,
    AuditResult,
    ComparedSide,
    Counts,
    Example,
    PartitionResult,
    RecordPlace,
    Rules,
    StayRange,
    Uncompared,
    judge,
    with_split,
)
from reconciler.spark.audit.stays import Interval, Unit, find_stays
from reconciler.spark.audit.tally import Naming
from tests.spark.audit.plans import BACK, SAME, THERE, plan, row

AT = TopicPartition("events", 0)


@pytest.mark.parametrize("first_source", ["A", None], ids=["named", "inferred"])
def test_each_plan_ends_a_stay_and_begins_the_next(first_source: str | None) -> None:
    plans = [
        plan(3, "A", "B", row(THERE, 0, 55, 52, replay=2)),
        plan(1, first_source, "B", row(THERE, 0, 25, 22, replay=3)),
        plan(2, "B", "A", row(BACK, 0, 42, 45)),
    ]
    found = find_stays(plans)
    assert found.order == ("A", "B", "A", "B")
    assert found.announced == {Unit("events", 0): 5}
    a, b = found.clusters
    assert a.intervals == {AT: (Interval(0, 0, 25), Interval(2, 45, 55))}
    assert b.intervals == {TopicPartition("a.events", 0): (Interval(1, 22, 42), Interval(3, 52, None))}
    assert (a.is_last, b.is_last) == (False, True)
    assert found.assumed == ()
    assert {*found.roots} == {"events", "a.events"}, "rows name the topics of a cluster that is gone, too"


@pytest.mark.parametrize("source", ["A", None])
def test_one_failover_is_two_stays(source: str | None) -> None:
    found = find_stays([plan(1, source, "B", row(THERE, 1, None, 8), row(THERE, 0, 7, 5))])
    a, b = found.clusters
    assert found.order == (source, "B")
    assert a.intervals == {AT: (Interval(0, 0, 7),), TopicPartition("events", 1): (Interval(0, 0, 0),)}
    assert [each[0].start for each in b.intervals.values()] == [5, 8]
    assert found.units == (Unit("events", 0), Unit("events", 1))


def test_a_partition_of_which_a_plan_is_silent_is_assumed_and_told() -> None:
    found = find_stays([plan(1, "A", "B", row(SAME, 0, 10, 8), row(SAME, 1, 6, None)), plan(2, "B", "A")])
    assert found.clusters[1].intervals == {AT: (Interval(1, 8, None),)}
    assert found.undecided == [TopicPartition("events", 1)]
    assert [dict(each.undecided) for each in found.clusters] == [{("events", 1): 6}, {("events", 1): 0}]
    assert found.assumed == ("No plan says where the job left events-0: taken to be its end.",)


def test_a_topic_whose_partitions_do_not_correspond_is_one_unit() -> None:
    spread = replace(row(THERE, 0, 4, 5, replay=1, finding=Verdict.EARLY), spread=True)
    found = find_stays([plan(1, "A", "B", spread, row(THERE, 1, 4, 5, replay=2), row(("more", "a.more"), 0, 1, 1))])
    assert found.announced == {Unit("events", None): 3, Unit("more", 0): 0}


@pytest.mark.parametrize(
    ("plans", "why"),
    [
        ([], "needs the plans"),
        ([plan(1, "A", "B", row(SAME, 0, 1, 1)), plan(2, "A", "B", row(SAME, 0, 1, 1))], "same cluster as the one"),
        ([plan(1, "A", "B", row(SAME, 0, 1, 1)), plan(2, "C", "A", row(SAME, 0, 1, 1))], "Plan 1 led to cluster B"),
        ([plan(1, "A", "B", row(SAME, 0, 1, 1)), plan(2, "B", "A", name="sums")], "different jobs"),
    ],
)
def test_plans_that_are_no_chain_are_refused(plans: list[Plan], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        find_stays(plans)


# ---------------------------------------------------------------- figures


class Numbers:
    """What ``judge`` needs for plain numbers, where the product judges Spark's columns."""

    least, greatest = staticmethod(min), staticmethod(max)

    def where(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return then if condition else otherwise


def judged(held: Sequence[int], read: int, ahead: int, rows: int, **rules: bool) -> dict[str, int]:
    return judge(Counts(held, read, ahead, rows), Rules(**rules), Numbers())


@pytest.mark.parametrize(
    ("held", "read", "ahead", "rows", "expected"),
    [
        ((1, 1), 1, 0, 1, {}),
        ((1, 1), 1, 0, 0, {"lost": 1}),  # it was read, and the output lacks it
        ((1, 1), 0, 0, 0, {"lost": 1, "lost_unread": 1}),  # a hand-over has skipped it
        ((1, 0), 0, 0, 0, {"lost": 1, "lost_unread": 1}),  # never delivered to where the job was
        ((0, 1), 0, 1, 0, {}),  # the job has not come to it
        ((1, 1), 1, 1, 0, {"lost": 1}),  # it lies ahead again, and a stay has read it already
        ((1, 1), 2, 0, 2, {"doubled": 1, "doubled_read_again": 1}),  # the replay that a plan announces
        ((1, 1), 1, 0, 2, {"doubled": 1}),  # the job has written it twice
        ((1, 2), 2, 0, 1, {}),  # the mirror has sent it twice, and the job put it out once
        ((0, 0), 0, 0, 2, {"unknown_rows": 2}),
    ],
)
def test_unique_records_are_judged_by_name(
    held: tuple[int, int], read: int, ahead: int, rows: int, expected: dict[str, int]
) -> None:
    assert judged(held, read, ahead, rows, unique=True) == {**dict.fromkeys(FIGURES, 0), **expected}


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("from_first", [True, False])
def test_figures_add_up_for_every_small_combination(unique: bool, from_first: bool) -> None:
    for a, b, read, ahead, rows in product(range(4), range(4), range(4), range(3), range(5)):
        if ahead > b:
            continue
        n = judged((a, b), read, ahead, rows, unique=unique, from_first=from_first)
        assert all(value >= 0 for value in n.values())
        assert not ((n["lost"] or n["possibly_lost"]) and (n["doubled"] or n["unknown_rows"]))
        known = a if from_first and a else max(a, b)
        most = min(1, known) if unique else known
        if not most:
            assert n == {**dict.fromkeys(FIGURES, 0), "unknown_rows": rows}
            continue
        assert rows - n["doubled"] <= most, "what is not doubled has a record"
        if not ahead:
            assert rows + n["lost"] + n["possibly_lost"] - n["doubled"] == most, "all that is due is there, or missing"
        assert n["lost_unread"] <= n["lost"]
        assert n["doubled_read_again"] <= n["doubled"]
        if unique or (from_first and a):
            assert n["possibly_lost"] == n["possibly_doubled"] == 0
        elif not ahead:
            assert n["lost"] == 0 or rows + n["lost"] <= max(1, min(a, b))


def test_of_equal_records_only_as_many_are_surely_lost_as_both_logs_have() -> None:
    two = judged((2, 3), 3, 0, 0)
    assert (two["lost"], two["possibly_lost"]) == (2, 1)
    assert judged((2, 3), 3, 0, 3)["possibly_doubled"] == 1
    assert judged((3,), 3, 0, 0)["lost"] == 1, "one log alone: the mirror's copies?"
    first = judged((2, 3), 3, 0, 3, from_first=True)
    assert (first["doubled"], first["possibly_doubled"]) == (1, 0), "the log that the job left knows how many there are"


@pytest.mark.parametrize(
    ("doubled", "read_again", "at_most", "exactly_once", "expected"),
    [(5, 5, 7, False, (5, 0)), (9, 5, 7, False, (5, 4)), (9, 9, 7, False, (7, 2)), (5, 5, 7, True, (0, 5))],
)
def test_only_announced_repetitions_are_expected(
    doubled: int, read_again: int, at_most: int, exactly_once: bool, expected: tuple[int, int]
) -> None:
    figures = {"doubled": doubled, "doubled_read_again": read_again}
    found = with_split(figures, at_most, exactly_once=exactly_once)
    assert (found["doubled_as_announced"], found["doubled_beyond"]) == expected


def test_ids_that_are_unique_within_a_partition_are_so_where_partitions_are_compared_apart() -> None:
    """Numbers that begin again in each partition are no names of the job's records; nor are equal keys and values."""
    plain, increasing = (
        identity_from_spec(id="header:message-id", id_order=order) for order in ("opaque", "increasing")
    )
    cases = {
        (plain, True, False, True): False,
        (plain, True, True, False): True,
        (increasing, True, False, True): True,
        (increasing, True, False, False): False,
        (increasing, False, True, True): False,
    }
    for (identity, by_id, unique, apart), expected in cases.items():
        assert Naming.of(identity, by_id=by_id, unique=unique, apart=apart).unique == expected
    with pytest.raises(ConfigError, match="identity reads none"):
        Naming.of("none", by_id=True, unique=False, apart=True)


# ---------------------------------------------------------------- the result


def result(totals: dict[str, int] | None = None, **changed: Any) -> AuditResult:
    figures = {**dict.fromkeys((*FIGURES, *SPLIT), 0), **(totals or {})}
    read = (StayRange(0, "events", 0, 0, 25),)
    places = (RecordPlace("A", "events", 0, 30, (1,)), RecordPlace("B", "a.events", 0, 27, ()))
    return AuditResult(
        **{
            **{"tool_version": "0.1.0", "created_at": "2026-01-01T00:00:00Z", "plans": ("0" * 64,), "job": "clicks"},
            **{"told_apart_by": "id", "unique": True, "exactly_once": False, "since_ms": None},
            **{"stays": ("A", "B"), "clusters": (ComparedSide("A", 60, 0, read), ComparedSide("B", 57, 0))},
            **{"output": ComparedSide("files:/<out>", 60, 2), "uncompared": ()},
            **{"notes": ("Two rows have no id.",), "logs_are_whole": True},
            "partitions": (PartitionResult("events", 0, (60, 57), 0, 60, 3, figures),),
            "examples": (Example("lost", 2, "00ff", places),),
            **changed,
        }
    )


GAP = (Uncompared("log_short", ("a.events-0",), "It ends before an offset of the plans."),)


@pytest.mark.parametrize(
    ("totals", "changed", "verdict"),
    [
        ({}, {}, "clean"),
        ({"doubled": 2, "doubled_as_announced": 2}, {}, "clean"),
        ({"possibly_doubled": 9}, {}, "clean"),
        ({"lost": 1}, {}, "unclean"),
        ({"possibly_lost": 1}, {}, "unclean"),
        ({"doubled": 2, "doubled_beyond": 2}, {}, "unclean"),
        ({"unknown_rows": 1}, {}, "unclean"),
        ({"unknown_rows": 1}, {"logs_are_whole": False}, "clean"),
        ({"unknown_rows": 1}, {"uncompared": GAP}, "unknown"),
        ({}, {"uncompared": GAP}, "unknown"),
        ({"lost": 1}, {"uncompared": GAP}, "unclean"),
    ],
)
def test_nothing_found_is_clean_only_where_everything_was_compared(
    totals: dict[str, int], changed: dict[str, Any], verdict: str
) -> None:
    found = result(totals, **changed)
    assert (found.verdict, json.loads(found.to_text())["verdict"]) == (verdict, verdict)
    assert found.exit_code is (ExitCode.OK if verdict == "clean" else ExitCode.NEEDS_PERSON)


def test_the_result_is_sealed_json_and_a_later_one_may_replace_it() -> None:
    text = result({"lost": 2}, uncompared=GAP).to_text()
    content = json.loads(text)
    assert text == json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    assert AUDIT.head.match(text.encode())
    assert content["sha256"] == digest(content)
    assert content["totals"]["lost"] == content["partitions"][0]["figures"]["lost"] == 2
    assert content["clusters"][0]["read"] == [{"stay": 0, "topic": "events", "partition": 0, "start": 0, "end": 25}]
    assert content["uncompared"] == [{"reason": "log_short", "partitions": ["a.events-0"], "text": GAP[0].text}]


def test_the_text_shows_what_was_found_what_was_compared_and_what_was_not() -> None:
    found = result({"lost": 1234, "lost_unread": 1}, uncompared=GAP)
    text = report(found, columns=160, colour=False)
    for shown in (
        "1,234 lost (1 of them read by no stay)",
        "lost: events-0 at 30 of cluster A, a.events-0 at 27 of cluster B, 2 times, id 00ff",
        "60 records of cluster A, 57 records of cluster B, 60 rows of files:/<out>, over 2 stays.",
        "It ends before an offset of the plans.",
        "Two rows have no id.",
    ):
        assert shown in text
    good, bad = "\033[32m", "\033[31m"
    (one,) = found.partitions
    tones = {good: result(), bad: result(partitions=(replace(one, not_compared=1, figures=result().totals),))}
    for tone, each in tones.items():
        assert tone in report(each, columns=160, colour=True)
