"""Hand-off: every partition of the plan, no unproven offset, and no option that would override it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import Changed, ConfigError, NeedsPerson
from reconciler.core.verdicts import Finding, Verdict
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan
from reconciler.formats.plan_sinks import SinkOutcome, SinkRow
from reconciler.spark import handoff
from reconciler.spark.handoff import cluster


def row(topic: str, partition: int, offset: int | None, verdict: Verdict = Verdict.MOVED, **changes: Any):
    finding = Finding(verdict, offset, replay_at_most=None if offset is None else 0)
    made = PartitionPlan.of(
        finding,
        source_topic=topic.removeprefix("a."),
        key=TopicPartition(topic, partition),
        topic_id="id",
        stored=None,
        probes=1,
        rounds=1,
    )
    return replace(made, **changes)


def job(name: str, *rows: PartitionPlan) -> JobPlan:
    return JobPlan(name, name, "sqlite:///offsets.db", rows)


def plan(*jobs: JobPlan) -> Plan:
    times = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")
    return Plan("0.1.0", *times, "a", "b", "source-id", "west:9092", "destination-id", jobs)


TWELVE = plan(job("clicks", *(row("a.events", n, 100 + n) for n in reversed(range(12))), row("a.audit", 0, 7)))


def test_every_partition_by_number_and_topics_by_name():
    text = handoff.starting_offsets_json(TWELVE)
    assert text.startswith('{"a.audit":{"0":7},"a.events":{"0":100,"1":101,"2":102,')
    assert text.endswith('"10":110,"11":111}}')
    assert json.loads(text) == handoff.starting_offsets(TWELVE)


def test_a_plan_is_accepted_as_object_as_json_or_as_file(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(TWELVE.to_text(), encoding="utf-8")
    expected = handoff.starting_offsets(TWELVE)
    assert handoff.starting_offsets(TWELVE.to_json()) == expected
    assert handoff.starting_offsets(path) == expected
    assert handoff.starting_offsets(str(path), "clicks") == expected


def test_stream_options_start_the_source_at_the_plan():
    assert handoff.read_stream_options(TWELVE, extra={"includeHeaders": "true"}) == {
        "kafka.bootstrap.servers": "west:9092",
        "subscribe": "a.audit,a.events",
        "startingOffsets": handoff.starting_offsets_json(TWELVE),
        "failOnDataLoss": "true",
        "includeHeaders": "true",
    }


def test_another_listener_replaces_the_plans_whatever_the_spelling():
    options = handoff.read_stream_options(TWELVE, extra={"Kafka.Bootstrap.Servers": "inside:9093"})
    assert options["kafka.bootstrap.servers"] == "inside:9093"
    assert "Kafka.Bootstrap.Servers" not in options


@pytest.mark.parametrize(
    "name", ["startingOffsets", "STARTINGTIMESTAMP", "subscribePattern", "failOnDataLoss", "assign"]
)
def test_no_option_overrides_the_plan(name):
    with pytest.raises(ConfigError, match=name):
        handoff.read_stream_options(TWELVE, extra={name: "1"})


SMALL = plan(job("clicks", row("a.events", 0, 10), row("a.events", 1, 20)))


def test_batch_options_end_at_the_latest_or_at_given_offsets():
    assert handoff.read_options(SMALL)["endingOffsets"] == "latest"
    ends = {"a.events": {"0": 15, "1": -1}}
    assert handoff.read_options(SMALL, ending_offsets=ends)["endingOffsets"] == '{"a.events":{"0":15,"1":-1}}'
    assert "endingOffsets" not in handoff.read_stream_options(SMALL)


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ({"a.events": {"0": 15}}, "exactly the partitions"),
        ({"a.events": {"0": 15, "1": 20}, "b": {"0": 1}}, "exactly the partitions"),
        ({"a.events": {"0": 9, "1": 20}}, "before its start"),
        ({"a.events": {"0": -2, "1": 20}}, "has -2 for a.events partition 0, which is not an offset"),
        ("earliest", "latest"),
    ],
)
def test_ending_offsets_that_make_no_sense_are_refused(ends, why):
    with pytest.raises(ConfigError, match=why):
        handoff.read_options(SMALL, ending_offsets=ends)


def test_a_partition_without_offset_needs_a_person():
    undecided = plan(job("clicks", row("a.events", 0, 10), row("a.events", 1, None, Verdict.UNRESOLVED)))
    with pytest.raises(NeedsPerson, match=r"a\.events-1 \(unresolved\)"):
        handoff.starting_offsets(undecided)


def test_a_lost_partition_needs_a_decision_even_with_an_offset():
    lost = row("a.events", 0, 10, Verdict.LOST)
    with pytest.raises(NeedsPerson, match="lost"):
        handoff.starting_offsets(plan(job("clicks", lost)))
    accepted = plan(job("clicks", replace(lost, set_by_hand=True)))
    assert handoff.starting_offsets(accepted) == {"a.events": {"0": 10}}


def test_a_missing_partition_is_left_out_once_accepted():
    missing = row("a.events", 1, None, Verdict.MISSING)
    with pytest.raises(NeedsPerson, match="missing"):
        handoff.starting_offsets(plan(job("clicks", row("a.events", 0, 10), missing)))
    accepted = plan(job("clicks", row("a.events", 0, 10), replace(missing, set_by_hand=True)))
    assert handoff.starting_offsets(accepted) == {"a.events": {"0": 10}}


def test_a_batch_in_flight_belongs_to_its_checkpoint():
    halves = (row("a.events", 0, 10, position="start"), row("a.events", 0, 20, position="end"))
    with pytest.raises(ConfigError, match="checkpoint"):
        handoff.starting_offsets(plan(job("clicks", *halves)))


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ((row("t", 0, 1), row("t", 2, 1)), "not 1"),
        ((row("t", 1, 1),), "not 0"),
        ((row("t", 0, 1), row("t", 0, 2)), "twice"),
        ((row("t", 0, 1, resume_offset=-1),), "-1"),
        ((row("t", 0, 1, resume_offset=-2),), "-2"),
        ((), "no partition"),
    ],
)
def test_partitions_that_spark_could_not_use_are_refused(rows, why):
    with pytest.raises(ConfigError, match=why):
        handoff.starting_offsets(plan(job("clicks", *rows)))


def test_an_altered_plan_is_refused():
    content = SMALL.to_json()
    content["jobs"][0]["partitions"][0]["resume_offset"] = 11
    with pytest.raises(Changed, match="altered"):
        handoff.starting_offsets(content)


def test_with_several_jobs_one_must_be_named():
    both = plan(job("clicks", row("a.events", 0, 10)), job("views", row("a.events", 0, 20)))
    with pytest.raises(NeedsPerson, match="clicks, views"):
        handoff.starting_offsets(both)
    assert handoff.starting_offsets(both, "views") == {"a.events": {"0": 20}}


# ---------------------------------------------------------------- topics of the destination's own, and patterns

THERE = {"a.events": (0, 1), "events": (0, 1, 2), "a.audit": (0,), "other": (0,)}


@pytest.fixture
def destination(monkeypatch):
    """A cluster with these topics."""
    monkeypatch.setattr(cluster, "topics_matching", lambda client, p: [t for t in THERE if re.fullmatch(p, t)])
    monkeypatch.setattr(cluster, "partitions_of", lambda client, names: {name: THERE[name] for name in names})


def test_the_destinations_own_topic_is_read_beside_the_mirrored_one(destination):
    options = handoff.load(SMALL).also("events").read_stream_options()
    assert options["subscribe"] == "a.events,events"
    assert json.loads(options["startingOffsets"]) == {
        "a.events": {"0": 10, "1": 20},
        "events": {"0": -2, "1": -2, "2": -2},
    }
    assert options["failOnDataLoss"] == "true"
    latest = handoff.load(SMALL).also("events", new="latest").offsets["events"]
    assert latest == {"0": -1, "1": -1, "2": -1}


def test_a_pattern_gets_an_offset_for_every_matching_partition(destination):
    options = handoff.load(SMALL).matching(r"(a\.)?events").read_stream_options()
    assert options["subscribePattern"] == r"^(?:(a\.)?events)$"
    assert "subscribe" not in options
    assert json.loads(options["startingOffsets"]) == {
        "a.events": {"0": 10, "1": 20},
        "events": {"0": -2, "1": -2, "2": -2},
    }


def test_spark_reads_no_topic_by_a_pattern_that_only_has_it_in_its_name(monkeypatch):
    """Spark searches for the expression (``Regex.findFirstIn``) in the names of all topics but Kafka's own."""
    there = ["a.events", "events", "events-dlq", "old.events", "A.EVENTS", "__consumer_offsets", "__transaction_state"]

    class Connected:
        def __init__(self, *_, **__):
            self.topics = dict.fromkeys(there)

        def admin(self):
            return self

        def list_topics(self, timeout):
            return self

    monkeypatch.setattr("reconciler.kafka.connection.Connection", Connected)
    monkeypatch.setattr(cluster, "partitions_of", lambda client, names: dict.fromkeys(names, (0, 1)))
    for pattern, more in ((r"(a\.)?events", ["events"]), ("(?i)a.events", ["A.EVENTS"]), ("a.*|x", [])):
        options = handoff.load(SMALL).matching(pattern).read_stream_options()
        read_by_spark = [name for name in there if re.search(options["subscribePattern"], name)]
        assert sorted(read_by_spark) == sorted(json.loads(options["startingOffsets"])) == sorted(["a.events", *more])
    every = handoff.load(SMALL).matching(".*").offsets
    assert sorted(every) == sorted(there[:5])
    found = cluster.topics_matching({"bootstrap.servers": "b:1"}, "events")
    assert found == ["a.events", "events", "events-dlq", "old.events"], "what a query with this very option reads"


