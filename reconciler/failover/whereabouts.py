"""Where jobs live, and so in which direction a command looks. Pure.

The newest location of each job counts (``state.locations``); a job that has none is taken to be at its home. Only its
hook asks whether that is so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.config.file import Config, Job
from reconciler.core.errors import ConfigError
from reconciler.state.locations import Location, Phase
from reconciler.stores.registry import checkpoint_at

Locations = Mapping[str, Location | None]
"""The newest location of each job, by its name."""


@dataclass(frozen=True, slots=True)
class Direction:
    """From one cluster to another; ``moved``: the job lives on the latter already."""

    here: str
    there: str
    moved: bool = False


def direction_of(config: Config, job: Job, location: Location | None, to: str | None = None) -> Direction:
    """The direction in which a job is looked at: to ``to``, else where it is moving, else to the other cluster of two.

    Raises ConfigError if there are several others.
    """
    lives = job.home if location is None else location.cluster
    there = to or (None if location is None else location.to) or other_than(config, lives)
    if there == lives and (location is None or location.phase is Phase.LIVES):
        return Direction(other_than(config, lives, any_will_do=True), there, moved=True)
    return Direction(lives, there)


def other_than(config: Config, cluster: str, *, any_will_do: bool = False) -> str:
    """The other cluster of two. Raises ConfigError if there are more, unless any will do."""
    others = [name for name in config.clusters if name != cluster]
    if len(others) != 1 and not any_will_do:
        raise ConfigError(
            f"The configuration has {len(config.clusters)} clusters, and a job may move from {cluster} to any other.",
            hint=f"Say where: --to CLUSTER, one of {', '.join(others)}.",
        )
    return others[0]


def located(config: Config, jobs: Sequence[Job], locations: Locations, to: str | None = None) -> Config:
    """The configuration for the direction that all of ``jobs`` go; each knows whether it has moved already.

    Raises ConfigError if they do not go the same way.
    """
    found = {job.name: direction_of(config, job, locations.get(job.name), to) for job in jobs}
    theres = {each.there for each in found.values()}
    heres = {each.here for each in found.values() if not each.moved} or {each.here for each in found.values()}
    if len(theres) > 1 or len(heres) > 1:
        ways = ", ".join(f"{name} from {each.here} to {each.there}" for name, each in found.items())
        raise ConfigError(
            f"The jobs do not all go the same way: {ways}.", hint="Name jobs of one direction with --job, or add --to."
        )
    directed = config.between(heres.pop(), theres.pop()) if found else config
    placed = [
        _placed(job, locations.get(job.name), moved=found[job.name].moved) if job.name in found else job
        for job in directed.jobs
    ]
    return replace(directed, jobs=tuple(placed))


def _placed(job: Job, location: Location | None, *, moved: bool) -> Job:
    """The job as it is now: a query goes on in the copy that its location names."""
    copy = None if location is None else location.checkpoint
    return replace(job, moved=moved, store=job.store if copy is None else checkpoint_at(copy))
