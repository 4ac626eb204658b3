"""Checks whether a plan may be applied here and now: its time, its configuration, its cluster, the records it names.

Anyone who can write the file can also make its checksum fit. These checks do not rely on who wrote it. The records
before the resume offsets are read once more, since their anchors are written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing

from reconciler.clock import stamp
from reconciler.config.file import Config, Job, PolicySettings
from reconciler.core.anchors import Anchor, Identity, Names, Record, real_topic_id
from reconciler.core.errors import Changed, ConfigError
from reconciler.core.matching import Matcher
from reconciler.core.verdicts import Verdict
from reconciler.failover.checking.gather import Selected
from reconciler.failover.checking.rows import Planned
from reconciler.failover.outside import Outside
from reconciler.plan.document import PartitionPlan, Plan
from reconciler.ports import ClusterInfo, LogReader, ReadRequest, TopicPartition

AGAIN = "Find out what changed, then make a new plan."
OTHER = "Use the configuration that the plan was made with. If that was changed on purpose, apply needs a new plan."
CLOCKS_DIFFER_MS = 5 * 60_000
"""How far the clock of the machine that made a plan may be ahead of this one's."""


def check_expiry(plan: Plan, now_ms: int) -> None:
    """Raise Changed if the plan has expired by its own time."""
    if stamp(now_ms) >= plan.expires_at:
        raise Changed(f"The plan expired at {plan.expires_at}.", hint="Make a new one.")


def check_time(plan: Plan, policy: PolicySettings, now_ms: int) -> None:
    """Raise Changed if the plan has expired, by its own time or by today's policy, or is from the future.

    Times are UTC text of one layout, which sorts as time does.
    """
    check_expiry(plan, now_ms)
    if plan.created_at > stamp(now_ms + CLOCKS_DIFFER_MS):
        raise Changed(
            f"The plan says that it was made at {plan.created_at}, and here it is {stamp(now_ms)}.",
            hint="Find out which clock is wrong, then make a new plan.",
        )
    if plan.created_at <= stamp(max(0, now_ms - policy.plan_expires_ms)):
        raise Changed(
            f"The plan is of {plan.created_at}, which is longer ago than [policy] plan_expires allows.",
            hint="Make a new one.",
        )


def check_stores(plan: Plan, config: Config, outside: Outside) -> None:
    """Raise Changed if a job keeps its offsets elsewhere now. No store is contacted."""
    for job_plan in plan.jobs:
        (job,) = config.chosen(job_plan.name)
        with closing(outside.open_store(job.store)) as store:
            address = store.address
        if _place_of(address) != _place_of(job_plan.store):
            raise Changed(
                f'The store of job "{job.name}" is {address} in the configuration and {job_plan.store} in the plan.',
                hint="Use the configuration that the plan was made with.",
            )


def _place_of(address: str) -> str:
    """A store's address without its timeout, which says nothing of where the rows are."""
    return re.sub(r"(?<=[?&])timeout=[^&]*&?", "", address).rstrip("?&")


def _configured(name: str, config: Config) -> Job:
    for job in config.jobs:
        if job.name == name:
            return job
    known = ", ".join(job.name for job in config.jobs)
    raise ConfigError(
        f'The plan has the job "{name}", which the configuration does not have: it has {known}.',
        hint="Name the configuration that the plan was made with: -c FILE.",
    )


def check_configuration(plan: Plan, config: Config) -> None:
    """Raise Changed if a job has another group, or a row is of a topic that is not the job's or has another name now.

    Raises ConfigError for a job that the configuration does not have.
    """
    for job_plan in plan.jobs:
        job = _configured(job_plan.name, config)
        if job.group != job_plan.group:
            raise Changed(
                f'Job "{job.name}" has group "{job.group}" in the configuration and "{job_plan.group}" in the plan.',
                hint=OTHER,
            )
        for source_topic, topic in dict.fromkeys((row.source_topic, row.topic) for row in job_plan.partitions):
            if source_topic not in job.topics:
                raise Changed(
                    f'The plan has the topic "{source_topic}", which is not one of job "{job.name}".', hint=OTHER
                )
            name = config.topics.destination_of(source_topic)
            if topic != name:
                raise Changed(
                    f'"{source_topic}" is called "{name}" at the destination by the configuration, and "{topic}" by '
                    "the plan.",
                    hint=OTHER,
                )


