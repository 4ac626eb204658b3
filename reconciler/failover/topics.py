"""The topics and the homes of jobs, as the clusters, the jobs' places and their journals show them.

A pattern, ``night_*``, matches names at the origin. Its topics are those of the cluster where the job is to read, and
those of which the job has a number, in its place or its journal: a topic that the cluster lacks is reported, not
forgotten.

A job whose table names no home has it on the one cluster where its topics exist under their own names. This is looked
up until the job has a location: the first location is at the home, and that cluster may be lost later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, partial

from reconciler.config.file import Config, Job
from reconciler.config.settings import Cluster, cluster_table, job_on
from reconciler.config.streams import Stream
from reconciler.core.errors import ConfigError, NotCreated, ReconcilerError, Unreachable
from reconciler.failover.outside import LIMIT_S
from reconciler.failover.whereabouts import direction_of
from reconciler.kafka.mirror.topics import is_internal
from reconciler.kafka.requests import topics_of
from reconciler.places.registry import open_store, traits
from reconciler.ports import topic_counts
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location
from reconciler.state.store import open_state


def expand_for(
    config: Config,
    jobs: Sequence[Job],
    locations: Mapping[str, Location | None],
    to: str | None,
    state_of: Callable[[str], JobState],
    *,
    lenient: bool,
) -> Config:
    """As ``inputs.with_topics``."""
    where = {}
    for job in jobs:
        here = locations.get(job.name)
        lives = job.home if here is None else here.cluster
        reads = lives if to == lives else direction_of(config, job, here, to).there
        where[job.name] = Reading(lives, reads)
    known = Known(partial(_topics_of, config), partial(_held, config), partial(_recorded, state_of))
    return expand(config, jobs, where, known, lenient=lenient)


def _topics_of(config: Config, cluster: str) -> Iterable[str]:
    return topics_of(_client_of(config, cluster), timeout_s=config.search.request_timeout_s)


def _held(config: Config, job: Job, cluster: str) -> Iterable[str]:
    """A group's numbers are on the cluster where the job lives."""
    client = _client_of(config, cluster) if traits(job.store).holds_commits else {}
    with closing(open_store(job.store, kafka_client=client, timeout_s=LIMIT_S)) as store:
        return list(topic_counts(store, job.group_on(cluster)))


def _recorded(state_of: Callable[[str], JobState], job: Job) -> Iterable[Stream]:
    state = state_of(job.name)
    here = state.location()
    journal = () if here is None else state.newest(here.stay)
    return [Stream(at.topic, at.origin) for entry in journal for at in (*entry.numbers, *entry.begun)]


def _client_of(config: Config, cluster: str) -> Mapping[str, str]:
    found = config.clusters[cluster]
    if found is None:
        raise ConfigError(f"{cluster_table(cluster)} bootstrap_servers is missing.", hint="Add it.")
    return found.client


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """The names that patterns are matched with. All raise as clusters and stores do.

    ``topics_of`` lists the topics of a cluster, by its name. ``held`` are the topics of the numbers in a job's place,
    by their names on the cluster where it lives; ``recorded`` are the streams in its journal.
    """

    topics_of: Callable[[str], Iterable[str]]
    held: Callable[[Job, str], Iterable[str]]
    recorded: Callable[[Job], Iterable[Stream]]


@dataclass(frozen=True, slots=True)
class Reading:
    """Where a job lives, and the cluster where it is to read."""

    lives: str
    reads: str


def expand(
    config: Config, jobs: Sequence[Job], where: Mapping[str, Reading], known: Known, *, lenient: bool = False
) -> Config:
    """The configuration with the topics of ``jobs`` that have  ``where``: by the jobs' names.

    A place that does not answer is left out, since its cluster may be lost; ``lenient``: so is the cluster where the
    job is to read. Raises as that does otherwise, and ConfigError for a job whose patterns match nothing. One of
    several jobs hides no other: it gets the error as its ``trouble``.
    """
    found = {}
    for job in (job for job in jobs if job.patterns):
        try:
            found[job.name] = _expand(config, job, where[job.name], known, lenient)
        except ReconcilerError as error:
            if len(jobs) == 1:
                raise
            found[job.name] = replace(job, topics=(), streams=(), trouble=error)
    return replace(config, jobs=tuple(found.get(job.name, job) for job in config.jobs)) if found else config


def _expand(config: Config, job: Job, at: Reading, known: Known, lenient: bool) -> Job:
    naming, clusters = config.topics.naming, tuple(config.clusters)

    def streams(names: Iterable[str], cluster: str) -> list[Stream]:
        return [naming.stream_of(name, cluster, clusters) for name in names if not is_internal(name)]

    found = {*known.recorded(job)}
    trouble: ReconcilerError | None = None
    try:
        found.update(streams(known.held(job, at.lives), at.lives))
    except NotCreated:
        pass  # before its first start
    except ReconcilerError as error:
        log.warning('The topics in the place of job "%s" could not be looked up: %s', job.name, error.message)
    try:
        found.update(streams(known.topics_of(at.reads), at.reads))
    except ReconcilerError as error:
        if not lenient:
            raise
        trouble = error
        log.warning('The topics of job "%s" on %s could not be looked up: %s', job.name, at.reads, error.message)
    if naming.is_identity:
        found = {Stream(each.topic, job.home) for each in found}
    matching = sorted(each for each in found if each.origin in job.origins and job.has_pattern_of(each.topic))
    every = tuple(dict.fromkeys([*job.streams, *matching]))
    if not every:
        raise trouble or ConfigError(
            f'No topic of {at.reads} is one of job "{job.name}": {", ".join(job.patterns)}.',
            hint="Correct the pattern, which matches the names at the job's home; or let the mirror create the topics.",
        )
    return job_on(replace(job, streams=every), naming, config.here)


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
    recorded = _first_clusters(state, jobs)

    @cache
    def names_on(cluster: str) -> frozenset[str]:
        return frozenset(_names_on(cluster, clusters[cluster], topics_of))

    return {
        job: recorded[job] if job in recorded else _home_of(job, topics, list(clusters), names_on)
        for job, topics in jobs.items()
    }


def _first_clusters(state: str | None, jobs: Mapping[str, Sequence[str]]) -> dict[str, str]:
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
    where = f"are on {' and '.join(there)}" if there else "are not all on one of them"
    raise ConfigError(
        f"[jobs {job}] home is missing, and the clusters do not show it: {', '.join(topics)} {where}.",
        hint='Add home = "NAME", the cluster where its topics are produced while nothing has failed.',
    )


def _has(names: frozenset[str], topic: str) -> bool:
    """``topic`` may be a pattern."""
    return topic in names or ("*" in topic and any(fnmatchcase(name, topic) for name in names))
