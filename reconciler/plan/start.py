"""Whether a job may start by a plan: the offsets for Spark, or sentences that say why not and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.core.json_fields import compact
from reconciler.core.question import Behind
from reconciler.core.text import MOST_NAMES, counted, some
from reconciler.core.verdicts import STOPS, Position, Skips, Verdict
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, StartPolicy
from reconciler.plan.rows import SinkRow, why_sink_stops


def why_stopped(row: PartitionPlan, policy: StartPolicy) -> str | None:
    """Why this partition must not start, and what the operator can do; None if it may.

    ``policy`` holds unless the row's job has its own.
    """
    policy = row.policy or policy
    if row.skips is not None and not row.skips_accepted:
        return _why_skips(row, row.skips)
    if row.set_by_hand:
        return None
    if row.finding in STOPS:
        return _NOT_THERE if row.absent else _ADVICE[row.finding]
    if row.no_rows:
        return _NO_ROWS
    if row.finding is Verdict.EARLY and (row.replay_at_most or 0) > policy.max_replay:
        return (
            f"up to {counted(row.replay_at_most or 0, 'record')} would be read again, more than max_replay = "
            f"{policy.max_replay}: raise max_replay or scan_records{_or_accept(row)}"
        )
    if row.finding is Verdict.BEHIND and policy.behind is not Behind.START:
        return f'the mirror has not delivered the anchor (behind = "{policy.behind}"): hook --wait{_or_accept(row)}'
    return None


def stops_of(job: JobPlan, policy: StartPolicy) -> list[tuple[PartitionPlan, str | None]]:
    """The job's partitions, each with why it must not start; a sink that forbids the start forbids it for all."""
    sink = job.stopped_by
    forbidden = None if sink is None else why_sink_stops(sink)
    return [(row, why_stopped(row, policy) or forbidden) for row in job.starts.partitions]


def accepting(job: JobPlan, policy: StartPolicy) -> list[str]:
    """The words of --accept with which a move of the job may begin; none if it may, or if they are not enough.

    A mirror that is behind is waited for.
    """
    stopped = [row for row in job.partitions if why_stopped(row, policy) is not None]
    stopped = [row for row in stopped if row.finding is not Verdict.BEHIND or row.set_by_hand]
    if job.stopped_by is not None or not all(map(_may_be_accepted, stopped)):
        return []
    return sorted({"skips" if row.skips is not None else row.finding.value for row in stopped})


def _may_be_accepted(row: PartitionPlan) -> bool:
    if row.skips is not None or row.absent:
        return True
    return row.finding is not Verdict.UNRESOLVED and row.position != Position.END


def _or_accept(row: PartitionPlan) -> str:
    """The only decision on the end of a batch is that it may be missing."""
    return "" if row.position == Position.END else f", or --accept {row.finding.value}"


def skips_words(skips: Skips) -> str:
    """How many records are skipped: exactly, between two numbers, or at most."""
    at_most = counted(skips.at_most, "record")
    if skips.at_least == skips.at_most:
        return at_most
    return f"{f'{skips.at_least:,} to' if skips.at_least else 'at most'} {at_most}"


def _why_skips(row: PartitionPlan, skips: Skips) -> str:
    if row.finding is Verdict.UNRESOLVED:
        what = f"nothing was proven, so how many unprocessed records that offset skips is unknown: {skips_words(skips)}"
        return f"{what}; choose an earlier offset, or add --accept skips"
    whose = "has not processed" if skips.at_least == skips.at_most else "may not have processed"
    return f"that offset skips {skips_words(skips)} that the job {whose}: choose an earlier one, or add --accept skips"


_NO_ROWS = (
    "correct the job's group, topics or store; if the job is new, "
    'write new = "earliest" in its [[jobs]] table, or let it start once with --accept new'
)
_NOT_THERE = (
    "correct the job's topics or home, [topics], or the mirror; if the job is not to read it, --accept unresolved"
)
_ADVICE = {
    Verdict.LOST: "unprocessed records may be gone: fetch them elsewhere, then --accept lost",
    Verdict.UNRESOLVED: "nothing could be proven: choose an offset with --set TOPIC:PARTITION=OFFSET",
}


def _stop_text(name: str, detail: str, why: str) -> str:
    """The sentence on partitions that must not start: the finding, then the next move."""
    return f"{name} must not start: {detail}. {why[:1].upper()}{why[1:]}."


def stop_sentences(rows: Sequence[PartitionPlan], policy: StartPolicy, most: int | None = None) -> list[str]:
    """One sentence for all partitions that stop for the same reason: a wrong group stops every one of its topics'.

    Of more than ``most`` reasons, the first of each kind and then others, and a line that counts what is left out.
    """
    names: dict[tuple[str, str], list[str]] = {}
    kinds: dict[tuple[Verdict, bool, bool], tuple[str, str]] = {}
    for row in rows:
        if why := why_stopped(row, policy):
            reason = (row.detail, why)
            names.setdefault(reason, []).append(row.place)
            kinds.setdefault((row.finding, row.no_rows, row.skips is None), reason)
    reasons = list(names)
    if most is not None and len(reasons) > most:
        reasons = list(dict.fromkeys([*kinds.values(), *reasons]))[:most]
    sentences = [_stop_text(some(names[reason], MOST_NAMES), *reason) for reason in reasons]
    if len(reasons) < len(names):
        left_out = sum(len(places) for places in names.values()) - sum(len(names[reason]) for reason in reasons)
        sentences.append(f"{left_out:,} more must not start, for other reasons; `reconciler show PLAN` lists all.")
    return sentences


def sink_text(row: SinkRow) -> str:
    stop = "must not start: " if row.stops else ""
    return f"sink {row.sink} · {row.outcome.value}: {stop}{row.detail}."


def stopping_sink_sentences(rows: Sequence[SinkRow]) -> list[str]:
    return [sink_text(row) for row in rows if row.stops]


Offsets = dict[TopicPartition, int]
"""The next offset to read."""
EARLIEST, LATEST = -2, -1
"""Spark's own numbers in ``startingOffsets``."""
MOST_NAMED = 20
"""The most partitions that one message lists."""


def offsets_of(job: JobPlan, policy: StartPolicy) -> Offsets:
    """The offset of every partition of a planned job.

    Raises NeedsPerson for a partition without a decision and for a sink that forbids the start, ConfigError for
    partitions that Spark could not use.
    """
    _require_startable(job, policy)
    by_topic: dict[str, dict[int, int]] = {}
    for row in job.partitions:
        if row.absent:
            continue  # the operator accepted that the destination has no such partition
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
    """True if the plan has an offset, or the operator accepted that the partition does not exist."""
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
