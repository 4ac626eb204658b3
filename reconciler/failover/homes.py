"""The home of a job whose table leaves it out: the one cluster on which its topics exist under their own names.

A home is looked up until the job has a location. Its first location is at its home, and counts from then on: the
cluster may be lost later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from functools import cache

from reconciler.config.settings import Cluster
from reconciler.core.errors import ConfigError, NotCreated, Unreachable
from reconciler.state.jobs import JobState
from reconciler.state.opening import open_state

TopicsOf = Callable[[Mapping[str, str]], Sequence[str]]
"""The names of all topics of a cluster, by its client's properties; raises Unreachable and Refused."""


def find_homes(
    clusters: Mapping[str, Cluster | None],
    state: str | None,
    jobs: Mapping[str, Sequence[str]],
    topics_of: TopicsOf,
) -> dict[str, str]:
    """The homes of these jobs. ``state``: the state store's address; ``jobs``: the topics of each, by their names at
    home.

    Raises ConfigError if the clusters do not say which it is, and for one without an address; Unreachable and Refused
    as clusters and state stores do.
    """
    recorded = _recorded(state, jobs)

    @cache
    def names_on(cluster: str) -> frozenset[str]:
        return frozenset(_names_on(cluster, clusters[cluster], topics_of))

    return {
        job: recorded[job] if job in recorded else _home_of(job, topics, list(clusters), names_on)
        for job, topics in jobs.items()
    }


def _recorded(state: str | None, jobs: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The clusters of the jobs' first locations; empty without a state store, and before it is made."""
    if state is None:
        return {}
    with closing(open_state(state)) as store:
        try:
            first = {job: JobState(store, job).history()[:1] for job in jobs}
        except NotCreated:
            return {}
    return {job: found[0].cluster for job, found in first.items() if found}


def _names_on(name: str, cluster: Cluster | None, topics_of: TopicsOf) -> Sequence[str]:
    if cluster is None:
        raise ConfigError(
            f"[clusters.{name}] has no bootstrap_servers, so it cannot be asked which jobs are at home there.",
            hint='Add them; or write home = "NAME" in the [[jobs]] tables.',
        )
    try:
        return topics_of(cluster.client)
    except Unreachable as error:
        raise Unreachable(
            f"Cluster {name} was asked which jobs are at home there: {error.message}",
            hint='Write home = "NAME" in the [[jobs]] tables that lack it: then nothing is asked.',
        ) from error


def _home_of(
    job: str, topics: Sequence[str], clusters: Sequence[str], names_on: Callable[[str], frozenset[str]]
) -> str:
    there = [cluster for cluster in clusters if all(_has(names_on(cluster), topic) for topic in topics)]
    if len(there) == 1:
        return there[0]
    where = f"are on {' and '.join(there)}" if there else "are together on none of them"
    raise ConfigError(
        f"[jobs {job}] home is missing, and the clusters do not tell it: {', '.join(topics)} {where}.",
        hint='Add home = "NAME", the cluster where its topics are produced while nothing has failed.',
    )


def _has(names: frozenset[str], topic: str) -> bool:
    """``topic`` may be a pattern."""
    return topic in names or ("*" in topic and any(fnmatchcase(name, topic) for name in names))
