"""A plan held against the destination once more, before a checkpoint's copy begins there.

What ``apply`` does for a store. With the job's configuration its own ``prepare`` is run: the store (the checkpoint, and
the anchors kept for it) is read again, and the record in front of every offset is compared with the anchor. Without it
the plan must do, which has no ids: where an id decided and the content is another than the source's, a configuration is
asked for.
"""

from __future__ import annotations

from dataclasses import replace

from reconciler.clock import stamp
from reconciler.config.file import Config
from reconciler.core.anchors import Record, fingerprint
from reconciler.core.errors import Changed, ConfigError
from reconciler.core.verdicts import MatchedBy, Verdict
from reconciler.failover.apply import prepare
from reconciler.failover.outside import Outside
from reconciler.failover.plan_checks import AGAIN, check_destination, check_offsets, records_before
from reconciler.failover.positions import ends_of
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan
from reconciler.formats.spark_checkpoint import END, NEXT
from reconciler.ports import ClusterInfo, LogReader


def verify(
    plan: Plan, job: JobPlan, reader: LogReader, now_ms: int, *, compares: bool = True
) -> dict[PartitionPlan, Record]:
    """Raise Changed if the plan has expired or the destination is not what it saw. Reads only.

    Returns the record right before each row's offset, where the plan knows one.
    ``compares`` False leaves the records' content to ``verify_configured``. ConfigError where a configuration is needed
    to compare it.
    """
    if stamp(now_ms) >= plan.expires_at:
        raise Changed(f"The plan expired at {plan.expires_at}.", hint="Make a new one.")
    topics = {row.topic for row in job.partitions}
    cluster = reader.describe(topics)
    _check_topics(plan, job, cluster)
    rows = [row for row in job.partitions if row.resume_offset is not None]
    check_offsets(rows, reader)
    records = records_before(rows, reader)
    for row, record in records.items() if compares else ():
        _compare(row, record)
    _check_topics(plan, job, reader.describe(topics))  # what was read of a topic made anew in between says nothing
    return records


def verify_configured(plan: Plan, job: JobPlan, config: Config, outside: Outside) -> None:
    """``apply``'s own checks, for both positions of a repeated batch. Raises what ``prepare`` does."""
    (configured,) = config.chosen(job.name)
    for position in sorted({row.position for row in job.partitions}):
        asked = ends_of(config, configured) if position == END else configured
        rows = tuple(replace(row, position=NEXT) for row in job.partitions if row.position == position)
        one = replace(job, name=asked.name, group=asked.group, partitions=rows)
        prepare(replace(plan, jobs=(one,)), replace(config, jobs=(asked,)), outside)


def _check_topics(plan: Plan, job: JobPlan, cluster: ClusterInfo) -> None:
    """As ``apply`` does; and as a query reads whole topics, there must be no partition that the plan does not know."""
    check_destination(replace(plan, jobs=(job,)), cluster)
    known = {(row.topic, row.partition) for row in job.partitions}
    for topic in sorted({row.topic for row in job.partitions}):
        info = cluster.topics.get(topic)
        more = [number for number in sorted(info.partitions) if (topic, number) not in known] if info else []
        if more:
            raise Changed(f"The topic {topic} has partition {more[0]} now, which the plan does not know.", hint=AGAIN)


def _compare(row: PartitionPlan, record: Record) -> None:
    anchor = row.anchor
    if anchor is None or row.set_by_hand or row.verdict not in (Verdict.MATCH, Verdict.MOVED):
        return
    if row.resume_offset != record.offset + 1 or anchor.fingerprint == fingerprint(record.key, record.value):
        return
    if row.matched_by == MatchedBy.FINGERPRINT:
        raise Changed(f"{row.key}: another record is at {record.offset} now.", hint=AGAIN)
    raise ConfigError(
        f"{row.key}: whether the record at {record.offset} is still the one that the plan found by "
        f"its {row.matched_by or 'time'} cannot be told from the plan alone.",
        hint="Give the configuration that the plan was made with: -c FILE.",
    )
