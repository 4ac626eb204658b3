"""The stays of a job, from the plans that ended and began them. Plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reconciler.core.errors import ConfigError
from reconciler.plan.document import PartitionPlan, Plan
from reconciler.ports import TopicPartition


class Interval(NamedTuple):
    """The offsets of a partition, read in one stay: [start, end); ``end`` None: up to the audit's end."""

    stay: int
    start: int
    end: int | None


class Unit(NamedTuple):
    """A partition of the topic where the job was first; or the whole topic (None), if its partitions do not correspond
    between the clusters. Each unit has figures of its own.
    """

    topic: str
    partition: int | None


@dataclass(frozen=True, slots=True)
class ClusterStays:
    """All stays on one cluster, by partition. ``cluster_id`` None: no plan names it.

    ``left``: the rows of each plan that led away. ``is_last``: the job is there now. ``undecided``: partitions without
    an offset in a plan; the job is not expected to have read from the given offset on.
    """

    cluster_id: str | None
    intervals: Mapping[TopicPartition, tuple[Interval, ...]]
    topic_ids: frozenset[tuple[str, str]]
    left: tuple[tuple[PartitionPlan, ...], ...]
    is_last: bool
    undecided: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Hop:
    """One failover: the rows of its plan."""

    source_id: str | None
    destination_id: str
    rows: tuple[PartitionPlan, ...]


@dataclass(frozen=True, slots=True)
class Stays:
    """One job's stays. ``order``: the cluster of each. Each of ``hops`` ends one stay and begins the next.

    ``roots``: the topic's name where the job was first, by each cluster's name of it. ``spread``: the roots whose
    partitions do not correspond. ``announced``: the plans' replay bounds. ``assumed``: facts that no plan states.
    """

    job: str
    digests: tuple[str, ...]
    clusters: tuple[ClusterStays, ...]
    order: tuple[str | None, ...]
    hops: tuple[Hop, ...]
    roots: Mapping[str, str]
    spread: frozenset[str]
    units: tuple[Unit, ...]
    announced: Mapping[Unit, int]
    assumed: tuple[str, ...]

    def unit(self, at: TopicPartition) -> Unit:
        return _unit(at, self.roots, self.spread)

    @property
    def undecided(self) -> list[TopicPartition]:
        """The partitions for which a plan has no offset."""
        return sorted({row.key for hop in self.hops for row in hop.rows if row.resume_offset is None})


def find_stays(plans: Iterable[Plan], job: str | None = None) -> Stays:
    """The stays between these plans, in the order in which they were made.

    Raises ConfigError unless each plan begins where the previous one led to, and if it is not clear which job is meant.
    """
    chosen = sorted(((plan, plan.job(job)) for plan in plans), key=lambda each: each[0].created_at)
    if not chosen:
        raise ConfigError("An audit needs the plans that the job was started with.", hint="Name their files.")
    if len({found.name for _, found in chosen}) > 1:
        raise ConfigError("The plans are for different jobs.", hint="Audit them one at a time.")
    hops: list[Hop] = []
    for plan, found in chosen:
        hop = Hop(plan.source_cluster_id, plan.cluster_id, found.starts.partitions)
        if hops and hops[-1].destination_id == hop.destination_id:
            raise ConfigError(
                f"The plan of {plan.created_at} leads to the same cluster as the one before it.",
                hint="Name each applied plan once, and those of the way back too.",
            )
        hops.append(hop)
    hops = _with_sources(hops)
    rows = [row for hop in hops for row in hop.rows]
    roots: dict[str, str] = {}
    for row in rows:
        roots.setdefault(row.topic, roots.setdefault(row.source_topic, row.source_topic))
    spread = frozenset(roots[row.topic] for row in rows if row.spread)
    announced: dict[Unit, int] = {}
    for row in rows:
        unit = _unit(row.key, roots, spread)
        announced[unit] = announced.get(unit, 0) + (row.replay_at_most or 0)
    assumed: list[str] = []
    order = (hops[0].source_id, *(hop.destination_id for hop in hops))
    return Stays(
        job=chosen[0][1].name,
        digests=tuple(plan.to_json()["sha256"] for plan, _ in chosen),
        clusters=_clusters(hops, order, assumed),
        order=order,
        hops=tuple(hops),
        roots=roots,
        spread=spread,
        units=tuple(sorted(announced, key=lambda unit: (unit.topic, unit.partition or 0))),
        announced=announced,
        assumed=tuple(dict.fromkeys(assumed)),
    )


