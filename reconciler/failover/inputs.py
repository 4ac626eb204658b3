"""Inputs of most uses, apart from the configuration: what is recorded of its jobs, their topics, and the stores.

Imports are in the functions that need them: most starts of a job need few, and must be fast.
"""

from __future__ import annotations

import logging
import os
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from reconciler.clock import clock_ms
from reconciler.config.file import Cluster, Config, Job
from reconciler.core.errors import ConfigError, together
from reconciler.failover.outside import Outside, StoreOpener, connect, groups_of, log_of, nothing_recorded
from reconciler.places.registry import open_store

if TYPE_CHECKING:
    from reconciler.config.streams import Stream
    from reconciler.plan.document import Plan
    from reconciler.state.jobs import JobState
    from reconciler.state.locations import Location, Stamp
    from reconciler.state.plans import Numbers
    from reconciler.state.store import StateStore


def homes(
    clusters: Mapping[str, Cluster | None], state: str | None, jobs: Mapping[str, Sequence[str]]
) -> Mapping[str, str]:
    """The homes, by the clusters or by the jobs' first locations. Raises as ``find_homes`` does."""
    from reconciler.failover.topics import find_homes  # most configurations say them
    from reconciler.kafka.requests import topics_of

    return find_homes(clusters, state, jobs, topics_of)


def open_state_store(config: Config) -> StateStore:
    """The configuration's state store. Raises ConfigError if it names none."""
    if config.state is None:
        raise ConfigError(
            "[state] store is missing: it records where the jobs live.",
            hint='Add [state] store = "postgresql://HOST/DATABASE" (or files:, hbase:, sqlite:), then make it: '
            "reconciler init -c FILE",
        )
    from reconciler.state.store import open_state

    return open_state(config.state)


def job_state(config: Config, job: Job) -> JobState:
    """A job's entries in the state store. Raises NotCreated if the store does not exist."""
    return job_states(config, [job])[job.name]


def job_states(config: Config, jobs: Sequence[Job]) -> dict[str, JobState]:
    """The entries of each job, in the state store that is opened once. Raises as ``job_state``."""
    from reconciler.state.jobs import JobState

    store = open_state_store(config)
    _ = store.id  # an empty store would say of every job that it was never moved
    return {job.name: JobState(store, job.name, config.file) for job in jobs}


def states_if_any(config: Config, jobs: Sequence[Job]) -> dict[str, JobState]:
    """The entries of each job, to read. There are none if the configuration names no state store."""
    if config.state is None:
        return {job.name: nothing_recorded(job.name) for job in jobs}
    return job_states(config, jobs)


def state_of(config: Config) -> Callable[[str], JobState]:
    """A function from a job's name to its entries; its first call opens the state store."""
    states: dict[str, JobState] = {}

    def of(name: str) -> JobState:
        if name not in states:
            states.update(states_if_any(config, config.jobs))
        return states[name]

    return of


def stamp_now(why: str) -> Stamp:
    """This user, machine and clock, for locations."""
    from reconciler.state.locations import Stamp

    return Stamp(who(), clock_ms, why)


def with_topics(
    config: Config,
    jobs: Sequence[Job],
    locations: Mapping[str, Location | None],
    to: str | None = None,
    *,
    lenient: bool = False,
) -> Config:
    """The configuration with the topics that the jobs' patterns match now. Raises as ``topics.expand``."""
    if not any(job.patterns for job in jobs):
        return config
    from reconciler.failover.topics import expand_for

    return expand_for(config, jobs, locations, to, state_of(config), lenient=lenient)


def located(config: Config, jobs: Sequence[Job], to: str | None = None) -> Config:
    """The configuration in the direction that these jobs go (``whereabouts``); toward ``to``, if given.

    Raises ConfigError for an unknown cluster.
    """
    from reconciler.failover import whereabouts

    if to is not None:
        config.toward(to)
    locations = locations_of(config, jobs)
    config = with_topics(config, jobs, locations, to)
    jobs = config.chosen(*(job.name for job in jobs))
    return whereabouts.located(config, jobs, locations, to, plans_of(config, jobs, locations))


def for_plan(config: Config, plan: Plan) -> Config:
    """The configuration for the move that the plan is about. Raises Changed for clusters that it does not have."""
    from reconciler.failover.writing.plan_checks import directed

    config = directed(config, plan)
    if not plan.jobs:
        return config
    return located(config, config.chosen(*(job.name for job in plan.jobs)), plan.destination_name)


def streams_of(
    config: Config, jobs: Sequence[Job], locations: Mapping[str, Location | None]
) -> dict[str, tuple[Stream, ...]]:
    """The streams that the jobs with patterns read now, by the jobs' names."""
    names = [job.name for job in jobs if job.patterns]
    now = with_topics(config, jobs, locations, lenient=True)
    return {job.name: job.streams for job in now.jobs if job.name in names}


def plans_of(
    config: Config, jobs: Sequence[Job], locations: Mapping[str, Location | None]
) -> dict[str, Mapping[int, Numbers]]:
    """The plans of the jobs that were moved before, by name."""
    moved = [job for job in jobs if (here := locations.get(job.name)) is not None and here.stay > 1]
    return {name: state.plans() for name, state in states_if_any(config, moved).items()} if moved else {}


def locations_of(config: Config, jobs: Sequence[Job]) -> dict[str, Location | None]:
    """Where the jobs live, by name; None for a job without a record."""
    return {name: state.location() for name, state in states_if_any(config, jobs).items()} if jobs else {}


def who() -> str:
    """The user and the machine of this process."""
    uid = os.getuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:  # containers run as users without a name
        user = str(uid)
    return f"{user}@{os.uname().nodename}"


def stores(config: Config, client: Mapping[str, str] | None = None, **more: Any) -> StoreOpener:
    """Opens stores by address. Groups are those of the destination, or of the cluster of ``client``."""
    from reconciler.places.registry import open_store

    client = config.destination.client if client is None else client
    return partial(open_store, kafka_client=client, timeout_s=config.search.request_timeout_s, **more)


@contextmanager
def outside(config: Config) -> Iterator[Outside]:
    """The destination's log, the stores and the clocks. Raises as ``connect`` does."""
    timeout_s, memory = config.search.request_timeout_s, config.search.memory
    with connect(config.destination.client, timeout_s=timeout_s, memory=memory) as outside:
        log, groups = log_of(config), groups_of(config)
        yield replace(outside, open_left=log, commits_left=groups, state_of=state_of(config))


log = logging.getLogger("reconciler.check")


def refuse_wrong(config: Config, jobs: Sequence[Job], *, sinks: bool = False) -> None:
    """Raise ConfigError if no job's store can be opened; log the faults of some jobs.

    The other jobs continue: one job hides no other. With ``sinks``, a job's sinks count as its store does. Contacts
    nothing.
    """
    faults: dict[str, ConfigError] = {}
    for job in jobs:
        try:
            _open(config, job.store)
            if sinks and job.sinks:
                from reconciler.failover.sinks.judging import open_sink

                for sink in job.sinks:
                    open_sink(sink)
        except ConfigError as error:
            faults[job.name] = error
    if len(faults) == len(jobs):
        raise together(faults.values())
    for name, fault in faults.items():
        log.warning('job "%s": %s', name, fault)


def _open(config: Config, address: str) -> None:
    open_store(address, kafka_client=config.destination.client).close()
