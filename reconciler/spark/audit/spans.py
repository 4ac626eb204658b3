"""The plans' rows as an audit needs them: where each cluster's log is cut."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from reconciler.core.errors import ConfigError
from reconciler.core.verdicts import Position, Verdict
from reconciler.formats.plan import PartitionPlan, Plan

ALL_PARTITIONS = -1
"""In place of a partition: the topic is compared as a whole, since its partitions do not correspond."""


class Place(NamedTuple):
    """A unit with figures of its own: a source topic's partition, or a whole topic (``ALL_PARTITIONS``)."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Span:
    """One row of a plan. ``stored_offset`` is None, or below 0, where nothing was processed at the source."""

    source_topic: str
    topic: str
    topic_id: str | None
    partition: int
    stored_offset: int | None
    resume_offset: int
    replay_at_most: int | None
    replay_exact: int | None
    anchor_offset: int | None
    anchor_fingerprint: str | None
    remapped: bool

    @property
    def place(self) -> Place:
        return Place(self.source_topic, ALL_PARTITIONS if self.remapped else self.partition)

    @property
    def processed_until(self) -> int:
        """The source's offset before which all records were processed."""
        return max(0, self.stored_offset or 0)


@dataclass(frozen=True, slots=True)
class AuditedJob:
    """All spans of one job, from one plan or several, and the clusters they are about.

    ``undecided`` are destination partitions without an offset in the plan: the job could not start there.
    """

    job: str
    destination_cluster_id: str
    source_cluster_id: str | None
    digests: tuple[str, ...]
    spans: tuple[Span, ...]
    undecided: tuple[tuple[str, int], ...]

    @property
    def destinations(self) -> dict[str, str]:
        """The source's name of each destination topic."""
        return {span.topic: span.source_topic for span in self.spans}

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
    rows = [
        row for _, found in chosen for row in found.partitions if row.position != Position.END
    ]  # a checkpoint that stopped within a batch goes on from the batch's start
    keys = [(row.topic, row.partition) for row in rows]
    if len({*keys}) < len(keys):
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
        spans=tuple(
            _span(row, row.resume_offset, row.topic in spread)
            for row in sorted(rows, key=lambda row: (row.source_topic, row.partition))
            if row.resume_offset is not None
        ),
        undecided=tuple(sorted((row.topic, row.partition) for row in rows if row.resume_offset is None)),
    )


def _span(row: PartitionPlan, resume_offset: int, remapped: bool) -> Span:
    return Span(
        source_topic=row.source_topic,
        topic=row.topic,
        topic_id=row.topic_id,
        partition=row.partition,
        stored_offset=row.stored_offset,
        resume_offset=resume_offset,
        replay_at_most=row.replay_at_most,
        replay_exact=row.replay_exact,
        anchor_offset=row.anchor.offset if row.anchor else None,
        anchor_fingerprint=row.anchor.fingerprint if row.anchor else None,
        remapped=remapped,
    )
