"""The topics that a job reads by a pattern, ``night_*``, as they are now.

A pattern matches names at the origin. Its topics are those of the cluster where the job is to read, and those of which
the job has a number, in its place or its journal: one that the cluster does not have is missed, not forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.config.file import Config, Job
from reconciler.config.settings import job_on
from reconciler.config.streams import Stream
from reconciler.core.errors import ConfigError, NotCreated, ReconcilerError
from reconciler.kafka.mirror.topics import is_internal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to match. All raise as clusters and stores do.

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
    """The configuration with the topics of ``jobs`` that have patterns. ``where``: by the jobs' names.

    A place that does not answer is left out, since its cluster may be lost; ``lenient``: so is the cluster where the
    job is to read. Raises as that does otherwise, and ConfigError for a job whose patterns match nothing. One of
    several jobs hides no other: it gets the error as its ``trouble``.
    """
    found = {}
    for job in (job for job in jobs if job.patterns):
        try:
            found[job.name] = _expanded(config, job, where[job.name], known, lenient)
        except ReconcilerError as error:
            if len(jobs) == 1:
                raise
            found[job.name] = replace(job, topics=(), streams=(), trouble=error)
    return replace(config, jobs=tuple(found.get(job.name, job) for job in config.jobs)) if found else config


def _expanded(config: Config, job: Job, at: Reading, known: Known, lenient: bool) -> Job:
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
            hint="Correct the pattern, which is of the names at the job's home; or let the mirror make the topics.",
        )
    return job_on(replace(job, streams=every), naming, config.here)
