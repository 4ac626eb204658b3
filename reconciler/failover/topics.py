"""Where the topics of a job's patterns come from: the clusters, the job's place and its journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial

from reconciler.config.file import Config, Job
from reconciler.config.settings import cluster_table
from reconciler.config.streams import Stream
from reconciler.core.errors import ConfigError
from reconciler.failover import leaving, patterns
from reconciler.failover.whereabouts import direction_of
from reconciler.kafka.requests import topics_of
from reconciler.places.registry import open_store, traits
from reconciler.ports import topic_counts
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location


def expanded(
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
        where[job.name] = patterns.Reading(lives, reads)
    known = patterns.Known(partial(_topics_of, config), partial(_held, config), partial(_recorded, state_of))
    return patterns.expand(config, jobs, where, known, lenient=lenient)


def _topics_of(config: Config, cluster: str) -> Iterable[str]:
    return topics_of(_client_of(config, cluster), timeout_s=config.search.request_timeout_s)


def _held(config: Config, job: Job, cluster: str) -> Iterable[str]:
    """A group's numbers are on the cluster where the job lives."""
    client = _client_of(config, cluster) if traits(job.store).holds_commits else {}
    with closing(open_store(job.store, kafka_client=client, timeout_s=leaving.LIMIT_S)) as store:
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
