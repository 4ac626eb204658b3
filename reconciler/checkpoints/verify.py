"""Checks a plan against the destination once more, before a checkpoint's copy starts there, as ``apply`` does.

With the job's configuration, ``apply``'s own ``prepare`` runs: it reads the store (the checkpoint and its anchors)
again, and compares the record before every offset with the anchor. Without it only the plan can be compared, which has
no ids: where an id decided and the content differs from the source's, the configuration is needed.
"""

from __future__ import annotations

from dataclasses import replace

from reconciler.config.file import Config
from reconciler.core.anchors import Record, has_fingerprint
from reconciler.core.errors import Changed, ConfigError
from reconciler.core.verdicts import MatchedBy
from reconciler.failover.outside import Outside
from reconciler.failover.positions import end_job
from reconciler.failover.writing.apply import prepare, refuse
from reconciler.failover.writing.plan_checks import (
    AGAIN,
    another_record,
    check_destination,
    check_expiry,
    check_offsets,
    records_before,
    rests_on,
)
from reconciler.failover.writing.refusals import Refusal
from reconciler.formats.checkpoint.layout import END, NEXT
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan
from reconciler.ports import ClusterInfo, LogReader


def verify(
    plan: Plan, job: JobPlan, reader: LogReader, now_ms: int, *, compares: bool = True
) -> dict[PartitionPlan, Record]:
    """Return the record right before each row's offset, where the plan names one. Reads only.

    Raises Changed if the plan has expired or the destination has changed since. ``compares`` False leaves the records'
    content to ``verify_configured``; else raises ConfigError where that needs the configuration.
    """
    check_expiry(plan, now_ms)
    topics = {row.topic for row in job.partitions}
    cluster = reader.describe(topics)
    _check_topics(plan, job, cluster)
    rows = [row for row in job.partitions if row.resume_offset is not None]
    check_offsets(rows, reader)
    records = records_before(rows, reader)
    for row, record in records.items() if compares else ():
        _compare(row, record)
    _check_topics(plan, job, reader.describe(topics))  # a topic that was recreated in between was not checked
    return records


def verify_configured(plan: Plan, job: JobPlan, config: Config, outside: Outside) -> None:
    """Run ``apply``'s own checks, for both positions of a repeated batch. Raises as ``prepare`` and ``refuse`` do."""
    (configured,) = config.chosen(job.name)
    for position in sorted({row.position for row in job.partitions}):
        asked = end_job(config, configured) if position == END else configured
        rows = tuple(replace(row, position=NEXT) for row in job.partitions if row.position == position)
        one = replace(job, name=asked.name, group=asked.group, partitions=rows)
        for change in prepare(replace(plan, jobs=(one,)), replace(config, jobs=(asked,)), outside):
            if change.refusal is Refusal.UNREADABLE:  # decisions were judged, and no row of the store is written
                refuse(change)


def _check_topics(plan: Plan, job: JobPlan, cluster: ClusterInfo) -> None:
    """Check as ``apply`` does; and a query reads whole topics, so no partition may be missing from the plan."""
    check_destination(replace(plan, jobs=(job,)), cluster)
    known = {(row.topic, row.partition) for row in job.partitions}
    for topic in sorted({row.topic for row in job.partitions}):
        info = cluster.topics.get(topic)
        more = [number for number in sorted(info.partitions) if (topic, number) not in known] if info else []
        if more:
            raise Changed(f"The topic {topic} has partition {more[0]} now, which is not in the plan.", hint=AGAIN)


def _compare(row: PartitionPlan, record: Record) -> None:
    same = row.names(record)
    if same is None and row.anchor is not None and rests_on(row, record):
        same = row.anchor.fingerprint is not None and has_fingerprint(record, row.anchor.fingerprint)
        if not same and row.matched_by != MatchedBy.FINGERPRINT:
            raise _undecided(row, record)
    if same is False:
        raise another_record(row, record)


def _undecided(row: PartitionPlan, record: Record) -> ConfigError:
    return ConfigError(
        f"{row.key}: whether the record at {record.offset} is still the one that the plan found by "
        f"its {row.matched_by or 'time'} cannot be told from the plan alone.",
        hint="Give the configuration that the plan was made with: -c FILE.",
    )