def test_a_topic_that_was_added_must_match_the_pattern_as_well(destination):
    """Else Spark has an offset for a topic that it does not read, and does not start the query."""
    by_pattern = handoff.load(SMALL).matching(r"a\.events")
    with pytest.raises(ConfigError, match=r"does not match events, which also\(\) or joined\(\) added"):
        by_pattern.also("events").read_stream_options()
    assert handoff.load(SMALL).matching(r"a\..*").read_stream_options()["subscribePattern"] == r"^(?:a\..*)$"


def test_a_pattern_that_would_leave_the_planned_topic_out_is_refused(destination):
    with pytest.raises(ConfigError, match=r"does not match a\.events"):
        handoff.load(SMALL).matching("events")
    with pytest.raises(ConfigError, match="not a regular expression"):
        handoff.load(SMALL).matching("(events")


def test_a_job_whose_sink_would_drop_its_batches_gets_no_offsets():
    """Its offsets are right, and the records behind them would still not be put out."""
    found = "it would drop batches 0 to 7. Give the sink a new place"
    sink = SinkRow("files:/out", None, 7, 0, SinkOutcome.DROPS, found)
    stopped = replace(TWELVE, jobs=(replace(TWELVE.job(), sinks=(sink,)),))
    with pytest.raises(NeedsPerson, match=re.escape(f"its sink files:/out: {found}.")):
        handoff.starting_offsets(stopped)
    with pytest.raises(NeedsPerson, match="its sink files:/out"):
        handoff.load(stopped)


