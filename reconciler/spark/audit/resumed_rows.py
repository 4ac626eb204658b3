"""The plans' rows as an audit needs them: where each cluster's log is cut."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from reconciler.core.errors import ConfigError
from reconciler.core.verdicts import Position, Verdict
from reconciler.formats.plan import PartitionPlan, Plan
from reconciler.ports import TopicPartition

ALL_PARTITIONS = -1
"""In place of a partition: the topic is compared as a whole, since its partitions do not correspond."""


class AuditUnit(NamedTuple):
    """A unit with figures of its own: a source topic's partition, or a whole topic (``ALL_PARTITIONS``)."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ResumedRow:
    """One row of a plan that has a resume offset. ``remapped``: its topic's partitions do not correspond."""

    row: PartitionPlan
    resume_offset: int
    remapped: bool

    @property
    def place(self) -> AuditUnit:
        return AuditUnit(self.row.source_topic, ALL_PARTITIONS if self.remapped else self.row.partition)

    @property
    def processed_until(self) -> int:
        """The source's offset before which all records were processed."""
        return max(0, self.row.stored_offset or 0)


@dataclass(frozen=True, slots=True)
class AuditedJob:
    """The rows of one job that have a resume offset, from one plan or several, and the clusters that they are about.

    ``undecided`` are destination partitions without an offset in the plan: the job could not start there.
    """

    job: str
    destination_cluster_id: str
    source_cluster_id: str | None
    digests: tuple[str, ...]
    resumed_rows: tuple[ResumedRow, ...]
    undecided: tuple[TopicPartition, ...]

    @property
    def destinations(self) -> dict[str, str]:
        """The source's name of each destination topic."""
        return {resumed.row.topic: resumed.row.source_topic for resumed in self.resumed_rows}

    def source_name(self, topic: str) -> str | None:
        """The source's name of a topic that has either cluster's name."""
        return self.destinations.get(topic, topic if topic in self.destinations.values() else None)


def planned(plans: Iterable[Plan], job: str | None = None) -> AuditedJob:
    """The rows of one job in the plans; ``job`` may be omitted if there is only one.

    Raises ConfigError if the plans belong to two failovers, which must be audited one at a time; NeedsPerson if it is
    not clear which job is meant.
    """
    chosen = [(plan, plan.job(job)) for plan in plans]
    if not chosen:
        raise ConfigError("An audit needs the plan that the job was started with.", hint="Name its file.")
    if len({(found.name, plan.cluster_id) for plan, found in chosen}) > 1:
        raise ConfigError(
            "The plans are for different jobs or different destinations.", hint="Audit them one at a time."
        )
    # A checkpoint that stopped within a batch goes on from the batch's start.
    rows = [row for _, found in chosen for row in found.partitions if row.position != Position.END]
    if len({row.key for row in rows}) < len(rows):
        raise ConfigError(
            "Two plans have the same partition: they belong to two failovers, or one was made again.",
            hint="Audit each with the plan that was applied.",
        )
    spread = {row.topic for row in rows if row.verdict is Verdict.REMAPPED}
    sources = {plan.source_cluster_id for plan, _ in chosen} - {None}
    return AuditedJob(
        job=chosen[0][1].name,
        destination_cluster_id=chosen[0][0].cluster_id,
        source_cluster_id=sources.pop() if len(sources) == 1 else None,
        digests=tuple(plan.to_json()["sha256"] for plan, _ in chosen),
        resumed_rows=tuple(
            ResumedRow(row, row.resume_offset, row.topic in spread)
            for row in sorted(rows, key=lambda row: (row.source_topic, row.partition))
            if row.resume_offset is not None
        ),
        undecided=tuple(sorted(row.key for row in rows if row.resume_offset is None)),
    )