def directed(config: Config, plan: Plan) -> Config:
    """The configuration for the move that the plan is about. Raises Changed if it has no such clusters."""
    for name in (plan.source_name, plan.destination_name):
        if name not in config.clusters:
            raise Changed(
                f'The plan is for a move from "{plan.source_name}" to "{plan.destination_name}", and the configuration '
                f'has no cluster "{name}".',
                hint="Use the configuration that the plan was made with.",
            )
    return config.between(plan.source_name, plan.destination_name)


def check_cluster(plan: Plan, cluster: ClusterInfo) -> None:
    """Raise Changed if the cluster is not the one that the plan saw."""
    if cluster.cluster_id != plan.cluster_id:
        raise Changed(
            f"The plan is for cluster {plan.cluster_id}, but the destination is {cluster.cluster_id}.",
            hint="Use the configuration that the plan was made with.",
        )


def check_destination(plan: Plan, cluster: ClusterInfo) -> None:
    """Raise Changed if the cluster, a topic or a partition is not the one that the plan saw."""
    check_cluster(plan, cluster)
    for job in plan.jobs:
        for row in job.partitions:
            info, now_id = cluster.topics.get(row.topic), cluster.topic_id(row.topic)
            if real_topic_id(now_id) != real_topic_id(row.topic_id):
                raise Changed(
                    f'The topic "{row.topic}" was deleted or recreated since the plan '
                    f"(its id was {row.topic_id}, now {now_id}).",
                    hint=AGAIN,
                )
            if row.resume_offset is not None and not (info and info.has(row.partition)):
                raise Changed(f"The destination has no {row.key}.", hint=AGAIN)


def check_offsets(rows: Sequence[PartitionPlan], reader: LogReader) -> Mapping[TopicPartition, int]:
    """Return where the logs of the rows start.

    Raises Changed if a log does not hold its row's offset, or holds a record where the plan has none.
    """
    partitions = list(dict.fromkeys(row.key for row in rows))
    if not partitions:
        return {}
    starts, ends = reader.log_starts(partitions), reader.log_ends(partitions)
    for row in rows:
        start, end = starts[row.key], ends[row.key]
        if row.resume_offset is None or not start <= row.resume_offset <= end:
            raise Changed(
                f"{row.key}: the log is now [{start}, {end}] and does not hold the planned offset {row.resume_offset}.",
                hint=AGAIN,
            )
    _check_nothing_between(rows, starts, reader)
    return starts


def _check_nothing_between(
    rows: Sequence[PartitionPlan], starts: Mapping[TopicPartition, int], reader: LogReader
) -> None:
    """Raise Changed if a record is between the one that a row names and its resume offset: it would be skipped.

    A row that names no record says that the log has none before the resume offset. Rows that are right are left out:
    they resume at the stored offset, and records that are newer than a tracked anchor may be before it.
    """
    asked: list[tuple[PartitionPlan, int]] = []
    for row in rows:
        front = starts[row.key] if row.record_offset is None else row.record_offset + 1
        if not row.is_right and row.resume_offset is not None and front < row.resume_offset:
            asked.append((row, front))
    if not asked:
        return
    chunks = reader.read([ReadRequest(row.key, front, 1) for row, front in asked])
    for (row, _), chunk in zip(asked, chunks, strict=True):
        first = chunk.records[0].offset if chunk.records else None
        if first is not None and row.resume_offset is not None and first < row.resume_offset:
            raise Changed(
                f"{row.key}: a record is at {first}, between the one that the plan rests on and the "
                f"planned offset {row.resume_offset}.",
                hint=AGAIN,
            )


