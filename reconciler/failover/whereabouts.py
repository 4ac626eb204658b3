"""Where jobs live, and so in which direction a command looks. Pure.

The newest location of each job counts (``state.locations``); a job that has none is taken to be at its home. Only its
hook asks whether that is so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.config.file import Config, Job
from reconciler.config.settings import Left
from reconciler.config.streams import Stream
from reconciler.core.anchors import Anchor
from reconciler.core.errors import ConfigError
from reconciler.places.registry import checkpoint_at, traits
from reconciler.ports import TopicPartition
from reconciler.state.locations import Location, Phase
from reconciler.state.plans import Numbers
from reconciler.state.stored import Stored

Locations = Mapping[str, Location | None]
"""The newest location of each job, by its name."""
Plans = Mapping[str, Mapping[int, Numbers]]
"""The plans by which jobs were moved, by the job's name. A job that never moved has no entry."""
NO_PLANS: Plans = {}


@dataclass(frozen=True, slots=True)
class Direction:
    """From one cluster to another; ``moved``: the job already lives on the second."""

    here: str
    there: str
    moved: bool = False


def direction_of(config: Config, job: Job, location: Location | None, to: str | None = None) -> Direction:
    """The direction in which a job is looked at: to ``to``, else where it is moving, else to the other cluster of two.

    A job that was moved is looked at where it lives if that other cluster has no address: it is lost. Raises
    ConfigError if there are several others.
    """
    lives = job.home if location is None else numbers_on(job, location)
    there = to or (None if location is None else location.to) or other_than(config, lives)
    if to is None and location is not None and location.stay > 1 and config.clusters[there] is None:
        there = lives
    if there == lives:
        return Direction(other_than(config, lives, any_will_do=True), there, moved=True)
    return Direction(lives, there)


def numbers_on(job: Job, location: Location) -> str:
    """The cluster in whose numbering the job's numbers are: from ``writing`` on, the one that it moves to.

    A checkpoint is copied, so its own numbers do not change.
    """
    is_written = location.phase is Phase.WRITING and not traits(job.store).corrected_in_copy
    return location.to if is_written and location.to is not None else location.cluster


def other_than(config: Config, cluster: str, *, any_will_do: bool = False) -> str:
    """The other cluster of two. Raises ConfigError if there are more, unless any will do."""
    others = [name for name in config.clusters if name != cluster]
    if len(others) != 1 and not any_will_do:
        raise ConfigError(
            f"The configuration has {len(config.clusters)} clusters, and a job may move from {cluster} to any other.",
            hint=f"Say where: --to CLUSTER, one of {', '.join(others)}.",
        )
    return others[0]


def by_direction(
    config: Config, jobs: Sequence[Job], locations: Locations, to: str | None = None, plans: Plans = NO_PLANS
) -> list[tuple[Config, list[str]]]:
    """The configuration once for each direction in which some of ``jobs`` go, with the names of these.

    Each job in it knows whether it has moved already, and where its checkpoint is. Raises as ``direction_of``.
    """
    found = {job.name: direction_of(config, job, locations.get(job.name), to) for job in jobs}
    leaving = {(each.here, each.there) for each in found.values() if not each.moved}
    ways: dict[tuple[str, str], list[str]] = {}
    for name, each in found.items():
        beside = sorted(way for way in leaving if each.moved and way[1] == each.there)  # any direction to there will do
        ways.setdefault(beside[0] if beside else (each.here, each.there), []).append(name)
    return [
        (_with_places(config.between(*way), {name: found[name].moved for name in names}, locations, plans), names)
        for way, names in ways.items()
    ]


def where_living(config: Config, jobs: Sequence[Job], locations: Locations) -> list[tuple[Config, list[str]]]:
    """The configuration once for each cluster where some of ``jobs`` live, as its ``here``, with the names of these."""
    living: dict[str, list[str]] = {}
    for job in jobs:
        at = locations.get(job.name)
        living.setdefault(job.home if at is None else at.cluster, []).append(job.name)
    return [
        (_with_places(config.on(here), dict.fromkeys(names, False), locations), names) for here, names in living.items()
    ]


def located(
    config: Config, jobs: Sequence[Job], locations: Locations, to: str | None = None, plans: Plans = NO_PLANS
) -> Config:
    """As ``by_direction``, for jobs that all go the same way. Raises ConfigError if they do not."""
    ways = by_direction(config, jobs, locations, to, plans)
    if len(ways) > 1:
        said = "; ".join(f"{', '.join(names)} from {each.here} to {each.there}" for each, names in ways)
        raise ConfigError(
            f"The jobs do not all go the same way: {said}.",
            hint="Name jobs of one direction with --job, or add --to CLUSTER.",
        )
    return ways[0][0] if ways else config


def toward_place(config: Config, job: Job, here: Location, cluster: str) -> Config:
    """The configuration toward ``cluster``, where the job's place is read or written.

    Only a group is in the cluster itself: else one without an address is replaced by one that has an address.
    """
    if not traits(job.store).holds_commits and config.clusters[cluster] is None:
        cluster = next((name for name, found in config.clusters.items() if found is not None), cluster)
    return located(config, [job], {job.name: here}, cluster)


def _with_places(config: Config, moved: Mapping[str, bool], locations: Locations, plans: Plans = NO_PLANS) -> Config:
    """``config``, whose jobs in ``moved`` know where they are now."""
    placed = [
        _placed(job, locations.get(job.name), config, plans.get(job.name, {}), moved=moved[job.name])
        if job.name in moved
        else job
        for job in config.jobs
    ]
    return replace(config, jobs=tuple(placed))


def _placed(job: Job, location: Location | None, config: Config, plans: Mapping[int, Numbers], *, moved: bool) -> Job:
    """The job at its present place: a query continues in the copy that its location names."""
    copy = None if location is None else location.checkpoint
    store = job.store if copy is None else checkpoint_at(copy)
    found = replace(job, moved=moved, store=store, in_copy=copy is not None)
    return replace(found, location=None if location is None else location.number, left=_left(config, plans))


def _left(config: Config, plans: Mapping[int, Numbers]) -> dict[TopicPartition, Left]:
    """Where the job was when it left the cluster that ``config`` leads to."""
    naming, found = config.topics.naming, dict[TopicPartition, Left]()
    for _, plan in sorted(plans.items()):
        for at, each in plan.rows.items():
            key = TopicPartition(naming.name_on(Stream(at.topic, at.origin), config.there), at.partition)
            before, left = found.get(key), each.row.left
            if plan.leaves == config.there:
                furthest = max(left.furthest, before.furthest if before and _is_as_before(before, left) else 0)
                found[key] = Left(left.number, furthest, left.record, each.row.number)
            elif before is not None and before.base is not None:  # from one cluster to another, or within one
                found[key] = replace(before, base=each.row.number - (left.number - before.base))
    return found


def _is_as_before(before: Left, left: Stored[Anchor]) -> bool:
    """True if the earlier stay on that cluster had the same numbering: the topic was not recreated since."""
    anchor, record = before.anchor, left.record
    if anchor is None or record is None or None in (anchor.cluster_id, record.cluster_id):
        return True
    return record.numbered_by(anchor.cluster_id, anchor.topic_id)
