"""An audit's input from plans, its sentences about figures, and the form of its result. No Spark."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.cli import outputs
from reconciler.cli.commands.afterwards.audit import stored_until
from reconciler.cli.main import main
from reconciler.cli.terminal.audit_report import report_of
from reconciler.config.file import load_config
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.core.verdicts import Finding, Verdict
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan, digest
from reconciler.ports import Change, TopicPartition
from reconciler.spark.audit import Columns
from reconciler.spark.audit.result import COUNTS, FIGURES, AuditResult, Example, PartitionResult, split_doubled
from reconciler.spark.audit.resumed_rows import ALL_PARTITIONS, AuditUnit, planned
from reconciler.spark.audit.sightings import Places
from reconciler.spark.columns import require_type
from reconciler.stores.registry import open_store


def row(partition: int, resume: int | None = 5, verdict: Verdict = Verdict.MOVED, **changed: Any) -> PartitionPlan:
    found = PartitionPlan.of(
        Finding(verdict, resume, replay_at_most=3),
        source_topic="events",
        key=TopicPartition("a.events", partition),
        topic_id="id",
        stored=None,
        probes=1,
        rounds=1,
    )
    return replace(found, **changed)


def plan(*rows: PartitionPlan, cluster: str = "b", name: str = "clicks") -> Plan:
    times = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    return Plan("0.1.0", *times, "a", "a-id", "b:9092", cluster, (JobPlan(name, "clicks", "memory:", rows),))


def test_several_plans_of_one_failover_are_one_audit() -> None:
    found = planned([plan(row(1)), plan(row(0, stored_offset=7))])
    assert [(resumed.row.partition, resumed.processed_until) for resumed in found.resumed_rows] == [(0, 7), (1, 0)]
    assert found.source_name("a.events") == found.source_name("events") == "events"
    assert found.source_name("other") is None


def test_partitions_are_compared_apart_by_the_outputs_columns_or_where_there_is_one() -> None:
    two, one = (Places(planned([plan(*map(row, numbers))])) for numbers in ([0, 1], [0]))
    scopes = ("place", "topic", None)
    assert [two.are_compared_apart(scope) for scope in scopes] == [True, False, False]
    assert [one.are_compared_apart(scope) for scope in scopes] == [True, True, True]
    spread = Places(planned([plan(row(0, verdict=Verdict.REMAPPED))]))
    assert not any(map(spread.are_compared_apart, scopes))


@pytest.mark.parametrize(
    ("plans", "why"),
    [
        ([], "needs the plan"),
        ([plan(row(0)), plan(row(0))], "have the same partition"),
        ([plan(row(0)), plan(row(1), cluster="c")], "different destinations"),
        ([plan(row(0)), plan(row(1), name="sums")], "different jobs"),
    ],
)
def test_plans_that_are_not_of_one_failover_are_refused(plans: list[Plan], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        planned(plans)


def test_a_checkpoint_that_stopped_within_a_batch_continues_at_its_start() -> None:
    found = planned([plan(row(0, 5, position="start"), row(0, 9, position="end"))])
    assert [resumed.resume_offset for resumed in found.resumed_rows] == [5]


def test_undecided_partitions_and_remapped_topics_are_recognized() -> None:
    found = planned([plan(row(0), row(1, None, Verdict.UNRESOLVED))])
    assert found.undecided == (("a.events", 1),)
    spread = planned([plan(row(0, verdict=Verdict.REMAPPED), row(1))])
    assert {resumed.place for resumed in spread.resumed_rows} == {AuditUnit("events", ALL_PARTITIONS)}


@pytest.mark.parametrize(
    ("doubled", "read_again", "at_most", "semantics", "expected"),
    [
        (5, 5, 7, "at-least-once", (5, 0)),
        (9, 5, 7, "at-least-once", (5, 4)),
        (9, 9, 7, "at-least-once", (7, 2)),
        (9, 9, None, "at-least-once", (0, 9)),
        (5, 5, 7, "exactly-once", (0, 5)),
    ],
)
def test_only_announced_repetitions_are_expected(
    doubled: int, read_again: int, at_most: int | None, semantics: str, expected: tuple[int, int]
) -> None:
    assert split_doubled(doubled, read_again, at_most, semantics) == expected


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "exactly one of"),
        ({"id": "x", "fingerprint": "y"}, "exactly one of"),
        ({"key": "x"}, "only one of them"),
        ({"offset": "x", "partition": "y"}, "needs a partition and a topic"),
        ({"id": "x", "topic": "t", "topic_name": "events"}, "not from both"),
        ({"idd": "x"}, "no field idd"),
    ],
)
def test_columns_that_do_not_identify_a_record_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Columns.named(given)


@pytest.mark.parametrize("name", ["*", "raw.*"])
def test_a_star_is_not_one_column(name: str) -> None:
    several: Any = SimpleNamespace(select=lambda _: SimpleNamespace(dtypes=[("key", "binary"), ("value", "binary")]))
    with pytest.raises(ConfigError, match=re.escape(f"{name!r} for the id is 2 columns")) as caught:
        require_type(several, "id", name, ("binary", "string"), hint="Name the right one.")
    assert caught.value.hint == "Name the right one."


def result(figures: dict[str, int], *, source: str | None = "a-id", output: bool = True) -> AuditResult:
    partition = PartitionResult(
        source_topic="<events>",
        topic="a.<events>",
        partition=0,
        stored_offset=20,
        resume_offset=15,
        until=40,
        replay_at_most=3,
        replay_exact=None,
        source_read=None,
        destination_read=None,
        counts=dict.fromkeys(COUNTS, 7),
        figures={**dict.fromkeys(FIGURES, 0), **figures},
    )
    return AuditResult(
        tool_version="0.1.0",
        created_at="2026-01-01T00:00:00Z",
        plans=("0" * 64,),
        job="clicks",
        told_apart_by="id",
        unique=False,
        semantics="at-least-once",
        since_ms=None,
        source_cluster_id=source,
        destination_cluster_id="b-id",
        has_output=output,
        compared=("lost: <what> it compares.",),
        unknown=("The output's order.",),
        partitions=(partition,),
        examples=(Example("lost", "<events>", "a.<events>", 0, 17, 0, None, "00ff", 2),),
    )


@pytest.mark.parametrize(
    ("figures", "source", "output", "verdict", "code"),
    [
        ({}, "a-id", True, "clean", ExitCode.OK),
        ({"doubled": 3, "doubled_as_announced": 3}, "a-id", True, "clean", ExitCode.OK),
        ({"doubled": 3, "doubled_beyond": 1}, "a-id", True, "unclean", ExitCode.NEEDS_PERSON),
        ({"lost": 1}, None, True, "unclean", ExitCode.NEEDS_PERSON),
        ({"possibly_lost": 1}, None, True, "unclean", ExitCode.NEEDS_PERSON),
        ({"reordered": 1}, "a-id", False, "unclean", ExitCode.NEEDS_PERSON),
        ({"possibly_doubled": 9, "output_unknown": 9}, None, True, "clean", ExitCode.OK),
        ({"order_unknown": 6}, "a-id", True, "clean", ExitCode.OK),
        ({"order_unknown": 7}, "a-id", True, "unknown", ExitCode.NEEDS_PERSON),
        ({"nameless": 7}, "a-id", True, "unknown", ExitCode.NEEDS_PERSON),
        ({"nameless": 4}, "a-id", True, "clean", ExitCode.OK),
        ({"nameless": 1, "nameless_at_source": 1}, "a-id", True, "unknown", ExitCode.NEEDS_PERSON),
        ({"nameless": 1, "nameless_at_destination": 1}, None, True, "unknown", ExitCode.NEEDS_PERSON),
        ({"nameless": 1, "nameless_at_source": 1, "lost": 1}, "a-id", True, "unclean", ExitCode.NEEDS_PERSON),
        ({}, None, False, "unknown", ExitCode.NEEDS_PERSON),
    ],
)
def test_the_verdict_is_clean_only_where_something_was_compared_and_nothing_found(
    figures: dict[str, int], source: str | None, output: bool, verdict: str, code: ExitCode
) -> None:
    found = result(figures, source=source, output=output)
    assert (found.verdict, found.exit_code) == (verdict, code)


@pytest.mark.parametrize(
    ("side", "name"),
    [("source", "the source's log"), ("destination", "the destination's log"), ("output", "the output")],
)
def test_a_side_of_which_nothing_was_read_leaves_the_verdict_unknown(side: str, name: str) -> None:
    found = result({})
    (partition,) = found.partitions
    counts = {each: 0 if each.startswith(side) else count for each, count in partition.counts.items()}
    found = replace(found, partitions=(replace(partition, counts=counts),))
    assert (found.verdict, found.empty_sides, found.exit_code) == ("unknown", (name,), ExitCode.NEEDS_PERSON)
    if side == "output":
        assert replace(found, output_elsewhere=1).verdict == "clean", "rows of other partitions are rows"
    if side != "destination":
        less = replace(found, source_cluster_id=None) if side == "source" else replace(found, has_output=False)
        assert less.verdict == "clean", "it was not compared"


@pytest.mark.parametrize(
    ("side", "figure"), [("source", "nameless_at_source"), ("destination", "nameless_at_destination"), ("output", "")]
)
def test_a_side_without_a_record_that_could_be_compared_is_as_an_empty_one(side: str, figure: str) -> None:
    whole = sum(7 for each in COUNTS if each.startswith(side))
    found = result({"nameless": whole, **({figure: whole} if figure else {})})
    assert [name for name in found.empty_sides if side in name] == list(found.empty_sides) != []
    assert found.verdict == "unknown"


@pytest.mark.parametrize("gap", [{"left_out": True}, {"has_gap": True}], ids=["partition", "records"])
def test_what_was_left_out_is_not_clean_and_what_was_found_outweighs_it(gap: dict[str, bool]) -> None:
    def with_gap(found: AuditResult) -> AuditResult:
        if "left_out" in gap:
            return replace(found, left_out=True)
        return replace(found, partitions=tuple(replace(each, has_gap=True) for each in found.partitions))

    assert with_gap(result({})).verdict == "unknown"
    assert with_gap(result({"lost": 1})).verdict == "unclean"


def test_a_row_of_what_was_not_compared_is_not_shown_as_well() -> None:
    def tone(figures: dict[str, int]) -> str | None:
        return report_of(result(figures)).rows[0][0].tone

    assert (tone({}), tone({"lost": 1}), tone({"nameless": 1, "nameless_at_source": 1})) == ("good", "bad", "bad")


def test_the_json_is_canonical_and_sealed() -> None:
    text = result({"lost": 2}).to_text()
    content = json.loads(text)
    assert text == json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    assert content["sha256"] == digest(content)
    assert content["totals"]["lost"] == content["partitions"][0]["figures"]["lost"] == 2


def test_a_later_result_may_replace_it() -> None:
    found = result({"lost": 2})
    assert outputs.AUDIT.head.match(found.to_text().encode())


def test_the_text_shows_every_figure() -> None:
    text = report_of(result({"lost": 1234, "doubled": 5, "doubled_beyond": 5})).text(columns=120, colour=False)
    for shown in ("1,234", "unclean: 1,234 lost", "at 17 of the source, 2 times, id 00ff", "The output's order."):
        assert shown in text


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--since", "yesterday"], "is not a time"),
        (["--column", "id=x"], "none is given"),
        (["--conf", "x"], "--conf x is not NAME=VALUE"),
        (["--examples", "-1"], "below 0"),
        (["--json", "/nowhere/at/all.json"], "all.json cannot be written: No such file or directory"),
        (["--job", "sums"], 'no job "sums"'),
    ],
)
def test_invalid_arguments_are_reported_before_spark_starts(
    more: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "reconciler.cli.commands.afterwards.audit.own_session", lambda *args, **more: pytest.fail("Spark was started")
    )
    (tmp_path / "p.json").write_text(plan(row(0)).to_text())
    (tmp_path / "c.toml").write_text(
        '[source]\nalias = "a"\n[destination]\nbootstrap_servers = "localhost:1"\n'
        '[[jobs]]\nname = "clicks"\ngroup = "clicks"\ntopics = ["events"]\nstore = "memory:"\n'
    )
    assert main(["audit", "-c", str(tmp_path / "c.toml"), str(tmp_path / "p.json"), *more]) == 2
    assert why in capsys.readouterr().err


def test_a_jobs_position_is_read_from_its_store_in_destination_offsets(tmp_path: Path) -> None:
    """A row under the mirrored topic's name is such a one; under a name that both clusters have, its anchor says so."""
    store = open_store(f"sqlite:///{tmp_path / 'offsets.db'}", kafka_client={})
    store.create()
    here, there = Anchor(8, 1, cluster_id="a-id"), Anchor(8, 1, cluster_id="b")
    rows = {
        ("a.events", 0): StoredOffset(9, here),
        ("both", 0): StoredOffset(9, here),
        ("both", 1): StoredOffset(9, there),
    }
    changes = [Change(TopicPartition(*key), None, stored) for key, stored in rows.items()]
    store.write("clicks", changes, reason="test", now_ms=1)
    store.close()
    (tmp_path / "c.toml").write_text(
        '[source]\nalias = "a"\n[destination]\nbootstrap_servers = "localhost:1"\n[[jobs]]\nname = "clicks"\n'
        f'group = "clicks"\ntopics = ["events"]\nstore = "sqlite:///{tmp_path / "offsets.db"}"\n'
    )
    config = load_config(tmp_path / "c.toml")
    named = [row(partition, source_topic="both", topic="both") for partition in range(2)]
    until = stored_until(config, config.jobs[0], [plan(row(0), row(1), *named)])
    assert {(at.topic, at.partition): offset for at, offset in until.items()} == {
        ("a.events", 0): 9,
        ("a.events", 1): None,
        ("both", 0): None,
        ("both", 1): 9,
    }


def test_a_stored_offset_before_the_last_resume_offset_is_no_position(tmp_path: Path) -> None:
    """A query that came back goes on in a copy: the configured checkpoint, or row, is of the older stay."""
    address = f"sqlite:///{tmp_path / 'offsets.db'}"
    with closing(open_store(address, kafka_client={})) as store:
        store.create()
        changes = [Change(TopicPartition("events", n), None, StoredOffset(6 + n, None)) for n in range(3)]
        store.write("clicks", changes, reason="test", now_ms=1)
    (tmp_path / "c.toml").write_text(
        '[source]\nalias = "a"\n[destination]\nbootstrap_servers = "localhost:1"\n[[jobs]]\nname = "clicks"\n'
        f'group = "clicks"\ntopics = ["events"]\nstore = "{address}"\n'
    )
    config = load_config(tmp_path / "c.toml")
    back = [row(n, 7, source_topic="a.events", topic="events") for n in range(3)]
    again = replace(plan(replace(back[2], resume_offset=9)), created_at="2026-01-03T00:00:00Z")
    until = stored_until(config, config.jobs[0], [again, plan(*back)])
    assert {at.partition: offset for at, offset in until.items()} == {0: None, 1: 7, 2: None}