def _unit(at: TopicPartition, roots: Mapping[str, str], spread: frozenset[str]) -> Unit:
    root = roots[at.topic]
    return Unit(root, None if root in spread else at.partition)


def _with_sources(hops: Sequence[Hop]) -> list[Hop]:
    """The hops with their source clusters. Raises ConfigError unless each begins where the previous one led to."""
    found: list[Hop] = []
    for number, hop in enumerate(hops):
        before = found[-1].destination_id if found else None
        # The first plan need not name its source. After a way back it is the cluster that the second plan leads to.
        inferred = before or (hops[1].destination_id if len(hops) > 1 else None)
        source = hop.source_id or inferred
        if before is not None and source != before:
            raise ConfigError(
                f"Plan {number} led to cluster {before}, and plan {number + 1} begins at cluster {source}.",
                hint="A plan in between is missing: name every applied plan of the job.",
            )
        found.append(Hop(source, hop.destination_id, hop.rows))
    return found


def _clusters(hops: Sequence[Hop], order: Sequence[str | None], assumed: list[str]) -> tuple[ClusterStays, ...]:
    by_cluster: dict[str | None, dict[TopicPartition, list[Interval]]] = {}
    for number, cluster_id in enumerate(order):
        into = by_cluster.setdefault(cluster_id, {})
        before, behind = hops[number - 1] if number else None, hops[number] if number < len(hops) else None
        for at, interval in _stay(number, before, behind, assumed):
            into.setdefault(at, []).append(interval)
    return tuple(
        _cluster(hops, cluster_id, {at: tuple(found) for at, found in sorted(intervals.items())}, order[-1])
        for cluster_id, intervals in by_cluster.items()
    )


def _cluster(
    hops: Sequence[Hop],
    cluster_id: str | None,
    intervals: Mapping[TopicPartition, tuple[Interval, ...]],
    last: str | None,
) -> ClusterStays:
    left = [hop.rows for hop in hops if hop.source_id == cluster_id]
    arrived = [row for hop in hops if hop.destination_id == cluster_id for row in hop.rows]
    undecided = {row.key: 0 for row in arrived if row.resume_offset is None}
    for row in (row for rows in left for row in rows if row.resume_offset is None):
        undecided.setdefault(row.source_key, max(0, row.stored_offset or 0))
    ids = frozenset((row.topic, row.topic_id) for row in arrived if row.topic_id is not None)
    return ClusterStays(cluster_id, intervals, ids, tuple(left), cluster_id == last, undecided)


def _stay(
    number: int, before: Hop | None, behind: Hop | None, assumed: list[str]
) -> Iterable[tuple[TopicPartition, Interval]]:
    """The partitions of one stay: from the resume offsets of the plan ``before`` to the stored ones of ``behind``."""
    starts = {} if before is None else {row.key: row.resume_offset for row in before.rows}
    ends = {} if behind is None else {row.source_key: row.stored_offset for row in behind.rows}
    for at in sorted({*starts, *ends}):
        start = starts.get(at, 0)
        if start is None:  # the job could not start there
            continue
        if behind is None:
            yield at, Interval(number, start, None)
            continue
        if before is not None and at not in starts:
            assumed.append(f"No plan says where the job began {at}: taken to be its start.")
        if at not in ends:
            assumed.append(f"No plan says where the job left {at}: taken to be its end.")
            yield at, Interval(number, start, None)
            continue
        yield at, Interval(number, start, max(start, ends[at] or 0))