def test_partitions_that_came_after_the_plan_need_a_new_plan(destination):
    fewer = plan(job("clicks", row("a.events", 0, 10)))
    with pytest.raises(NeedsPerson, match=r"a\.events has partitions that are not in the plan: 1"):
        handoff.load(fewer).matching(r"a\.events")


def test_a_batch_read_cannot_begin_at_the_latest(destination):
    with pytest.raises(ConfigError, match="latest record"):
        handoff.load(SMALL).also("events", new="latest").read_options()


BACK = plan(job("clicks", row("events", 0, 5)), job("local", row("b.events", 0, 7)), job("twin", row("events", 0, 9)))


def test_a_query_that_reads_two_jobs_topics_starts_at_both():
    """Back at the first cluster: the mirrored topic is its own again, and the other cluster's own topic is mirrored."""
    assert handoff.starting_offsets(BACK, ["clicks", "local"]) == {"b.events": {"0": 7}, "events": {"0": 5}}
    both = handoff.load(BACK, "clicks").joined(handoff.load(BACK, "local"))
    assert both.read_stream_options()["subscribe"] == "b.events,events"


def test_two_jobs_that_disagree_are_not_joined():
    with pytest.raises(ConfigError, match="both have a start for events"):
        handoff.load(BACK, ["clicks", "twin"])
    elsewhere = replace(handoff.load(BACK, "local"), bootstrap_servers="east:9092")
    with pytest.raises(ConfigError, match="two clusters"):
        handoff.load(BACK, "clicks").joined(elsewhere)


def test_outside_the_hook_the_error_says_how_to_start():
    with pytest.raises(ConfigError, match=r"RECONCILER_START is not set.*reconciler hook"):
        handoff.from_environment(environ={})