def records_before(
    rows: Sequence[PartitionPlan], reader: LogReader, *, compacted: Collection[str] = ()
) -> dict[PartitionPlan, Record]:
    """The record right before each resume offset, of the rows that name one.

    Raises Changed if the record no longer exists, and its topic is not one of ``compacted``.
    """
    named = [(row, row.record_offset) for row in rows if row.record_offset is not None]
    chunks = reader.read([ReadRequest(row.key, offset, 1) for row, offset in named]) if named else ()
    found = {}
    for (row, offset), chunk in zip(named, chunks, strict=True):
        if not chunk.records or chunk.records[0].offset != offset:
            if row.topic in compacted:
                continue
            raise Changed(f"{row.key}: the record at {offset} is gone.", hint=AGAIN)
        found[row] = chunk.records[0]
    return found


def rests_on(row: PartitionPlan, record: Record) -> bool:
    """True if the row was found, not set by hand, because its anchor is the record that it names.

    That is the one right before its resume offset, or further before it where the stored offset is right.
    """
    matched = row.is_right and row.matched_by is not None
    found = matched or (row.finding is Verdict.EXACT and row.resume_offset == record.offset + 1)
    return found and not row.set_by_hand


def another_record(row: PartitionPlan, record: Record) -> Changed:
    """The error for a record that is not the one at its offset when the plan was made."""
    return Changed(f"{row.key}: another record is at {record.offset} now.", hint=AGAIN)


def anchors_for(
    job: Job, writing: Sequence[Planned], cluster: ClusterInfo, reader: LogReader
) -> dict[PartitionPlan, Anchor]:
    """The anchors to write: the records right before the resume offsets, read again from the destination."""
    if not writing:
        return {}
    check_offsets([row for row, _ in writing], reader)
    records = _compared(job, writing, reader)
    return {row: anchor_for(row, records.get(row), job.identity, cluster.cluster_id) for row, _ in writing}


def check_in_place(job: Job, left: Sequence[Planned], cluster: ClusterInfo, reader: LogReader) -> None:
    """Raise Changed for an offset that is not written, and is no longer right at the destination."""
    if not left:
        return
    starts = check_offsets([row for row, _ in left], reader)
    # Retention may pass the record of a match, and compaction remove it: the offset behind it stays right.
    kept = [(row, selected) for row, selected in left if (row.record_offset or 0) >= starts[row.key]]
    compacted = {name for name, info in cluster.topics.items() if info.compacted is not False}
    _compared(job, kept, reader, compacted=compacted)


def anchor_for(row: PartitionPlan, record: Record | None, identity: Identity, cluster_id: str) -> Anchor:
    """The anchor of a resume offset: the record right before it; at the start of a log, the numbering alone."""
    if record is None:
        return Anchor(cluster_id=cluster_id, topic_id=row.topic_id)
    return identity.anchor_of(record, cluster_id=cluster_id, topic_id=row.topic_id)


def _compared(
    job: Job, planned: Sequence[Planned], reader: LogReader, *, compacted: Collection[str] = ()
) -> dict[PartitionPlan, Record]:
    """The records that the rows name, read as ``records_before`` does and compared. Raises Changed."""
    records = records_before([row for row, _ in planned], reader, compacted=compacted)
    for row, selected in planned:
        if row in records:
            _check_record(job, row, selected, records[row])
    return records


def _check_record(job: Job, row: PartitionPlan, selected: Selected, record: Record) -> None:
    """Raise Changed if the record that the plan rests on is no longer the anchor."""
    anchor = selected.stored.anchor if selected.stored else None
    same = row.names(record)
    if same is None and anchor is not None and anchor.names is Names.LAST and rests_on(row, record):
        same = Matcher(anchor, job.identity).is_anchor_or_before(record)
    if same is False:
        raise another_record(row, record)
