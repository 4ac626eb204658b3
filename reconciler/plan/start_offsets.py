"""Where a job's partitions start: from a plan to the offsets that Spark takes, or why it may not start at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.core.json_fields import compact
from reconciler.core.text import some
from reconciler.core.verdicts import Position
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, StartPolicy, why_stopped
from reconciler.plan.sinks import why_sink_stops

Offsets = dict[TopicPartition, int]
"""The next offset to read."""
EARLIEST, LATEST = -2, -1
"""Spark's own numbers in ``startingOffsets``."""
MOST_NAMED = 20
"""Partitions that one message lists."""


def offsets_of(job: JobPlan, policy: StartPolicy) -> Offsets:
    """The offset of every partition of a planned job.

    Raises NeedsPerson for a partition without a decision and for a sink that forbids the start, ConfigError for
    partitions that Spark could not use.
    """
    _require_startable(job, policy)
    by_topic: dict[str, dict[int, int]] = {}
    for row in job.partitions:
        if row.absent:
            continue  # a person accepted it: the destination has no such partition to start
        if row.resume_offset is None or row.resume_offset < 0:
            raise ConfigError(
                f"The plan's offset for {row.key} is {row.resume_offset}, which Spark does not accept as an offset.",
                hint="Plan again with --set TOPIC:PARTITION=OFFSET, an offset of 0 or more.",
            )
        partitions = by_topic.setdefault(row.topic, {})
        if row.partition in partitions:
            raise ConfigError(
                f"The plan names {row.key} twice in job {job.name}.",
                hint="Make sure that no two topics are mapped to the same name.",
            )
        partitions[row.partition] = row.resume_offset
    if not by_topic:
        raise ConfigError(
            f"The plan has no partition for job {job.name}.", hint="Check the job's topics and plan again."
        )
    for topic, partitions in by_topic.items():
        _require_all_partitions(topic, partitions)
    return {
        TopicPartition(topic, number): by_topic[topic][number]
        for topic in sorted(by_topic)
        for number in sorted(by_topic[topic])
    }


def planned_text(plan: Plan, names: Sequence[str] = ()) -> str:
    """Spark's ``startingOffsets`` of these jobs of a plan, or of its only job.

    Raises as ``offsets_of`` and ``Plan.job``, and ConfigError if two jobs have one topic.
    """
    found: Offsets = {}
    for job in map(plan.job, names) if names else [plan.job()]:
        offsets = offsets_of(job, plan.policy)
        if double := sorted({key.topic for key in offsets} & {key.topic for key in found}):
            raise ConfigError(f"Two jobs have a start for {', '.join(double)}.", hint="Name only one of them.")
        found |= offsets
    return spark_text(found)


def spark_text(offsets: Mapping[TopicPartition, int]) -> str:
    """Offsets as Spark's ``startingOffsets``: ``{"a.events":{"0":42,"1":7}}``."""
    return compact(by_topic(offsets))


def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets by topic and partition, as JSON has them: ``{"a.events": {"0": 42, "1": 7}}``."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _require_startable(job: JobPlan, policy: StartPolicy) -> None:
    two_ended = list(dict.fromkeys(str(row.key) for row in job.partitions if row.position != Position.NEXT))
    if two_ended:
        raise ConfigError(
            f"Job {job.name} stopped within a batch: the plan has a start and an end for "
            f"{some(two_ended, MOST_NAMED)}, which only a checkpoint can hold.",
            hint="Continue it from a corrected copy of its checkpoint.",
        )
    if (sink := job.stopped_by) is not None:
        raise NeedsPerson(
            f"By the plan, job {job.name} may not start: {why_sink_stops(sink)}.",
            hint="Then make a new plan.",
        )
    undecided = [f"{row.key} ({row.finding.value})" for row in job.partitions if not _may_start(row, policy)]
    if undecided:
        raise NeedsPerson(
            f"By the plan, job {job.name} may not start. Partitions that need a decision, {len(undecided):,} of "
            f"{len(job.partitions):,}: {some(undecided, MOST_NAMED)}.",
            hint="`reconciler show PLAN` lists all with their reasons; then plan again with --set "
            "TOPIC:PARTITION=OFFSET or --accept FINDING (or --accept skips).",
        )


def _may_start(row: PartitionPlan, policy: StartPolicy) -> bool:
    """True if the plan found an offset, or a person gave one or accepted that the partition is not there."""
    return why_stopped(row, policy) is None and (row.resume_offset is not None or row.absent)


def _require_all_partitions(topic: str, partitions: Mapping[int, int]) -> None:
    """Spark needs exactly the assigned partitions: it reads one that is left out from the earliest record."""
    lacking = max(partitions) + 1 - len(partitions)
    if lacking:
        # The numbers are the file's: one row may name the partition 2,147,483,647.
        first = list(islice((number for number in range(max(partitions)) if number not in partitions), MOST_NAMED))
        more = f" and {lacking - len(first):,} more" if lacking > len(first) else ""
        raise ConfigError(
            f"The plan names {len(partitions)} partitions of {topic} up to {max(partitions)}, but not "
            f"{', '.join(map(str, first))}{more}: Spark needs every partition of a topic.",
            hint="Make the plan again for the whole topic.",
        )
