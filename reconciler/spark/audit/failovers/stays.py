"""The stays of a job, from the plans that ended and began them. Plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reconciler.core.errors import ConfigError
from reconciler.formats.plan import PartitionPlan, Plan
from reconciler.ports import TopicPartition


class Interval(NamedTuple):
    """The offsets of one partition that one stay read: [start, end); ``end`` None: up to the audit's end."""

    stay: int
    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class ClusterStays:
    """All stays on one cluster, by partition. ``cluster_id`` None: no plan names it.

    ``sources`` are the rows whose stored offset is on this cluster. ``is_last``: the job is there now.
    """

    cluster_id: str | None
    intervals: Mapping[TopicPartition, tuple[Interval, ...]]
    topic_ids: Mapping[str, str]
    sources: tuple[PartitionPlan, ...]
    is_last: bool


@dataclass(frozen=True, slots=True)
class Hop:
    """One failover: the rows of all its plans."""

    source_id: str | None
    destination_id: str
    rows: tuple[PartitionPlan, ...]


@dataclass(frozen=True, slots=True)
class Stays:
    """One job's stays. ``order`` has the cluster of each; ``announced`` is the sum of the plans' replay bounds.

    ``undecided`` are partitions without an offset in a plan; ``assumed`` says what no plan states. Each of ``hops``
    ends one stay and begins the next.
    """

    job: str
    digests: tuple[str, ...]
    clusters: tuple[ClusterStays, ...]
    order: tuple[str | None, ...]
    announced: int
    undecided: tuple[TopicPartition, ...]
    assumed: tuple[str, ...]
    hops: tuple[Hop, ...]

    @property
    def topics(self) -> frozenset[str]:
        """The job's topics on all clusters, also on one that is gone: rows from there name them, too."""
        rows = [row for hop in self.hops for row in hop.rows]
        return frozenset(name for row in rows for name in (row.source_topic, row.topic))


def is_several(plans: Sequence[Plan]) -> bool:
    """True if the plans lead to more than one cluster, so that they are of more than one failover."""
    return len({plan.cluster_id for plan in plans}) > 1


def stays(plans: Iterable[Plan], job: str | None = None) -> Stays:
    """The stays between these plans, in the order in which they were made.

    Raises ConfigError unless each plan begins where the one before it led to; NeedsPerson if it is not clear which job
    is meant.
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
            hops[-1] = _joined(hops[-1], hop, plan.created_at)
        else:
            hops.append(hop)
    hops = _with_sources(hops)
    assumed: list[str] = []
    by_cluster: dict[str | None, dict[TopicPartition, list[Interval]]] = {}
    order = [hops[0].source_id, *(hop.destination_id for hop in hops)]
    for number, cluster_id in enumerate(order):
        into = by_cluster.setdefault(cluster_id, {})
        before, behind = hops[number - 1] if number else None, hops[number] if number < len(hops) else None
        for at, interval in _stay(number, before, behind, assumed):
            into.setdefault(at, []).append(interval)
    clusters = tuple(
        ClusterStays(
            cluster_id,
            {at: tuple(found) for at, found in sorted(intervals.items())},
            _topic_ids(hops, cluster_id),
            tuple(row for hop in hops if hop.source_id == cluster_id for row in hop.rows),
            cluster_id == order[-1],
        )
        for cluster_id, intervals in by_cluster.items()
    )
    rows = [row for hop in hops for row in hop.rows]
    return Stays(
        job=chosen[0][1].name,
        digests=tuple(plan.to_json()["sha256"] for plan, _ in chosen),
        clusters=clusters,
        order=tuple(order),
        announced=sum(row.replay_at_most or 0 for row in rows),
        undecided=tuple(sorted({row.key for row in rows if row.resume_offset is None})),
        assumed=tuple(dict.fromkeys(assumed)),
        hops=tuple(hops),
    )


def _joined(hop: Hop, other: Hop, created_at: str) -> Hop:
    """Several plans of one failover are one hop, if they share no partition."""
    if {row.key for row in hop.rows} & {row.key for row in other.rows}:
        raise ConfigError(
            f"The plan of {created_at} leads to the same cluster as the one before it, for the same partitions.",
            hint="Name each applied plan once, and those of the way back too.",
        )
    return Hop(hop.source_id or other.source_id, hop.destination_id, (*hop.rows, *other.rows))


def _with_sources(hops: Sequence[Hop]) -> list[Hop]:
    """The hops with their source clusters: each begins where the one before it led to. Raises ConfigError if not."""
    found: list[Hop] = []
    for number, hop in enumerate(hops):
        before = found[-1].destination_id if found else None
        # The first plan need not name its source. On the way there and back it is where the second one led to.
        inferred = before or (hops[1].destination_id if len(hops) > 1 else None)
        source = hop.source_id or inferred
        if before is not None and source != before:
            raise ConfigError(
                f"Plan {number} led to cluster {before}, and plan {number + 1} begins at cluster {source}.",
                hint="A plan in between is missing: name every applied plan of the job.",
            )
        found.append(Hop(source, hop.destination_id, hop.rows))
    return found


def _stay(
    number: int, before: Hop | None, behind: Hop | None, assumed: list[str]
) -> Iterable[tuple[TopicPartition, Interval]]:
    """The partitions of one stay: from the resume offsets of the plan ``before`` to the stored ones of ``behind``."""
    starts = {} if before is None else {row.key: row.resume_offset for row in before.rows}
    ends = {} if behind is None else {row.source_key: row.stored_offset for row in behind.rows}
    for at in sorted({*starts, *ends}):
        start = starts.get(at, 0)
        if start is None:  # undecided: the job could not start there
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
        stored = ends[at]
        if stored is not None or before is not None:  # else the job had read nothing, or there is no such partition
            yield at, Interval(number, start, max(start, stored or 0))


def _topic_ids(hops: Sequence[Hop], cluster_id: str | None) -> dict[str, str]:
    """The ids of the cluster's topics. Raises ConfigError if a topic was recreated between two plans."""
    found: dict[str, str] = {}
    for hop in hops:
        for row in hop.rows if hop.destination_id == cluster_id else ():
            if row.topic_id is not None and found.setdefault(row.topic, row.topic_id) != row.topic_id:
                raise ConfigError(
                    f"{row.topic} was deleted and recreated between two of the plans.",
                    hint="Audit the plans since then, without those before.",
                )
    return found
