"""From a plan to Spark's ``startingOffsets``: every partition of the plan, and no unproven offset."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.core.verdicts import Finding, Verdict
from reconciler.plan.document import JobPlan, PartitionPlan, Plan
from reconciler.plan.rows import SinkOutcome, SinkRow
from reconciler.plan.start import planned_text, stops_of


def row(topic: str, partition: int, offset: int | None, verdict: Verdict = Verdict.EXACT, **changes: Any):
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


def starts(of: Plan, *names: str) -> dict[str, dict[str, int]]:
    return json.loads(planned_text(of, names))


def test_partitions_are_in_the_order_of_their_numbers_and_topics_of_their_names():
    text = planned_text(TWELVE)
    assert text.startswith('{"a.audit":{"0":7},"a.events":{"0":100,"1":101,"2":102,')
    assert text.endswith('"10":110,"11":111}}')


def test_a_partition_without_offset_needs_a_person():
    undecided = plan(job("clicks", row("a.events", 0, 10), row("a.events", 1, None, Verdict.UNRESOLVED)))
    with pytest.raises(NeedsPerson, match=r"a\.events-1 \(unresolved\)"):
        starts(undecided)


def test_a_lost_partition_needs_a_decision_even_with_an_offset():
    lost = row("a.events", 0, 10, Verdict.LOST)
    with pytest.raises(NeedsPerson, match="lost"):
        starts(plan(job("clicks", lost)))
    accepted = plan(job("clicks", replace(lost, set_by_hand=True)))
    assert starts(accepted) == {"a.events": {"0": 10}}


def test_a_missing_partition_is_left_out_once_accepted():
    missing = replace(row("a.events", 1, None, Verdict.UNRESOLVED), absent=True)
    with pytest.raises(NeedsPerson, match="unresolved"):
        starts(plan(job("clicks", row("a.events", 0, 10), missing)))
    accepted = plan(job("clicks", row("a.events", 0, 10), replace(missing, set_by_hand=True)))
    assert starts(accepted) == {"a.events": {"0": 10}}


def test_a_batch_in_flight_belongs_to_its_checkpoint():
    halves = (row("a.events", 0, 10, position="start"), row("a.events", 0, 20, position="end"))
    with pytest.raises(ConfigError, match="checkpoint"):
        starts(plan(job("clicks", *halves)))


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
        starts(plan(job("clicks", *rows)))


def test_with_several_jobs_one_must_be_named():
    both = plan(job("clicks", row("a.events", 0, 10)), job("views", row("a.events", 0, 20)))
    with pytest.raises(NeedsPerson, match="clicks, views"):
        starts(both)
    assert starts(both, "views") == {"a.events": {"0": 20}}
    with pytest.raises(ConfigError, match="Two jobs have a start for"):
        starts(both, "clicks", "views")


def test_a_job_whose_sink_would_drop_its_batches_gets_no_offsets():
    """Its offsets are right, and the records behind them would still not be put out."""
    found = "it would drop batches 0 to 7. Give the sink a new place"
    sink = SinkRow("files:/out", None, 7, 0, SinkOutcome.DROPS, found)
    stopped = replace(TWELVE, jobs=(replace(TWELVE.job(), sinks=(sink,)),))
    with pytest.raises(NeedsPerson, match=re.escape(f"its sink files:/out: {found}.")):
        starts(stopped)
    assert {why for _, why in stops_of(stopped.job(), stopped.policy)} == {f"its sink files:/out: {found}"}
    assert {why for _, why in stops_of(TWELVE.job(), TWELVE.policy)} == {None}
